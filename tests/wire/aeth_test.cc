// SPDX-License-Identifier: BSD-2-Clause
#include "wire/aeth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

using std::chrono::microseconds;

TEST(Aeth, GoldenBytes) {
  expect_on_wire<AethView>(Aeth::make_ack(kNoCreditsCode, Msn(0x123456)), "1f123456");
  expect_on_wire<AethView>(Aeth::make_ack(5, Msn(0)), "05000000");
  expect_on_wire<AethView>(Aeth::make_rnr_nak(12, Msn(0xffffff)), "2cffffff");
  expect_on_wire<AethView>(Aeth::make_nak(NakCode::kPsnSequenceError, Msn(1)), "60000001");
  expect_on_wire<AethView>(Aeth::make_nak(NakCode::kInvalidRequest, Msn(1)), "61000001");
  expect_on_wire<AethView>(Aeth::make_nak(NakCode::kRemoteAccessError, Msn(1)), "62000001");
  expect_on_wire<AethView>(Aeth::make_nak(NakCode::kRemoteOperationalError, Msn(1)), "63000001");
  expect_on_wire<AethView>(Aeth::make_nak(NakCode::kInvalidRdRequest, Msn(1)), "64000001");
}

TEST(Aeth, EverySyndromeHasAKindAndAValue) {
  for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
    const Aeth aeth{.syndrome = static_cast<uint8_t>(syndrome), .msn = Msn(0)};
    const AethKind expected = syndrome < 0x20                       ? AethKind::kAck
                              : syndrome < 0x40                     ? AethKind::kRnrNak
                              : syndrome >= 0x60 && syndrome < 0x80 ? AethKind::kNak
                                                                    : AethKind::kReserved;
    EXPECT_EQ(aeth.kind(), expected) << syndrome;
    EXPECT_EQ(aeth.value(), syndrome % 32);
  }
}

// Both tables grow by alternating factors of 3/2 and 4/3 from their fourth step on; written out they cannot follow an
// error in the tables.
TEST(Aeth, CreditCounts) {
  EXPECT_EQ(credit_count(0), 0u);
  EXPECT_EQ(credit_count(1), 1u);
  for (uint8_t code = 2; code <= 30; code += 2) EXPECT_EQ(credit_count(code), 1u << code / 2) << int{code};
  for (uint8_t code = 3; code <= 29; code += 2) EXPECT_EQ(credit_count(code), 3u << (code - 3) / 2) << int{code};
  EXPECT_EQ(credit_count(kNoCreditsCode), kNoCredits);
}

TEST(Aeth, CreditCodeNeverPromisesMoreThanThereIs) {
  for (uint32_t count = 0; count <= 40000; ++count) {
    const uint8_t code = credit_code_for(count);
    ASSERT_LE(code, 30);
    ASSERT_LE(credit_count(code), count);
    if (code < 30) {
      ASSERT_GT(credit_count(static_cast<uint8_t>(code + 1)), count);
    }
  }
  EXPECT_EQ(credit_code_for(0xffffffff), 30);
}

TEST(Aeth, RnrDelays) {
  EXPECT_EQ(rnr_delay(0), microseconds(655360));
  EXPECT_EQ(rnr_delay(1), microseconds(10));
  for (uint8_t code = 2; code <= 30; code += 2) EXPECT_EQ(rnr_delay(code), microseconds(10 << code / 2)) << int{code};
  for (uint8_t code = 3; code <= 31; code += 2) {
    EXPECT_EQ(rnr_delay(code), microseconds(30 << (code - 3) / 2)) << int{code};
  }
}

}  // namespace
}  // namespace uroce::wire
