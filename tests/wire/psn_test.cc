// SPDX-License-Identifier: BSD-2-Clause
#include "wire/psn.h"

#include <gtest/gtest.h>

namespace uroce::wire {
namespace {

TEST(Psn, IsModulo2To24) {
  EXPECT_EQ(Psn(0x1000005), Psn(5));
  EXPECT_EQ(Psn(0xffffff) + 1, Psn(0));
  EXPECT_EQ(Psn(0) - 1, Psn(0xffffff));
  EXPECT_EQ(Psn(3) - 0x1000001, Psn(2));
  EXPECT_EQ(Psn(3) + 0xffffffff, Psn(2));
  EXPECT_EQ(Psn(), Psn(0));
  Psn psn(0xffffff);
  EXPECT_EQ((++psn).value(), 0u);
}

TEST(Psn, DistanceIsSignedAndCrossesTheWrap) {
  EXPECT_EQ(Psn::distance(Psn(5), Psn(5)), 0);
  EXPECT_EQ(Psn::distance(Psn(5), Psn(7)), 2);
  EXPECT_EQ(Psn::distance(Psn(7), Psn(5)), -2);
  EXPECT_EQ(Psn::distance(Psn(0xfffffe), Psn(1)), 3);
  EXPECT_EQ(Psn::distance(Psn(1), Psn(0xfffffe)), -3);
}

TEST(Psn, HalfTheNumberSpaceIsAheadAndHalfBehind) {
  for (const uint32_t base : {0u, 1u, 0x7fffffu, 0x800000u, 0xffffffu}) {
    const Psn from(base);
    EXPECT_EQ(Psn::distance(from, from + (kPsnHalf - 1)), (1 << 23) - 1);
    EXPECT_EQ(Psn::distance(from, from + kPsnHalf), -(1 << 23));
    EXPECT_TRUE(from.is_before(from + (kPsnHalf - 1)));
    EXPECT_TRUE(from.is_after(from + kPsnHalf));
    EXPECT_FALSE(from.is_before(from));
    EXPECT_FALSE(from.is_after(from));
  }
}

TEST(Psn, DistanceUndoesAddition) {
  for (uint32_t step = 0; step < 1u << 24; step += 4099) {
    const Psn from(0xabcdef - step * 7);
    EXPECT_EQ(from + static_cast<uint32_t>(Psn::distance(from, from + step)), from + step);
  }
}

TEST(Psn, OffsetsGoOnlyForward) {
  EXPECT_EQ(Psn(2).offset_from(Psn(0xfffffe)), 4u);
  EXPECT_EQ(Psn(7).offset_from(Psn(7)), 0u);
  EXPECT_EQ(Psn(6).offset_from(Psn(7)), 0xffffffu);
}

TEST(Msn, CountsModulo2To24) {
  Msn msn(0xfffffe);
  EXPECT_EQ((++msn).value(), 0xffffffu);
  EXPECT_EQ((++msn).value(), 0u);
  EXPECT_EQ(msn, Msn());
}

TEST(Qpn, Has24Bits) {
  EXPECT_EQ(Qpn(0xff000001).value(), 1u);
  EXPECT_EQ(Qpn(0xffffff), kMulticastQpn);
  EXPECT_FALSE(Qpn(1) == Qpn(2));
}

}  // namespace
}  // namespace uroce::wire
