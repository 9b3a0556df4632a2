#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Compiles through ccache so that what one checkout has compiled no other compiles again: CMake's launcher of compilers
# (UroceTargets.cmake). Paths below the source directory become relative to the build directory, in which compilers run, since
# ccache knows only some of the options that have paths.
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
    if [[ $argument != -D* ]]; then  # a program may be meant to find what a macro names
      argument=${argument//"$source_dir/"/$up/}
      argument=${argument/%"$source_dir"/$up}
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
