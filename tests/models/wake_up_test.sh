#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# All orders of the steps of the models, by spin. Each has mutations, in which one step is left out or comes too early
# or too late: that spin finds what goes wrong then shows that the model would find it in the code.
# Usage: wake_up_test.sh [--gate]
#   --gate   as tools/test runs it: where no model has changed since the commit UROCE_GATE_BASE, only the small ones, since the
#            same model gives the same result
set -euo pipefail
folder=$(dirname "$(realpath "$0")")
all=1
if [[ ${1-} == --gate && -n ${UROCE_GATE_BASE-} ]]; then
  git -C "$folder" diff --quiet "$UROCE_GATE_BASE" -- . && all=
fi
command -v spin >/dev/null || { echo "spin is not installed (sudo tools/deps)"; exit 77; }
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
cp "$folder"/*.pml .

# errors OPTIMISATION MODEL [OPTION...]: how many the model has.
errors() {
  local optimisation=$1 model=$2
  spin "${@:3}" -a "$model" >spin.log 2>&1 || { cat spin.log >&2; exit 1; }
  "${CC:-cc}" "$optimisation" -w -DSAFETY -DMEMLIM=1024 -o pan pan.c
  ./pan -E -m100000 >pan.log 2>&1 || true  # -E: whoever sleeps for ever may, where nothing is left
  if grep -qE 'max search depth too small|reached -DMEMLIM|out of memory' pan.log; then
    echo "the search was cut off" >&2
    cat pan.log >&2
    exit 1
  fi
  sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.log
}

# check MODEL MUTATION...
check() {
  local model=$1.pml found mutation
  found=$(errors -O1 "$model")
  if [[ $found != 0 ]]; then
    echo "$model: something is left while all sleep:"
    spin -t -p -g "$model" | tail -n 60
    exit 1
  fi
  grep -q 'Search not completed' pan.log && { echo "$model: the search was cut off"; cat pan.log; exit 1; }
  echo "$model: $(grep -E 'states, stored' pan.log)"
  for mutation in "${@:2}"; do
    found=$(errors -O0 "$model" "-D$mutation")
    [[ $found == 1 ]] || { echo "$model does not find what goes wrong with $mutation:"; cat pan.log; exit 1; }
  done
}

check wake_up ANYBODY_TAKES_WAKE_UPS
check sleep NOT_WOKEN_FOR_WORK NOT_WOKEN_FOR_TIMERS READS_THE_DEADLINE_FIRST FALLS_ASLEEP_UNLOCKED \
  LOOKS_BEFORE_IT_ARMS TAKES_EVENTS_LAST ANYBODY_TAKES_EVENTS
check network TELLS_LAST TAKES_KICKS_LAST WHAT_IS_DUE_IS_NOT_TOLD NO_KICK_AT_THE_START
[[ -n $all ]] || { echo "models: the same as before today's work; all of them: tests/models/wake_up_test.sh"; exit 0; }
check completion_channel LOOKS_BEFORE_IT_PUBLISHES LOOKS_BEFORE_IT_ARMS NEVER_REPORTS_MISSED DISARMS_LAST \
  JUDGES_BY_THE_LAST HOLDS_BACK_FOR_EVER
check doorbells LOOKS_BEFORE_IT_UNLOCKS LEAVES_AT_ONCE ANSWERS_BEFORE_IT_CLEARS LOOKS_BEFORE_IT_HANDS_OVER \
  SLEEPS_ON_WHAT_WAS_HANDED_OVER LETS_OTHERS_IN_LATE LOOKS_BEFORE_IT_SENDS LOOKS_FOR_OTHERS_ONLY_BEFORE \
  LOOKS_BEFORE_IT_DOZES LOOKS_BEFORE_IT_SAYS FORGETS_AFTER_ITS_ROUNDS LOOKS_BEFORE_IT_POSTS FLUSHES_ONLY_BEFORE LEAVES_BEFORE_IT_UNLOCKS
check watch LEAVES_WHO_IS_OFF WAKES_WHO_WATCHES
check attendance LEAVES_WITHOUT_A_WORD TAKES_WAKE_UPS_ONLY
check leave LOOKS_BEFORE_IT_UNLOCKS FORGETS_UNLOCKED LEAVES_TO_NOBODY NOT_AFTER_ROUNDS NOT_AFTER_SETUPS SLEEPS_WITHOUT_A_LOOK
