#!/bin/bash
# Counts what sessions and relayed bytes cost in calls, allocations and instructions, and holds it against
# benchmark/budgets.tsv: exit status 1 when one is exceeded. See --help and benchmark/README.md.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=benchmark/lib/prepare.sh
source benchmark/lib/prepare.sh

for argument in "$@"; do
  case $argument in
    -h | --help) exec python3 benchmark/lib/counters.py --help ;;
  esac
done

install_missing "${build_packages[@]}" python3 openssl strace valgrind >&2
if [[ -z ${TLSPROXY-} ]]; then build_with tlsproxy; fi
exec python3 benchmark/lib/counters.py "$@"
