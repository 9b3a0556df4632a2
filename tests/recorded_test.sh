#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a test that is a program or a script. When its exit code says "skipped", its last line is the reason, which goes to
# the file that UROCE_TEST_SKIPS names, as those of tests/run_tests.cc do.
# Usage: recorded_test.sh NAME COMMAND...
name=$1
shift
[[ -n ${UROCE_TEST_SKIPS-} ]] || exec "$@"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$@" > >(tee "$output") 2>&1
status=$?
wait $!
[[ $status -ne 77 ]] || echo "$name: $(tail -n 1 "$output")" >>"$UROCE_TEST_SKIPS"
exit "$status"
