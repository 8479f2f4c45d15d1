#!/bin/bash
# The service unit satisfies systemd without a word, and exposes little.
# usage: unit_test.sh UNIT PROGRAM   (UNIT as configured by CMake, PROGRAM the binary it would start)
set -euo pipefail

readonly unit=$1 program=$2
packaging=$(dirname "$(readlink -f "$0")")/../../packaging
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Nothing is installed here: the unit's program is the one in the build folder, its manual the one in the tree.
sed "s#^\(Exec[A-Za-z]*=\)[^ ]*/tlsproxy #\1$program #" "$unit" >"$work/tlsproxy.service"
grep -q "^ExecStart=$program " "$work/tlsproxy.service" || fail "ExecStart does not start tlsproxy"
mkdir -p "$work/man/man8" "$work/man/man5"
cp "$packaging"/*.8 "$work/man/man8"
cp "$packaging"/*.5 "$work/man/man5"

said=$(MANPATH=$work/man systemd-analyze verify "$work/tlsproxy.service" 2>&1) || fail "verify: $said"
[[ -z $said ]] || fail "verify said: $said"

# The threshold is ten times the exposure.
systemd-analyze --no-pager security --offline=true --threshold=19 "$work/tlsproxy.service" >"$work/security" ||
  fail "exposed: $(cat "$work/security")"
tail -n 1 "$work/security"
