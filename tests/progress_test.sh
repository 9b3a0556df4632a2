#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# tools/lib/progress.sh: a step that fails is never taken for one that succeeds, however its caller treats errors.
# Usage: progress_test.sh SOURCE_DIRECTORY
set -euo pipefail
source "$1/tools/lib/progress.sh"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

# expect STATUS LOGGED COMMAND...: COMMAND as a step, called where errors are handled, as functions that tools/ have
expect() {
  local expected=$1 logged=$2 status=0
  shift 2
  step() { progress step "$directory/log" "$@" >"$directory/shown" 2>&1; }
  step "$@" || status=$?
  [[ $status == "$expected" ]] || { echo "'$*' returned $status, not $expected"; exit 1; }
  [[ $(<"$directory/log") == "$logged" ]] || { echo "'$*' left '$(<"$directory/log")' in its log"; exit 1; }
}
expect 0 '' true
expect 1 '' false
expect 0 well echo well
expect 0 'no end' printf 'no end'
expect 3 'no end' sh -c 'printf "no end"; exit 3'
expect 3 $'two\nlines' sh -c 'echo two; echo lines; exit 3'
expect 123 a xargs sh -c 'printf a; exit 1' <<<x
expect 127 "$1/none: No such file" sh -c 'echo "$0: No such file"; exit 127' "$1/none"

# Where errors are not handled the caller ends.
if bash -c 'set -e; source "$0"; progress step "$1" false; echo went on' "$1/tools/lib/progress.sh" "$directory/log" | grep -q .; then
  echo "a step that failed was passed over"
  exit 1
fi
