#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Compiles through ccache so that what one checkout has compiled no other compiles again: CMake's launcher of compilers
# (UroceTargets.cmake). Paths below the source directory, at the start of a word or behind an option, become relative to the build
# directory, in which compilers run, since ccache knows only some of the options that have paths.
# Usage: ccache.sh SOURCE_DIR COMPILER ARGUMENT...
source_dir=$1
shift
below=${PWD#"$source_dir"/}
if [[ $below != "$PWD" ]]; then
  up=..
  while [[ $below == */* ]]; do
    up+=/..
    below=${below#*/}
  done
  arguments=()
  for argument in "$@"; do
    # A macro is left alone: a program may be meant to find what it names.
    if [[ $argument != -D* && $argument =~ ^(-I|-isystem|-include|[^=]*=)?"$source_dir"(/.*)?$ ]]; then
      option=${BASH_REMATCH[1]}
      path=$source_dir${BASH_REMATCH[2]}
      case $path in
        "$PWD" | "$PWD/") path=. ;;
        "$PWD"/*) path=${path#"$PWD"/} ;;  # as ninja names it: it builds what is there
        *) path=$up${path#"$source_dir"} ;;
      esac
      argument=$option$path
    fi
    arguments+=("$argument")
  done
  set -- "${arguments[@]}"
fi
export CCACHE_BASEDIR=$source_dir  # for what compilers write
export CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

output=
for argument in "$@"; do
  [[ $previous != -o ]] || output=$argument
  previous=$argument
done
case $output in
  *.pch) "$@" || exit ;;  # clang's names the directory that it was made in, and is refused elsewhere
  *.gch) ccache "$@" || exit ;;
  *) exec ccache "$@" ;;
esac
# What ccache takes a precompiled header for: its options, and the contents of all that it was made from.
{
  printf '%s\n' "$@"
  tr -d '\\\n' <"$output.d" | sed 's/^[^:]*: *//' | xargs sha256sum
} >"$output.sum"
