#!/bin/bash
# Builds the proxy, starts it with conf/quickstart.yaml and shows one request through TLS with its answer
# and its log line. Runs until Ctrl-C, or with --once only until the request is answered.
#
# Makes nothing outside build/release but the Debian packages that were missing.
set -euo pipefail

once=false
case ${1-} in
  '') ;;
  --once) once=true ;;
  *)
    echo "usage: ${0##*/} [--once]" >&2
    exit 2
    ;;
esac

cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=packaging/packages.sh
source packaging/packages.sh

readonly build=build/release
readonly log=$build/quickstart.log
readonly tls_port=8443 echo_port=7007
readonly expected='hello over TLS'

fail() {
  echo "quickstart: $*" >&2
  exit 1
}

listens() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# The request's line; the connections that `listens` makes have others.
access_line() {
  grep -m 1 ' sni=localhost ' "$log"
}

# Waits until `$@` succeeds, at most ten seconds and only as long as the proxy runs.
wait_for() {
  local tries
  for ((tries = 0; tries < 100; ++tries)); do
    if "$@"; then return 0; fi
    kill -0 "$proxy" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  return 1
}

install_missing "${build_packages[@]}" "${quickstart_packages[@]}"
cmake --preset release -DTLSPROXY_TESTS=OFF
cmake --build --preset release --target tlsproxy

for port in $tls_port $echo_port; do
  if listens "$port"; then
    fail "port $port is taken: something listens on 127.0.0.1:$port already. Stop it and try again."
  fi
done

$build/tlsproxy -c conf/quickstart.yaml >"$log" 2>&1 &
proxy=$!
trap 'kill "$proxy" 2>/dev/null || true; wait "$proxy" 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM

wait_for listens $tls_port || fail "the proxy does not listen on 127.0.0.1:$tls_port; its log is above"
request=(openssl s_client -connect "127.0.0.1:$tls_port" -servername localhost -quiet)
echo
echo "\$ ${request[*]}"
answer=$(timeout 10 "${request[@]}" </dev/null 2>"$build/quickstart.client") || {
  cat "$build/quickstart.client" "$log" >&2
  fail "the request failed; what the client and the proxy say is above"
}
echo "$answer"
[[ $answer == "$expected" ]] || fail "expected the answer '$expected'"

echo
echo "Its line in the access log ($log):"
wait_for access_line || fail "no access line in $log"

if $once; then exit 0; fi
echo
echo "The proxy runs until Ctrl-C: TLS on 127.0.0.1:$tls_port, an echo on 127.0.0.1:$echo_port."
wait "$proxy" || true
cat "$log" >&2
fail "the proxy ended by itself; its log is above"
