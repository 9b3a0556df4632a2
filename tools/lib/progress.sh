#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Long steps of a script: their output goes to a file, one line tells where they are. To be sourced.

# progress NAME LOG COMMAND...: runs COMMAND with its output in LOG and shows the newest line of it: rewritten in place on a
# terminal, one every ten seconds elsewhere. When it fails, the end of LOG. Returns what COMMAND returns.
progress() {
  local name=$1 log=$2 line='' next=10 status=1 fd
  shift 2
  local begin=$SECONDS
  : >"$log"
  # After a separator, since the last line may have no end.
  exec {fd}< <("$@" 2>&1 && printf '\x1e0\n' || printf '\x1e%d\n' $?)
  while IFS= read -r -u "$fd" line; do
    if [[ $line == *$'\x1e'* ]]; then
      status=${line##*$'\x1e'}
      line=${line%$'\x1e'*}
      [[ -n $line ]] || continue
    fi
    printf '%s\n' "$line" >>"$log"
    if [[ -t 1 ]]; then
      printf '\r\033[K%.*s' "$((${COLUMNS:-$(tput cols 2>/dev/null || echo 80)} - 1))" "$name: $line"
    elif ((SECONDS - begin >= next)); then
      echo "$name: $line"
      next=$((SECONDS - begin + 10))
    fi
  done
  exec {fd}<&-
  [[ ! -t 1 ]] || printf '\r\033[K'
  ((status == 0)) || tail -n 60 "$log" >&2
  return "$status"
}
