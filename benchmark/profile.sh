#!/bin/bash
# Shows where a subject's time goes: perf by symbol, system calls per operation, callgrind instructions per relayed MiB.
# See --help and benchmark/README.md.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=benchmark/lib/prepare.sh
source benchmark/lib/prepare.sh

for argument in "$@"; do
  case $argument in
    -h | --help) exec python3 benchmark/lib/profiling.py --help ;;
  esac
done

read -r -d '' -a peers < <(peer_packages && printf '\0')
install_missing "${build_packages[@]}" "${peers[@]}" python3 openssl strace valgrind linux-perf >&2
build_with tlsproxy tlsproxy-load tlsproxy-backend
exec python3 benchmark/lib/profiling.py "$@"
