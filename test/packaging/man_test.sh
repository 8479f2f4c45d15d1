#!/bin/bash
# The manual is well formed, and knows every word that the access log can write.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

pages=0
for page in packaging/*.[58]; do
  said=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null) || fail "$page: $said"
  [[ -z $said ]] || fail "$page: $said"
  pages=$((pages + 1))
done
((pages > 0)) || fail "there are no pages"

words=0
# Expects that the manual has an entry for each word that comes in.
has_entries() {
  local word
  while read -r word; do
    grep -qE "^(\.BR? .*\b$word\b|$word\|)" packaging/tlsproxy.8 || fail "tlsproxy.8 does not explain '$word'"
    words=$((words + 1))
  done
}
has_entries < <(sed -n 's/^    case CloseReason::.*//; s/^      return "\(.*\)";/\1/p' src/record/close_reason.cc)
has_entries < <(grep -oP '(?:text|out\.\w+)\("\K[a-z0-9_]+' src/record/access_log.cc)
((words > 50)) || fail "only $words words were found in the sources"
echo "$pages pages, $words words"
