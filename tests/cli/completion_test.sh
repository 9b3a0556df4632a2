#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Completion in bash (cli/completion.bash) offers what the programs take, without bash-completion's own functions.
# Usage: completion_test.sh DIRECTORY_OF_PROGRAMS SOURCE_DIR
set -u
PATH=$1:$PATH
# shellcheck source=/dev/null
source "$2/cli/completion.bash"
failures=0

# offers WORDS... : EXPECTED...: completing the last word, exactly these are offered.
offers() {
  COMP_WORDS=() COMPREPLY=()
  while [[ $1 != : ]]; do COMP_WORDS+=("$1"); shift; done
  shift
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _uroce
  local offered expected
  offered=$(printf '%s\n' "${COMPREPLY[@]}" | sort -u)
  expected=$(printf '%s\n' "$@" | sort)
  [[ $offered == "$expected" ]] && return
  printf 'FAILED: %s\n  offered: %s\n  expected: %s\n' "${COMP_WORDS[*]}" "${offered//$'\n'/ }" "$*"
  failures=$((failures + 1))
}

offers uroce d : devices doctor
offers uroce '' : capture check devices doctor run stat version --help --version
offers uroce stat --js : --json
offers uroce run --io '' : auto af_xdp udp dpdk
offers uroce run --io = u : udp
offers uroce run --io udp --xdp-mode g : generic
offers uroce run --netdev l : lo
offers uroce run --user daem : daemon
offers uroce run --alone ibv_rc_pi : ibv_rc_pingpong
offers uroce run --io udp --caps : # no such option
offers uroce run --capture "$2/CMakeP" : "$2/CMakePresets.json"
offers uroce run cat "$2/CMakeP" : "$2/CMakePresets.json"
offers uroce run --io udp -- cat --io "$2/LIC" : "$2/LICENSE" # cat's option
offers uroce check "$2/LIC" : "$2/LICENSE"
offers uroced --li : --linger
offers uroced --group daem : daemon
# Every option of every command is offered.
for command in run stat capture check doctor devices; do
  mapfile -t options < <(uroce "$command" --help | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , '\n')
  offers uroce "$command" - : "${options[@]}"
done
exit $((failures > 0))
