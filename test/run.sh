#!/bin/bash
# Installs what the tests need, builds a preset (ci unless named) and runs all of its tests.
# usage: test/run.sh [release|debug|ci|asan-ubsan]
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=packaging/packages.sh
source packaging/packages.sh

readonly preset=${1-ci}
readonly log=build/$preset/Testing/Temporary/LastTest.log

install_missing "${build_packages[@]}" "${test_packages[@]}"
cmake --preset "$preset" -DTLSPROXY_TESTS=ON -DTLSPROXY_BENCHMARKS=ON
cmake --build --preset "$preset"

status=0
ctest --preset "$preset" -j 2 || status=$?

# A file of end-to-end claims is one entry of ctest's: count what is in it, and say what was skipped.
awk -v preset="$preset" '
  /^[0-9]+\/[0-9]+ Testing: / { tests += 1 }
  /^Ran [0-9]+ tests? in / { tests += $2 - 1 }
  END { print preset ": " tests + 0 " tests" }' "$log"
skipped=$(grep -E '\.\.\. skipped |\*\*\*Skipped|^SKIP' "$log" || true)
echo "skipped: ${skipped:-none}"
exit "$status"
