// SPDX-License-Identifier: BSD-2-Clause
#include "wire/bth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Bth, GoldenBytesOfRealPackets) {
  // The CNP and the UC SEND of wire.md "ICRC vectors".
  expect_on_wire<BthView>(Bth{.opcode = Opcode::kCnp, .becn = true, .dest_qp = Qpn(0x118), .psn = Psn(0)},
                          "8100ffff 40000118 00000000");
  expect_on_wire<BthView>(
      Bth{.opcode = Opcode::kUcSendOnly, .mig_req = true, .pad = 2, .dest_qp = Qpn(0xd3), .psn = Psn(0xcf1710)},
      "2460ffff 000000d3 00cf1710");
}

TEST(Bth, EveryFieldHasItsBits) {
  const Bth zero{.pkey = 0};
  expect_on_wire<BthView>(zero, "00000000 00000000 00000000");
  const auto with = [&](auto change) {
    Bth bth = zero;
    change(bth);
    return bth;
  };
  expect_on_wire<BthView>(with([](Bth& b) { b.opcode = Opcode::kRcSendOnlyInvalidate; }), "170000000000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.solicited = true; }), "008000000000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.mig_req = true; }), "004000000000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.pad = 3; }), "003000000000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.tver = 15; }), "000f00000000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.pkey = 0x8123; }), "000081230000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.fecn = true; }), "000000008000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.becn = true; }), "000000004000000000000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.dest_qp = Qpn(0x123456); }), "000000000012345600000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.ack_request = true; }), "000000000000000080000000");
  expect_on_wire<BthView>(with([](Bth& b) { b.psn = Psn(0xabcdef); }), "000000000000000000abcdef");
}

TEST(Bth, ReservedBitsAreIgnoredAndWrittenAsZero) {
  expect_all_ones_becomes<BthView, Bth>("ffffffff c0ffffff 80ffffff");
}

}  // namespace
}  // namespace uroce::wire
