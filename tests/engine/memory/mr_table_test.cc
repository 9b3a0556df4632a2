// SPDX-License-Identifier: BSD-2-Clause
// Keys, permissions and bounds of memory regions.
#include "engine/memory/mr_table.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

namespace uroce::memory {
namespace {

constexpr uint32_t kPd = 3;
constexpr uint64_t kIova = 0x1000;
constexpr uint64_t kLength = 100;

class MrTableTest : public testing::Test {
 protected:
  // Gives out `scripted` numbers first, then pseudo-random ones.
  MrTable table_{[this] {
    if (scripted_.empty()) return static_cast<uint32_t>(random_());
    const uint32_t next = scripted_.front();
    scripted_.pop_front();
    return next;
  }};
  MemoryRegion region(uint32_t access = kLocalWrite | kRemoteRead, uint32_t pd = kPd) {
    return {.base = bytes_, .iova = kIova, .length = kLength, .access = access, .pd = pd};
  }
  AccessResult result(uint32_t key, uint64_t va, uint64_t length, uint32_t required = 0, uint32_t pd = kPd) {
    return table_.translate_local(key, pd, va, length, required).result;
  }

  std::mt19937 random_{1};
  std::deque<uint32_t> scripted_;
  uint8_t bytes_[kLength] = {};
};

// --- translation -----------------------------------------------------------------------------------------------------

TEST_F(MrTableTest, TranslatesRelativeToTheIova) {
  const uint32_t key = table_.add(region());
  const Translation t = table_.translate_local(key, kPd, kIova + 7, 10, kLocalWrite);
  EXPECT_EQ(t.result, AccessResult::kOk);
  EXPECT_EQ(t.address, bytes_ + 7);
}

// faults.md 19: one byte before or after, and sums that overflow.
TEST_F(MrTableTest, Bounds) {
  const uint32_t key = table_.add(region());
  EXPECT_EQ(result(key, kIova, kLength), AccessResult::kOk);
  EXPECT_EQ(result(key, kIova + kLength - 1, 1), AccessResult::kOk);
  EXPECT_EQ(result(key, kIova - 1, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova - 1, kLength), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova, kLength + 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova + 1, kLength), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova + kLength, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, 0, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova, UINT64_MAX), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, kIova + 1, UINT64_MAX - kIova), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, UINT64_MAX, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, UINT64_MAX, kIova + 2), AccessResult::kOutOfBounds) << "va + length wraps into the region";
}

TEST_F(MrTableTest, RegionsAtBothEndsOfTheAddressSpace) {
  MemoryRegion low = region(), high = region();
  low.iova = 0;
  high.iova = UINT64_MAX - kLength + 1;
  const uint32_t low_key = table_.add(low), high_key = table_.add(high);
  EXPECT_EQ(result(low_key, 0, kLength), AccessResult::kOk);
  EXPECT_EQ(result(low_key, kLength, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(low_key, UINT64_MAX, 2), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(high_key, high.iova, kLength), AccessResult::kOk);
  EXPECT_EQ(result(high_key, UINT64_MAX, 1), AccessResult::kOk);
  EXPECT_EQ(result(high_key, UINT64_MAX, 2), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(high_key, high.iova - 1, 1), AccessResult::kOutOfBounds);
}

TEST_F(MrTableTest, EveryRequiredBitMustBeThere) {
  constexpr uint32_t kBits[] = {kLocalWrite, kRemoteWrite, kRemoteRead, kRemoteAtomic};
  for (const uint32_t granted : kBits) {
    const uint32_t key = table_.add(region(granted));
    EXPECT_EQ(result(key, kIova, 1, kLocalRead), AccessResult::kOk) << "local read is always allowed";
    for (const uint32_t required : kBits) {
      EXPECT_EQ(result(key, kIova, 1, required), required == granted ? AccessResult::kOk : AccessResult::kNoPermission);
      EXPECT_EQ(result(key, kIova, 1, required | granted),
                required == granted ? AccessResult::kOk : AccessResult::kNoPermission);
    }
  }
}

TEST_F(MrTableTest, ProtectionDomainMustBeTheRegions) {
  const uint32_t key = table_.add(region());
  EXPECT_EQ(result(key, kIova, 1, 0, kPd + 1), AccessResult::kWrongPd);
  EXPECT_EQ(result(key, kIova, 1, 0, 0), AccessResult::kWrongPd);
}

TEST_F(MrTableTest, UnknownKeys) {
  EXPECT_EQ(result(0, kIova, 1), AccessResult::kUnknownKey);
  EXPECT_EQ(result(1, kIova, 1), AccessResult::kUnknownKey);
  const uint32_t key = table_.add(region());
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_EQ(result(key ^ (1u << bit), kIova, 1), AccessResult::kUnknownKey) << "all 32 bits count";
  }
}

TEST_F(MrTableTest, RefusedTranslationGivesNoPointer) {
  const uint32_t key = table_.add(region());
  EXPECT_EQ(table_.translate_local(key + 1, kPd, kIova, 1, 0).address, nullptr);
  EXPECT_EQ(table_.translate_local(key, kPd + 1, kIova, 1, 0).address, nullptr);
  EXPECT_EQ(table_.translate_local(key, kPd, kIova, 1, kRemoteAtomic).address, nullptr);
  EXPECT_EQ(table_.translate_local(key, kPd, kIova - 1, 1, 0).address, nullptr);
}

// --- keys (faults.md "Security": full 32 bits from a CSPRNG, quarantined on reuse) -----------------------------

TEST_F(MrTableTest, KeysAreTheRandomSourcesAndNeverZeroOrTakenTwice) {
  scripted_ = {0, 0xcafe};
  EXPECT_EQ(table_.add(region()), 0xcafeu);
  scripted_ = {0xcafe, 0, 0xcafe, 0xffffffff};
  EXPECT_EQ(table_.add(region()), 0xffffffffu);
}

TEST_F(MrTableTest, RemovedKeysAreUnknownAndInQuarantine) {
  scripted_ = {0xcafe};
  const uint32_t key = table_.add(region());
  EXPECT_TRUE(table_.remove(key));
  EXPECT_FALSE(table_.remove(key));
  EXPECT_FALSE(table_.remove(0));
  EXPECT_EQ(result(key, kIova, 1), AccessResult::kUnknownKey);
  EXPECT_EQ(table_.size(), 0u);
  for (size_t i = 0; i + 1 < MrTable::kQuarantine; ++i) {
    scripted_ = {key};
    const uint32_t other = table_.add(region());
    ASSERT_NE(other, key) << "reused after " << i << " removals";
    table_.remove(other);
  }
}

// --- replacement -----------------------------------------------------------------------------------------------------

TEST_F(MrTableTest, ReplacementKeepsTheKeyAndChangesAllElse) {
  const uint32_t key = table_.add(region());
  MemoryRegion other = region(kRemoteWrite | kLocalWrite, kPd + 1);
  other.iova = 0x9000;
  other.base = bytes_ + 50;
  other.length = 50;
  EXPECT_TRUE(table_.replace(key, other));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(result(key, kIova, 1), AccessResult::kWrongPd);
  EXPECT_EQ(result(key, kIova, 1, 0, kPd + 1), AccessResult::kOutOfBounds);
  const Translation t = table_.translate_remote(key, kPd + 1, 0, 0x9000 + 49, 1, kRemoteWrite);
  EXPECT_EQ(t.result, AccessResult::kOk);
  EXPECT_EQ(t.address, bytes_ + 99);
  EXPECT_FALSE(table_.replace(key ^ 1, other));
}

// --- null regions and the whole address space ------------------------------------------------------------------------

TEST_F(MrTableTest, NullRegionsReadAsZeroesAndForgetWhatIsWritten) {
  const uint32_t key = table_.add({.length = UINT64_MAX, .access = kLocalWrite, .pd = kPd, .null = true});
  constexpr uint64_t kAnywhere = 0xdeadbeef'00000001;
  const Translation out = table_.translate_local(key, kPd, kAnywhere, MrTable::kMaxPiece, kLocalRead);
  ASSERT_EQ(out.result, AccessResult::kOk);
  const Translation in = table_.translate_local(key, kPd, kAnywhere, MrTable::kMaxPiece, kLocalWrite);
  ASSERT_EQ(in.result, AccessResult::kOk);
  std::memset(in.address, 0xff, MrTable::kMaxPiece);
  EXPECT_TRUE(std::all_of(out.address, out.address + MrTable::kMaxPiece, [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(result(key, UINT64_MAX, 1), AccessResult::kOk);
  EXPECT_EQ(result(key, 0, MrTable::kMaxPiece + 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, 0, 1, 0, kPd + 1), AccessResult::kWrongPd);
  for (const uint32_t right : {kRemoteRead, kRemoteWrite, kRemoteAtomic}) {
    EXPECT_EQ(table_.translate_remote(key, kPd, 0, 0, 1, right).result, AccessResult::kNoPermission);
  }
}

TEST_F(MrTableTest, TheWholeAddressSpaceIsARegion) {
  const uint32_t key = table_.add({.length = UINT64_MAX, .access = kLocalWrite, .pd = kPd});
  const auto address = reinterpret_cast<uint64_t>(bytes_);
  EXPECT_EQ(table_.translate_local(key, kPd, address + 3, 7, kLocalWrite).address, bytes_ + 3);
  EXPECT_EQ(result(key, 1, 1), AccessResult::kOk) << "the access will fault, and be caught";
  EXPECT_EQ(result(key, 0, 1), AccessResult::kOutOfBounds) << "a null pointer";
  EXPECT_EQ(result(key, UINT64_MAX - 1, 1), AccessResult::kOk);
  EXPECT_EQ(result(key, UINT64_MAX, 1), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(key, UINT64_MAX - 1, 2), AccessResult::kOutOfBounds);
}

// --- the hash table --------------------------------------------------------------------------------------------------

// Neighbours in one probe sequence survive each other's removal, also around the end of a segment (16 slots here).
TEST_F(MrTableTest, CollidingKeysSurviveRemovalInEveryOrder) {
  for (const uint32_t home : {5u, 14u, 15u}) {
    std::vector<uint32_t> keys;
    for (uint32_t i = 0; i < 6; ++i) keys.push_back(home + 16 * (i + 1));                    // same home
    for (uint32_t i = 0; i < 3; ++i) keys.push_back(((home + 1 + i) & 15) + 16 * (20 + i));  // displaced neighbours
    for (size_t victim = 0; victim < keys.size(); ++victim) {
      MrTable table([&, i = size_t{0}]() mutable { return keys[i++]; });
      for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(table.add(region()), keys[i]);
      ASSERT_TRUE(table.remove(keys[victim]));
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_EQ(table.find(keys[i]) != nullptr, i != victim) << keys[i] << " after the removal of " << keys[victim];
      }
    }
  }
}

// Keys of one segment (their upper bits are equal) through all its sizes, while it grows and shrinks.
TEST_F(MrTableTest, ASegmentThatGrowsKeepsItsEntries) {
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < 5000; ++i) {
    scripted_ = {0x12400000 + (i * 2654435761u >> 10)};  // a bijection of i to 22 bits, scattered
    keys.push_back(table_.add(region()));
    ASSERT_EQ(keys.back() >> 22, 0x12400000u >> 22);
  }
  for (size_t i = 0; i < keys.size(); i += 2) ASSERT_TRUE(table_.remove(keys[i]));
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(table_.find(keys[i]) != nullptr, i % 2 == 1) << i;
  EXPECT_EQ(table_.size(), 2500u);
}

TEST_F(MrTableTest, AgreesWithAMapUnderRandomUse) {
  std::map<uint32_t, uint64_t> model;
  std::mt19937 random(7);
  for (int step = 0; step < 20000; ++step) {
    if (model.size() < 10 || random() % (model.size() > 2000 ? 3 : 2) == 0) {
      MemoryRegion mr = region();
      mr.iova = random();
      model[table_.add(mr)] = mr.iova;
    } else {
      const auto victim =
          std::next(model.begin(), static_cast<ptrdiff_t>(random() % std::min<size_t>(model.size(), 50)));
      ASSERT_TRUE(table_.remove(victim->first));
      model.erase(victim);
    }
    ASSERT_EQ(table_.size(), model.size());
  }
  for (const auto& [key, iova] : model) {
    const MemoryRegion* mr = table_.find(key);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(mr->iova, iova);
    ASSERT_EQ(mr->key, key);
  }
}

}  // namespace
}  // namespace uroce::memory
