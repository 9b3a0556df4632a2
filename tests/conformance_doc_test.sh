#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Every test that docs/conformance.md and docs/faults.md name, as `Suite.Name` or `Suite.*`, exists in the sources.
# Usage: conformance_doc_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
# One "Suite.Name" per line; clang-format may have broken a definition after its comma.
defined=$(find tests -name '*_test*.cc' -exec cat {} + | tr -s '\n ' ' ' \
  | grep -oE '\bTEST(_F|_P)?\(\w+, ?\w+\)' | sed -E 's/^TEST(_F|_P)?\((\w+), ?(\w+)\)$/\2.\3/' | sort -u)
failed=0
check() {
  local document=$1 at_least=$2 named
  named=$(grep -oE '`[A-Z][A-Za-z0-9]*\.(\*|[A-Z][A-Za-z0-9]*)`' "$document" | tr -d '`' | sort -u || true)
  [[ $(wc -l <<<"$named") -ge $at_least ]] || {
    echo "$document names hardly any test: is its form still the one looked for?"
    exit 1
  }
  while read -r test; do
    if [[ $test == *.\* ]]; then
      grep -q "^${test%.\*}\." <<<"$defined" && continue
    else
      grep -qxF "$test" <<<"$defined" && continue
    fi
    echo "$document names $test, which does not exist"
    failed=1
  done <<<"$named"
}
check docs/conformance.md 100
check docs/faults.md 50
exit $failed
