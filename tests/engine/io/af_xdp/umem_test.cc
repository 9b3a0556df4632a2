// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/af_xdp/umem.h"

#include <gtest/gtest.h>
#include <set>

namespace uroce::io::test {
namespace {

TEST(TxSlots, EverySlotIsHandedOutOnceAndComesBack) {
  TxSlots slots(8192, 4, 2048, 1);
  for (int round = 0; round < 3; ++round) {
    std::set<uint64_t> addresses;
    while (!slots.empty()) addresses.insert(slots.take(1));
    EXPECT_EQ(addresses, (std::set<uint64_t>{8192, 10240, 12288, 14336}));
    for (const uint64_t address : addresses) slots.complete(address);
    EXPECT_EQ(slots.available(), 4u);
  }
}

TEST(TxSlots, ASlotOfSeveralChunksIsFreeWhenAllAreCompleted) {
  TxSlots slots(0, 1, 4096, 2);
  const uint64_t address = slots.take(2);
  slots.complete(address + 4096);
  EXPECT_TRUE(slots.empty());
  slots.complete(address);
  EXPECT_EQ(slots.available(), 1u);
  slots.complete(slots.take(1));
  EXPECT_EQ(slots.available(), 1u);
}

// The kernel may hand back any address inside the chunk.
TEST(TxSlots, CompletionNamesAnAddressInsideTheChunk) {
  TxSlots slots(4096, 2, 4096, 1);
  const uint64_t first = slots.take(1);
  const uint64_t second = slots.take(1);
  slots.complete(second + 100);
  EXPECT_EQ(slots.take(1), second);
  slots.complete(first);
  EXPECT_EQ(slots.available(), 1u);
}

TEST(TxSlots, CompletionsOfWhatIsNotUnderWayAreRefused) {
  TxSlots slots(4096, 2, 4096, 1);
  EXPECT_FALSE(slots.complete(4096)) << "free";
  EXPECT_FALSE(slots.complete(0)) << "in front of the first";
  EXPECT_FALSE(slots.complete(3 * 4096)) << "behind the last";
  EXPECT_FALSE(slots.complete(UINT64_MAX));
  EXPECT_FALSE(slots.complete(4096 + (uint64_t{1} << 32) * 4096)) << "beyond 32 bits";
  const uint64_t address = slots.take(1);
  EXPECT_TRUE(slots.complete(address));
  EXPECT_FALSE(slots.complete(address)) << "twice";
  EXPECT_EQ(slots.available(), 2u);
}

TEST(UmemArea, IsWritableToTheLastByte) {
  UmemArea area;
  ASSERT_EQ(area.map(1 << 20), 0);
  *area.data(0) = 1;
  *area.data((1 << 20) - 1) = 2;
  EXPECT_EQ(area.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace uroce::io::test
