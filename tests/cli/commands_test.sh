#!/usr/bin/env bash
# The built `uroce` as a user types it: output, exit codes, environment of the program started. Changes nothing.
# Usage: commands_test.sh PATH_OF_UROCE
set -u
uroce=$1
failures=0
unset UROCE_IO UROCE_NETDEV UROCE_FAULTS UROCE_XDP_MODE UROCE_QUIET LD_PRELOAD

# expect CODE PATTERN ARGUMENTS...: `uroce ARGUMENTS` ends with CODE and prints a line that matches PATTERN.
expect() {
  local code=$1 pattern=$2 output actual
  shift 2
  output=$("$uroce" "$@" 2>&1)
  actual=$?
  if [[ $actual -ne $code ]] || ! grep -Eq -- "$pattern" <<<"$output"; then
    printf 'FAILED: uroce %s\n  exit code %s (expected %s), output (expected /%s/):\n%s\n' \
      "$*" "$actual" "$code" "$pattern" "$output"
    failures=$((failures + 1))
  fi
}

expect 0 '^uroce [0-9]+\.[0-9]+' --version
expect 0 '^uroce [0-9]+\.[0-9]+' version
expect 0 'Examples:' --help
for command in run devices doctor check; do expect 0 'Examples:' "$command" --help; done
expect 2 'Subcommands:' # nothing given
expect 2 'nonsense' nonsense
expect 2 'command is required' run
expect 2 'not in' run --io carrier-pigeon true
expect 2 'not expected' run --no-such-option true
expect 2 'not expected' devices surplus
expect 2 'file is required' check
expect 2 'not in' check --mtu 1500 /dev/null
expect 2 "^uroce: bad --slack 'soon'" check --slack soon /dev/null
expect 2 "^uroce: bad --at 'here'" check --at here /dev/null
expect 2 '^uroce: cannot open /nonexistent: No such file' check /nonexistent
expect 2 '^uroce: /dev/null: the file is empty' check /dev/null

# shellcheck disable=SC2016  # expanded by the shell that uroce starts
{
  expect 7 '^udp eth=none .*/liburoce\.so:.*/liburoce_files\.so$' run --io udp -- sh -c 'echo "$UROCE_IO eth=${UROCE_NETDEV-none} $LD_PRELOAD"; exit 7'
  expect 0 '^--io x$' run printf '%s %s\n' --io x
  expect 0 '^drop=1%,seed=7 generic 1$' run --faults drop=1%,seed=7 --xdp-mode generic --quiet \
    sh -c 'echo "$UROCE_FAULTS $UROCE_XDP_MODE $UROCE_QUIET"'
  LD_PRELOAD=libm.so.6 expect 0 '^libm\.so\.6:/.*/liburoce\.so:.*/liburoce_files\.so$' run sh -c 'echo "$LD_PRELOAD"'
  expect 0 '/liburoce\.so$' run --no-files sh -c 'echo "$LD_PRELOAD"'
  expect 0 '^(uroce_|empty)' run sh -c 'cd /sys/class/infiniband && ls && echo empty'
  UROCE_IO=udp expect 0 '^udp$' run sh -c 'echo "$UROCE_IO"'
}
UROCE_IO=nonsense expect 2 'not in' run true

expect 127 '^uroce: no-such-command: command not found$' run no-such-command
expect 126 'not an executable file' run /etc/passwd
expect 1 "bad fault 'drop=lots'" run --faults drop=lots true
expect 1 "no usable netdev 'nosuch0'" run --netdev nosuch0 true

exit $((failures > 0))
