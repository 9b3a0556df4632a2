#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Does rc_transfer find what it is there to find? Runs it over fake_verbs.cc without a fault, then with each fault that
# fake_fabric.cc can plant, then with wrong arguments.
# usage: detection_test.sh PATH_OF_rc_transfer_over_fake_verbs
set -u
tool=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failures=0

# expect CODE FAULT ARGUMENTS...: the exit code, and a message that names the seed unless all is well.
expect() {
  code=$1 fault=$2
  shift 2
  RC_TRANSFER_FAULT=$fault timeout 60 "$tool" "$@" >"$log" 2>&1
  actual=$?
  if [ $actual -eq "$code" ] && { [ "$code" -eq 0 ] || [ "$code" -eq 2 ] || grep -q 'seed .*repeat with' "$log"; }; then
    echo "ok    ${fault:-no fault}: $*"
  else
    echo "FAIL  ${fault:-no fault}: exit $actual, expected $code: $*"
    cat "$log"
    failures=$((failures + 1))
  fi
}

all=send,send_imm,send_inv,write,write_imm,read,cas,faa,inline,zero,multi-sge,fence
small="--max-size 5000 --seed 7 --timeout-s 2"
expect 0 '' --self $small
expect 0 '' --self $small --mix $all --bidirectional --qps 3 --unsignaled --events --rnr
expect 0 '' --self $small --mix $all --bidirectional --qps 2 --queue-depth 1 --unsignaled
for kind in send send_imm send_inv write write_imm read cas faa; do
  expect 0 '' --self $small --mix $kind --unsignaled
done

for fault in corrupt corrupt_read stray skipped_write shifted_write repeated_write late_inline repeated_add \
    skipped_swap duplicate_completion swapped_completions wrong_opcode wrong_qp_num wrong_wr_id error_status \
    wrong_read_length wrong_receive_length wrong_immediate missing_flag wrong_invalidated_rkey; do
  expect 1 $fault --self $small --messages 1000 --mix $all
done
expect 1 corrupt:200 --self $small --bidirectional --qps 2
expect 1 unsignaled_completion --self $small --unsignaled
expect 3 lost_completion:600 --self $small --messages 300 --mix send
expect 3 lost_event --self $small --events

expect 2 '' --server --self
expect 2 ''
expect 2 '' --self --mix send,teleport
expect 2 '' --self --mix inline,zero
expect 2 '' --self --mtu 1500
expect 2 '' --self --mtu 4096
expect 2 '' --self --queue-depth 0
expect 2 '' --self --messages -1
expect 2 '' --self --max-size 5000000000
expect 2 '' --self --device nobody
expect 2 '' --self --gid-index 256
expect 2 '' --client host.invalid
exit $((failures > 0))
