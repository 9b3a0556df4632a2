#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# What CTest runs every test with: tells tools/test what was skipped and what time it took.
# Usage: recorded_test.sh [--notes-itself] NAME COMMAND...
#   UROCE_TEST_TIMES  a file that gets a line "NAME BEGIN END USER SYSTEM": times of day in seconds, and processor time of all
#                     processes that were waited for, as "0m1.5s", with a comma where the locale has one
#   UROCE_TEST_SKIPS  a file that gets the last line of a test whose exit code says "skipped" (77), which is the reason;
#                     --notes-itself: the program writes there what it skips (tests/run_tests.cc)
notes_itself=
[[ $1 != --notes-itself ]] || { notes_itself=1; shift; }
name=$1
shift
[[ -n ${UROCE_TEST_SKIPS-} || -n ${UROCE_TEST_TIMES-} ]] || exec "$@"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
begin=$EPOCHREALTIME
if [[ -n $notes_itself ]]; then
  "$@"
  status=$?
else
  "$@" > >(tee "$output") 2>&1
  status=$?
  wait $!
fi
if [[ -n ${UROCE_TEST_TIMES-} ]]; then
  end=$EPOCHREALTIME
  times >"$output.times"
  echo "$name $begin $end $(tail -n 1 "$output.times")" >>"$UROCE_TEST_TIMES"
  rm "$output.times"
fi
[[ $status -ne 77 || -n $notes_itself || -z ${UROCE_TEST_SKIPS-} ]] || echo "$name: $(tail -n 1 "$output")" >>"$UROCE_TEST_SKIPS"
exit "$status"
