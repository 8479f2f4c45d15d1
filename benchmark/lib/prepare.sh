# Installs what the benchmarks need and builds them. Sourced by bench.sh, counters.sh and profile.sh, in the root of the tree.
# shellcheck shell=bash
# shellcheck source=packaging/packages.sh
source packaging/packages.sh

readonly build=build/release

# What is compared, unless the environment names another program in its place.
peer_packages() {
  if [[ -z ${NGINX-} ]]; then echo nginx-light libnginx-mod-stream; fi
  if [[ -z ${HAPROXY-} ]]; then echo haproxy; fi
}

# build_with TARGET...: quiet, unless it fails.
build_with() {
  local log=$build/benchmark-build.log
  mkdir -p "$build"
  echo "building (log: $log) ..." >&2
  if ! { cmake --preset release -DTLSPROXY_TESTS=OFF -DTLSPROXY_BENCHMARKS=ON &&
    cmake --build --preset release --target "$@"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "the build failed; all of it is in $log" >&2
    return 1
  fi
}
