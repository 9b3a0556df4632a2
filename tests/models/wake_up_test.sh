#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# All orders of the steps of wake_up.pml, by spin.
# Usage: wake_up_test.sh
set -euo pipefail
folder=$(dirname "$(realpath "$0")")
model=wake_up.pml
command -v spin >/dev/null || { echo "spin is not installed (sudo tools/deps)"; exit 77; }
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
cp "$folder/$model" .

# errors [OPTION...]: how many the model has.
errors() {
  spin "$@" -a "$model" >spin.log 2>&1 || { cat spin.log >&2; exit 1; }
  "${CC:-cc}" -O1 -w -DSAFETY -DMEMLIM=1024 -o pan pan.c
  ./pan -E -m100000 >pan.log 2>&1 || true  # -E: whoever sleeps for ever may, where nothing is left
  if grep -qE 'max search depth too small|reached -DMEMLIM|out of memory' pan.log; then
    echo "the search was cut off" >&2
    cat pan.log >&2
    exit 1
  fi
  sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.log
}
found=$(errors)
[[ $found == 0 ]] || { echo "a record is left in the ring while all sleep:"; spin -t -p -g "$model" | tail -n 60; exit 1; }
grep -q 'Search not completed' pan.log && { echo "the search was cut off"; cat pan.log; exit 1; }
grep -E 'states, stored' pan.log
found=$(errors -DANYBODY_TAKES_WAKE_UPS)
[[ $found == 1 ]] || { echo "the model does not find the stall that it is to find:"; cat pan.log; exit 1; }
