# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
# Completion of uroce and uroced in bash. What there is to choose from is what the programs' own --help says.

# _uroce_options PROGRAM...: a line for each option: its name, and what --help calls its value (nothing: it takes none).
_uroce_options() {
  local line value name names
  "$@" --help 2>/dev/null | while IFS= read -r line; do
    [[ $line =~ ^\ \ (-[^\ ]+)\ *([^\ ]*) ]] || continue
    names=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
    value=${value//\[*\]/}  # what may be left out
    # A value is in capitals or a list of alternatives; other words are the description.
    [[ $value =~ ^[A-Z,.]+$ || $value == *'|'* ]] || value=
    for name in ${names//,/ }; do echo "$name $value"; done
  done
}

# What can stand for the value of this kind, of the option that is completed.
_uroce_values() {
  local option=$1 kind=$2 word=$3
  case $kind in
    *'|'*) mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$word") ;;
    FILE) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    NAME)
      case $option in
        --netdev) mapfile -t COMPREPLY < <(compgen -W "$(cd /sys/class/net && echo *)" -- "$word") ;;
        --user) mapfile -t COMPREPLY < <(compgen -u -- "$word") ;;
        --group) mapfile -t COMPREPLY < <(compgen -g -- "$word") ;;
      esac
      ;;
  esac
}

_uroce() {
  local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command='' at=1 option kind
  COMPREPLY=()
  if [[ ${program##*/} == uroce ]]; then
    if ((COMP_CWORD == 1)); then
      mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null |
        sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p') --help --version" -- "$word")
      return
    fi
    command=${COMP_WORDS[1]} at=2
  fi
  local -A takes=()
  while read -r option kind; do takes[$option]=$kind; done < <(_uroce_options "$program" ${command:+"$command"})

  # What the words before this one leave open: the value of an option, or with run the program's own words.
  local pending=''
  for (( ; at < COMP_CWORD; at++)); do
    option=${COMP_WORDS[at]}
    if [[ -n $pending ]]; then
      [[ $option == = ]] || pending=
    elif [[ $option == -* ]]; then
      [[ -z ${takes[$option]-} ]] || pending=$option
      [[ $option != -- ]] || { ((at++)) && break; }
    elif [[ $command == run ]]; then
      break
    fi
  done
  if [[ -n $pending ]]; then
    _uroce_values "$pending" "${takes[$pending]}" "${word#=}"
  elif [[ $command == run ]] && ((at < COMP_CWORD)); then
    if declare -F _command_offset >/dev/null; then
      _command_offset "$at"
    else
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${!takes[*]}" -- "$word")
  elif [[ $command == run ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
  elif [[ $command == check ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  elif [[ $command == capture ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("$program" capture --list 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$word")
  fi
}

complete -o filenames -o bashdefault -F _uroce uroce uroced
