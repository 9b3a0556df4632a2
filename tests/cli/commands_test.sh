#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The built `uroce` as a user types it: output, exit codes, environment of the program started. Changes nothing.
# Usage: commands_test.sh PATH_OF_UROCE
set -u
uroce=$1
failures=0
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
unset UROCE_CAPTURE UROCE_CC UROCE_IO UROCE_NETDEV UROCE_FAULTS UROCE_PATIENCE UROCE_XDP_MODE UROCE_QUIET LD_PRELOAD

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

expect 0 '^uroce [0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{12}(-dirty)?\))?$' --version
expect 0 '^uroce [0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{12}(-dirty)?\))?$' version
expect 0 'Examples:' --help
for command in run devices doctor stat capture check; do expect 0 'Examples:' "$command" --help; done
# Nothing given: three commands to begin with.
expect 0 '^  uroce doctor  '
expect 0 '^  uroce devices  '
expect 0 '^  uroce run ib_write_bw -d uroce_[^ ]+  '
[[ $("$uroce" | grep -c '^  uroce ') -eq 3 ]] || { echo "FAILED: uroce alone prints $("$uroce")"; failures=$((failures + 1)); }
UROCE_IO=nonsense expect 2 '^uroce: UROCE_IO: nonsense is none of .*; see uroce run --help$'
expect 2 '^uroce: nonsense: not expected here; see uroce --help$' nonsense
expect 2 '^uroce: a program is missing; for example: uroce run ibv_devices$' run
expect 2 '^uroce: .*carrier-pigeon is none of .*; see uroce run --help$' run --io carrier-pigeon true
expect 2 '^uroce: --no-such-option: not expected here; see uroce run --help$' run --no-such-option true
expect 2 '^uroce: surplus: not expected here; see uroce devices --help$' devices surplus
expect 2 '^uroce: a file is missing; for example: uroce check trace.pcapng$' check
expect 2 '^uroce: .*1500 is none of .*; see uroce check --help$' check --mtu 1500 /dev/null
expect 0 '^  --io auto\|af_xdp\|udp\|dpdk\[:PORT\]$' run --help
expect 0 '^  --no-files +Do not' run --help
# Nothing of the parser's own notation.
for command in run devices doctor stat capture check; do
  if "$uroce" "$command" --help | grep -E '[{}]|TEXT|UINT|REQUIRED|Env:'; then
    echo "FAILED: uroce $command --help"
    failures=$((failures + 1))
  fi
done
expect 2 "^uroce: --slack 'soon'" check --slack soon /dev/null
expect 2 "^uroce: --at 'here'" check --at here /dev/null
for wrong in 0 86401 10s; do expect 2 'is no number' check --patience "$wrong" /dev/null; done
expect 2 '^uroce: cannot open /nonexistent: No such file' check /nonexistent
expect 2 '^uroce: /dev/null: the file is empty' check /dev/null

expect 3 '^uroce: no broker at @nosuch: Connection refused; uroce run starts one' stat --broker @nosuch
expect 3 '^uroce: no broker at /nosuch: No such file' stat --watch --broker /nosuch
expect 2 '^uroce: --interval 0.01: --watch needs 0.1 or more' stat --watch --interval 0.01
expect 2 'not with' stat --json --prometheus
expect 2 'not with' devices --json --gids
expect 2 'not with' check --json --quiet /dev/null
expect 2 'only with --watch' stat --count 3
expect 2 "^uroce: --serve 'everywhere': neither PORT nor ADDRESS:PORT" stat --serve everywhere
expect 2 'not with' stat --serve 9791 --json
expect 2 'is no number' stat --qps 4097

expect 2 '^uroce: -w: a file is missing; ' capture
expect 2 '^uroce: --files, --size: only together; they make a ring' capture -w /dev/null --files 3
expect 2 '^uroce: --files, --size: not with -w -' capture -w - --files 3 --size 1
expect 2 "^uroce: --qpn '0x1000000'" capture -w /dev/null --qpn 0x1000000
expect 2 'is no number' capture -w /dev/null --snap 10
expect 1 '^uroce: no process 999999999' capture 999999999 -w /dev/null
expect 1 "^uroce: no process has 'nosuch0' open" capture nosuch0 -w /dev/null
expect 0 '' capture --list
expect 2 'after % there may be p' run --capture %x true
expect 2 'only with --capture' run --capture-snap 100 true
expect 2 'make a ring of files' run --capture x --capture-files 2 true
expect 2 'up to 16 QPNs' run --capture x --capture-qpn many true
expect 1 '^uroce: cannot write to /nonexistent: No such file' run --capture /nonexistent/x true
expect 2 'is no number' run --capture x --capture-snap 10 true

# shellcheck disable=SC2016  # expanded by the shell that uroce starts
{
  expect 7 '^udp eth=none .*/liburoce\.so:.*/liburoce_files\.so$' run --io udp -- sh -c 'echo "$UROCE_IO eth=${UROCE_NETDEV-none} $LD_PRELOAD"; exit 7'
  expect 0 '^/tmp/%d-%p 80 3 5 0x11$' run --capture /tmp/%d-%p --capture-snap 80 --capture-files 3 --capture-size 5 --capture-qpn 0x11 \
    sh -c 'echo "$UROCE_CAPTURE $UROCE_CAPTURE_SNAP $UROCE_CAPTURE_FILES $UROCE_CAPTURE_SIZE $UROCE_CAPTURE_QPN"'
  pushd /tmp >/dev/null || exit 1
  expect 0 '^/tmp/here$' run --capture here sh -c 'cd /; echo "$UROCE_CAPTURE"'
  popd >/dev/null || exit 1
  expect 0 '^--io x$' run printf '%s %s\n' --io x
  expect 0 '^counters=1$' run --counters sh -c 'echo "counters=$UROCE_COUNTERS"'
  expect 0 '^drop=1%,seed=7 generic 1$' run --faults drop=1%,seed=7 --xdp-mode generic --quiet \
    sh -c 'echo "$UROCE_FAULTS $UROCE_XDP_MODE $UROCE_QUIET"'
  expect 0 '^patience=60$' run --patience 60 sh -c 'echo "patience=$UROCE_PATIENCE"'
  LD_PRELOAD=libm.so.6 expect 0 '^libm\.so\.6:/.*/liburoce\.so:.*/liburoce_files\.so$' run sh -c 'echo "$LD_PRELOAD"'
  LD_LIBRARY_PATH=/opt/x expect 0 '^/.*/lib/uroce:/opt/x$' run sh -c 'echo "$LD_LIBRARY_PATH"'
  expect 0 '/liburoce\.so$' run --no-files sh -c 'echo "$LD_PRELOAD"'
  expect 0 '^(uroce_|empty)' run sh -c 'cd /sys/class/infiniband && ls && echo empty'
  UROCE_IO=udp expect 0 '^udp$' run sh -c 'echo "$UROCE_IO"'
}
UROCE_IO=nonsense expect 2 'UROCE_IO: nonsense is none of' run true
for wrong in 0 -1 86401 10s; do expect 2 'is no number' run --patience "$wrong" true; done

cp /bin/true "$directory/sudo"
expect 126 '^uroce: .*/sudo does not let uroce through.*: sudo uroce run' run "$directory/sudo" ib_write_bw
if [[ $EUID -eq 0 ]]; then
  cp /bin/true "$directory/privileged"
  chown 65534 "$directory/privileged"
  chmod u+s "$directory/privileged"
  expect 126 '^uroce: .*/privileged gains privileges when started' run "$directory/privileged"
  # What gains privileges itself takes nothing from the environment of who starts it: neither settings nor descriptors.
  chmod 755 "$directory"
  for program in uroce uroced; do
    install --mode=4755 "$(dirname "$uroce")/$program" "$directory/$program"
  done
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@" 2>&1; }
  by_rights=$(UROCE_IO=nonsense setpriv --reuid=65534 --regid=65534 --clear-groups "$uroce" devices 2>&1)
  gained=$(UROCE_IO=nonsense as_nobody "$directory/uroce" devices)
  if [[ $by_rights != *'UROCE_IO: nonsense'* || $gained == *nonsense* ]]; then
    printf 'FAILED: UROCE_IO: %s\nset-user-ID: %s\n' "$by_rights" "$gained"
    failures=$((failures + 1))
  fi
  # shellcheck disable=SC2016  # expanded by the shell that becomes uroced
  started='LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" --socket /nonexistent/socket 3</dev/null'
  by_rights=$(as_nobody sh -c "$started" "$(dirname "$uroce")/uroced")
  gained=$(as_nobody sh -c "$started" "$directory/uroced")
  if [[ $by_rights != *LISTEN_FDS* || $gained != uroced:* || $gained == *LISTEN_FDS* ]]; then
    printf 'FAILED: LISTEN_FDS: %s\nset-user-ID: %s\n' "$by_rights" "$gained"
    failures=$((failures + 1))
  fi
fi

expect 127 '^uroce: no-such-command: command not found$' run no-such-command
expect 126 'not an executable file' run /etc/passwd
expect 2 "bad fault 'drop=lots'" run --faults drop=lots true
expect 1 "no usable netdev 'nosuch0'" run --netdev nosuch0 true

exit $((failures > 0))
