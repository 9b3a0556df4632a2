// Keys, permissions and bounds of memory regions.
#include "engine/memory/mr_table.h"

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

// --- keys (faults.md, Security: full 32 bits from a CSPRNG, quarantined on reuse) ------------------------------------

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

// --- invalidation (IBTA 9.4.1.1.3) -----------------------------------------------------------------------------------

TEST_F(MrTableTest, InvalidationEndsAnInvalidatableRegionOnce) {
  MemoryRegion window = region();
  window.invalidatable = true;
  const uint32_t key = table_.add(window);
  EXPECT_FALSE(table_.invalidate(key, kPd + 1, 1)) << "another protection domain";
  EXPECT_EQ(result(key, kIova, 1), AccessResult::kOk);
  EXPECT_TRUE(table_.invalidate(key, kPd, 1));
  EXPECT_EQ(result(key, kIova, 1), AccessResult::kInvalidated);
  EXPECT_FALSE(table_.invalidate(key, kPd, 1));
  EXPECT_TRUE(table_.remove(key));
  EXPECT_FALSE(table_.invalidate(key, kPd, 1));
}

TEST_F(MrTableTest, PlainRegionsCannotBeInvalidated) {
  const uint32_t key = table_.add(region());
  EXPECT_FALSE(table_.invalidate(key, kPd, 1));
  EXPECT_EQ(result(key, kIova, 1), AccessResult::kOk);
}

// --- the hash table --------------------------------------------------------------------------------------------------

// Neighbours in one probe sequence survive each other's removal, also around the end of the table.
TEST_F(MrTableTest, CollidingKeysSurviveRemovalInEveryOrder) {
  for (const uint32_t home : {5u, 62u, 63u}) {
    std::vector<uint32_t> keys;
    for (uint32_t i = 0; i < 6; ++i) keys.push_back(home + 64 * (i + 1));                    // same home
    for (uint32_t i = 0; i < 3; ++i) keys.push_back(((home + 1 + i) & 63) + 64 * (20 + i));  // displaced neighbours
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
