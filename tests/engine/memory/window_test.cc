// SPDX-License-Identifier: BSD-2-Clause
// Memory windows: what may be bound, who may use it, how it ends (IBTA 10.6.7, wire.md "Memory windows").
#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "engine/memory/mr_table.h"

namespace uroce::memory {
namespace {

constexpr uint32_t kPd = 3, kQpn = 0x101, kOtherQpn = 0x201;  // of one chain in the table
constexpr uint64_t kIova = 0x1000, kLength = 100;
constexpr uint32_t kAllRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr auto kBoth = {WindowType::kType1, WindowType::kType2};

class WindowTest : public testing::Test {
 protected:
  uint32_t add_region(uint32_t access = kLocalWrite | kMwBind, uint32_t pd = kPd) {
    return table_.add({.base = bytes_, .iova = kIova, .length = kLength, .access = access, .pd = pd});
  }
  // Of all of the region, with all rights, under the window's next key.
  static WindowBinding binding(uint32_t window, uint32_t region) {
    return {.window_key = window,
            .new_key = next(window),
            .region_key = region,
            .address = kIova,
            .length = kLength,
            .access = kAllRemote,
            .pd = kPd,
            .qpn = kQpn};
  }
  // As ibv_inc_rkey().
  static uint32_t next(uint32_t key) { return (key & ~0xffu) | ((key + 1) & 0xff); }
  uint32_t add_bound(WindowType type, uint32_t region) {
    const uint32_t window = table_.add_window(type, kPd);
    EXPECT_TRUE(table_.bind(binding(window, region)));
    return next(window);
  }
  AccessResult result(uint32_t key, uint64_t va = kIova, uint64_t length = 1, uint32_t required = kRemoteRead,
                      uint32_t pd = kPd, uint32_t qpn = kQpn) {
    return table_.translate_remote(key, pd, qpn, va, length, required).result;
  }

  std::mt19937 random_{1};
  std::deque<uint32_t> scripted_;
  MrTable table_{[this] {
    if (scripted_.empty()) return static_cast<uint32_t>(random_());
    const uint32_t number = scripted_.front();
    scripted_.pop_front();
    return number;
  }};
  uint8_t bytes_[kLength] = {};
};

// --- access ----------------------------------------------------------------------------------------------------------

TEST_F(WindowTest, OpensItsPartOfTheRegionToThePeer) {
  for (const WindowType type : kBoth) {
    const uint32_t window = table_.add_window(type, kPd);
    EXPECT_EQ(result(window), AccessResult::kInvalidated) << "not bound yet";
    WindowBinding part = binding(window, add_region());
    part.address = kIova + 10;
    part.length = 20;
    ASSERT_TRUE(table_.bind(part));
    const uint32_t key = part.new_key;
    const Translation t = table_.translate_remote(key, kPd, kQpn, kIova + 12, 18, kRemoteWrite);
    ASSERT_EQ(t.result, AccessResult::kOk);
    EXPECT_EQ(t.address, bytes_ + 12);
    EXPECT_EQ(result(key, kIova + 10, 20), AccessResult::kOk);
    EXPECT_EQ(result(key, kIova + 9), AccessResult::kOutOfBounds);
    EXPECT_EQ(result(key, kIova + 30), AccessResult::kOutOfBounds);
    EXPECT_EQ(result(key, kIova + 10, 21), AccessResult::kOutOfBounds);
    EXPECT_EQ(result(key, kIova + 10, UINT64_MAX), AccessResult::kOutOfBounds);
    EXPECT_EQ(result(key, kIova + 10, 1, kRemoteRead, kPd + 1), AccessResult::kWrongPd);
    EXPECT_EQ(result(window, kIova + 10), AccessResult::kInvalidated) << "the key before";
    EXPECT_EQ(result(key ^ 0x100, kIova + 10), AccessResult::kUnknownKey);
  }
}

TEST_F(WindowTest, IsNeverALocalKey) {
  for (const WindowType type : kBoth) {
    const uint32_t key = add_bound(type, add_region());
    EXPECT_EQ(table_.translate_local(key, kPd, kIova, 1, kLocalRead).result, AccessResult::kUnknownKey);
    EXPECT_EQ(table_.find(key), nullptr);
  }
}

TEST_F(WindowTest, GrantsOnlyItsRights) {
  constexpr uint32_t kRights[] = {kRemoteWrite, kRemoteRead, kRemoteAtomic, kFlushGlobal};
  const uint32_t region = add_region(kLocalWrite | kMwBind | kAllRemote | kFlushGlobal);
  for (const uint32_t granted : kRights) {
    WindowBinding one = binding(table_.add_window(WindowType::kType2, kPd), region);
    one.access = granted;
    ASSERT_TRUE(table_.bind(one));
    for (const uint32_t required : kRights) {
      EXPECT_EQ(result(one.new_key, kIova, 1, required),
                required == granted ? AccessResult::kOk : AccessResult::kNoPermission);
    }
  }
}

TEST_F(WindowTest, Type2IsForThePeerOfItsQp) {
  const uint32_t region = add_region();
  const uint32_t type1 = add_bound(WindowType::kType1, region), type2 = add_bound(WindowType::kType2, region);
  EXPECT_EQ(result(type1, kIova, 1, kRemoteRead, kPd, kOtherQpn), AccessResult::kOk);
  EXPECT_EQ(result(type2, kIova, 1, kRemoteRead, kPd, kOtherQpn), AccessResult::kWrongQp);
  EXPECT_EQ(result(type2), AccessResult::kOk);
}

// FLUSH of a whole region names no range.
TEST_F(WindowTest, TheWholeOfAKeyIsCheckedWithoutARange) {
  const uint32_t region = add_region(kLocalWrite | kMwBind | kFlushGlobal);
  const auto check = [&](uint32_t key, uint32_t required, uint32_t pd = kPd, uint32_t qpn = kQpn) {
    return table_.check_remote(key, pd, qpn, required);
  };
  EXPECT_EQ(check(region, kFlushGlobal), AccessResult::kOk);
  EXPECT_EQ(check(region, kRemoteRead), AccessResult::kNoPermission);
  EXPECT_EQ(check(region, kFlushGlobal, kPd + 1), AccessResult::kWrongPd);
  const uint32_t window = add_bound(WindowType::kType2, region);
  EXPECT_EQ(check(window, kRemoteRead), AccessResult::kOk);
  EXPECT_EQ(check(window, kFlushGlobal), AccessResult::kNoPermission);
  EXPECT_EQ(check(window, kRemoteRead, kPd + 1), AccessResult::kWrongPd);
  EXPECT_EQ(check(window, kRemoteRead, kPd, kOtherQpn), AccessResult::kWrongQp);
  EXPECT_EQ(check(window ^ 1, kRemoteRead), AccessResult::kInvalidated);
  EXPECT_EQ(check(0x12345678, kRemoteRead), AccessResult::kUnknownKey);
}

TEST_F(WindowTest, ZeroBasedIsForType2) {
  const uint32_t region = add_region();
  WindowBinding zero_based = binding(table_.add_window(WindowType::kType2, kPd), region);
  zero_based.access |= kZeroBased;
  zero_based.address = kIova + 40;
  zero_based.length = 10;
  ASSERT_TRUE(table_.bind(zero_based));
  EXPECT_EQ(table_.translate_remote(zero_based.new_key, kPd, kQpn, 3, 7, kRemoteRead).address, bytes_ + 43);
  EXPECT_EQ(result(zero_based.new_key, 0, 11), AccessResult::kOutOfBounds);
  EXPECT_EQ(result(zero_based.new_key, kIova + 40), AccessResult::kOutOfBounds);

  WindowBinding type1 = binding(table_.add_window(WindowType::kType1, kPd), region);
  type1.access |= kZeroBased;
  EXPECT_FALSE(table_.bind(type1));
}

// --- what may be bound -----------------------------------------------------------------------------------------------

TEST_F(WindowTest, RefusesWhatTheRulesForbidAndStaysAsItWas) {
  for (const WindowType type : kBoth) {
    SCOPED_TRACE(static_cast<int>(type));
    const uint32_t region = add_region();
    const uint32_t no_bind = add_region(kLocalWrite | kAllRemote);
    const uint32_t read_only = add_region(kMwBind);
    const uint32_t foreign = add_region(kLocalWrite | kMwBind, kPd + 1);
    const uint32_t null = table_.add({.length = UINT64_MAX, .access = kLocalWrite | kMwBind, .pd = kPd, .null = true});
    const uint32_t window = table_.add_window(type, kPd);
    const auto refused = [&](auto&& change) {
      WindowBinding b = binding(window, region);
      change(b);
      const bool bound = table_.bind(b);
      EXPECT_NE(result(b.new_key), AccessResult::kOk);
      return !bound && table_.find_window(window)->key == window;
    };
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = no_bind; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = foreign; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = null; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = region ^ 1; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = window; })) << "a window of a window";
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.region_key = read_only; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) {
      b.region_key = read_only;
      b.access = kRemoteAtomic;
    }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.pd = kPd + 1; })) << "the QP's";
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.address = kIova - 1; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.length = kLength + 1; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.length = UINT64_MAX; }));
    EXPECT_TRUE(refused([&](WindowBinding& b) { b.new_key ^= 0x100; })) << "another window's name";
    EXPECT_TRUE(refused([&](WindowBinding& b) {
      b.region_key = foreign;
      b.pd = kPd + 1;
    })) << "the window's";
    WindowBinding unknown = binding(window ^ 0x100, region);
    EXPECT_FALSE(table_.bind(unknown));

    for (const uint32_t key : {region, no_bind, read_only, foreign}) EXPECT_EQ(table_.find(key)->windows, 0u);
    WindowBinding reads = binding(window, read_only);
    reads.access = kRemoteRead;
    EXPECT_TRUE(table_.bind(reads)) << "reading needs no local write";
  }
}

TEST_F(WindowTest, Type1IsBoundAnewAtAnyTimeAndUnboundByLengthZero) {
  const uint32_t first = add_region(), second = add_region();
  const uint32_t window = table_.add_window(WindowType::kType1, kPd);
  ASSERT_TRUE(table_.bind(binding(window, first)));
  const uint32_t before = next(window);
  ASSERT_TRUE(table_.bind(binding(before, second)));
  EXPECT_EQ(result(before), AccessResult::kInvalidated);
  EXPECT_EQ(result(next(before)), AccessResult::kOk);
  EXPECT_EQ(table_.find(first)->windows, 0u);
  EXPECT_EQ(table_.find(second)->windows, 1u);
  // A failed bind leaves the binding.
  WindowBinding bad = binding(next(before), 0);
  EXPECT_FALSE(table_.bind(bad));
  EXPECT_EQ(result(next(before)), AccessResult::kOk);
  // The verbs call names the key that it expects; a bind of another QP may have come between.
  WindowBinding unbind = binding(window, 0);
  unbind.length = 0;
  unbind.new_key = window ^ 0x55;
  EXPECT_TRUE(table_.bind(unbind));
  EXPECT_EQ(result(next(before)), AccessResult::kInvalidated);
  EXPECT_EQ(result(unbind.new_key), AccessResult::kInvalidated);
  EXPECT_EQ(table_.find(second)->windows, 0u);
  EXPECT_TRUE(table_.bind(unbind)) << "what is unbound can be unbound";
  unbind.pd = kPd + 1;
  EXPECT_FALSE(table_.bind(unbind)) << "but not by a QP of another protection domain";
}

TEST_F(WindowTest, Type2IsBoundOnlyWhenFreeAndNotForNothing) {
  const uint32_t region = add_region();
  const uint32_t window = table_.add_window(WindowType::kType2, kPd);
  WindowBinding nothing = binding(window, region);
  nothing.length = 0;
  EXPECT_FALSE(table_.bind(nothing));
  ASSERT_TRUE(table_.bind(binding(window, region)));
  const uint32_t key = next(window);
  EXPECT_FALSE(table_.bind(binding(key, region)));
  EXPECT_EQ(result(key), AccessResult::kOk);
  nothing = binding(key, region);
  nothing.length = 0;
  EXPECT_FALSE(table_.bind(nothing));
  ASSERT_TRUE(table_.invalidate(key, kPd, kQpn));
  EXPECT_TRUE(table_.bind(binding(key, region)));
  EXPECT_EQ(result(next(key)), AccessResult::kOk);
}

// --- the end ---------------------------------------------------------------------------------------------------------

TEST_F(WindowTest, InvalidationIsForBoundType2WindowsOfThisQp) {
  const uint32_t region = add_region();
  const uint32_t type1 = add_bound(WindowType::kType1, region), key = add_bound(WindowType::kType2, region);
  EXPECT_FALSE(table_.invalidate(type1, kPd, kQpn));
  EXPECT_FALSE(table_.invalidate(region, kPd, kQpn));
  EXPECT_FALSE(table_.invalidate(0, kPd, kQpn));
  EXPECT_FALSE(table_.invalidate(key, kPd + 1, kQpn));
  EXPECT_FALSE(table_.invalidate(key, kPd, kOtherQpn));
  EXPECT_FALSE(table_.invalidate(key ^ 1, kPd, kQpn)) << "another key of the same window";
  EXPECT_EQ(result(key), AccessResult::kOk);
  EXPECT_TRUE(table_.invalidate(key, kPd, kQpn));
  EXPECT_EQ(result(key), AccessResult::kInvalidated);
  EXPECT_FALSE(table_.invalidate(key, kPd, kQpn)) << "not bound any more";
  EXPECT_EQ(table_.find(region)->windows, 1u) << "the type 1 window";
  EXPECT_EQ(result(region), AccessResult::kNoPermission) << "the region itself is untouched";
}

TEST_F(WindowTest, RegionsWithWindowsStay) {
  for (const WindowType type : kBoth) {
    const uint32_t region = add_region();
    const uint32_t window = add_bound(type, region), second = add_bound(type, region);
    EXPECT_FALSE(table_.remove(region));
    EXPECT_FALSE(table_.replace(region, {.base = bytes_, .length = 1, .pd = kPd}));
    EXPECT_EQ(result(window), AccessResult::kOk);
    EXPECT_TRUE(table_.remove_window(window));
    EXPECT_FALSE(table_.remove(region)) << "the second window";
    EXPECT_TRUE(table_.remove_window(second ^ 7)) << "any key of the window names it";
    EXPECT_TRUE(table_.remove(region));
    EXPECT_EQ(result(window), AccessResult::kUnknownKey);
    EXPECT_FALSE(table_.remove_window(window));
    EXPECT_EQ(table_.window_count(), 0u);
  }
}

TEST_F(WindowTest, TheEndOfAQpUnbindsItsType2Windows) {
  const uint32_t region = add_region();
  std::vector<uint32_t> ours, others;
  for (int i = 0; i < 10; ++i) {
    ours.push_back(add_bound(WindowType::kType2, region));
    WindowBinding b = binding(table_.add_window(WindowType::kType2, kPd), region);
    b.qpn = kOtherQpn;
    ASSERT_TRUE(table_.bind(b));
    others.push_back(b.new_key);
  }
  const uint32_t type1 = add_bound(WindowType::kType1, region);
  table_.forget_qp(kQpn);
  for (const uint32_t key : ours) EXPECT_EQ(result(key), AccessResult::kInvalidated);
  for (const uint32_t key : others) EXPECT_EQ(result(key, kIova, 1, kRemoteRead, kPd, kOtherQpn), AccessResult::kOk);
  EXPECT_EQ(result(type1), AccessResult::kOk);
  EXPECT_EQ(table_.find(region)->windows, 11u);
  EXPECT_TRUE(table_.bind(binding(ours[0], region))) << "free again";
  table_.forget_qp(kQpn);
  table_.forget_qp(kQpn);
  table_.forget_qp(kOtherQpn);
  EXPECT_EQ(table_.find(region)->windows, 1u);
}

// --- keys ------------------------------------------------------------------------------------------------------------

TEST_F(WindowTest, RegionsAndWindowsShareNoUpper24Bits) {
  scripted_ = {0xaabbcc10};
  const uint32_t region = add_region();
  scripted_ = {0x00000042, 0xaabbcc99, 0x11223344};
  EXPECT_EQ(table_.add_window(WindowType::kType1, kPd), 0x11223344u) << "neither 0 nor the region's neighbour";
  scripted_ = {0x112233ff, 0x55555555};
  EXPECT_EQ(add_region(), 0x55555555u) << "one of the window's keys";
  scripted_ = {0x11223300, 0x66666666};
  EXPECT_EQ(table_.add_window(WindowType::kType2, kPd), 0x66666666u) << "one of the other window's keys";
  ASSERT_TRUE(table_.remove(region));
  scripted_ = {0xaabbcc10, 0xaabbcc77, 0x77777777};
  EXPECT_EQ(table_.add_window(WindowType::kType2, kPd), 0x77777777u) << "lately a region's";
  ASSERT_TRUE(table_.remove_window(0x77777777));
  scripted_ = {0x77777701, 0x88888888};
  EXPECT_EQ(table_.add_window(WindowType::kType2, kPd), 0x88888888u) << "lately a window's";
}

// --- against a model -------------------------------------------------------------------------------------------------

TEST_F(WindowTest, AgreesWithAModelUnderRandomUse) {
  struct Model {
    WindowType type;
    uint32_t key;
    bool bound;
    uint32_t qpn, region;
  };
  std::vector<uint32_t> regions;
  for (int i = 0; i < 5; ++i) regions.push_back(add_region());
  std::vector<Model> windows;
  std::mt19937 random(3);
  for (int step = 0; step < 30000; ++step) {
    const uint32_t qpn = 0x100 + random() % 3 * 256;
    if (windows.size() < 20 || random() % 50 == 0) {
      const auto type = random() % 2 ? WindowType::kType1 : WindowType::kType2;
      windows.push_back({type, table_.add_window(type, kPd), false, 0, 0});
    }
    Model& w = windows[random() % windows.size()];
    switch (random() % 8) {
      case 0: {
        table_.forget_qp(qpn);
        for (Model& m : windows) m.bound = m.bound && !(m.type == WindowType::kType2 && m.qpn == qpn);
        break;
      }
      case 1:
        if (windows.size() < 50) break;
        ASSERT_TRUE(table_.remove_window(w.key));
        w = windows.back();
        windows.pop_back();
        break;
      case 2:
      case 3: {
        const bool right = w.type == WindowType::kType2 && w.bound && w.qpn == qpn;
        ASSERT_EQ(table_.invalidate(w.key, kPd, qpn), right);
        if (right) w.bound = false;
        break;
      }
      default: {
        const uint32_t region = regions[random() % regions.size()];
        WindowBinding b = binding(w.key, region);
        b.qpn = qpn;
        b.length = random() % 4 ? kLength : 0;
        const bool right = w.type == WindowType::kType1 || (!w.bound && b.length != 0);
        ASSERT_EQ(table_.bind(b), right);
        if (right) w = {w.type, b.new_key, b.length != 0, qpn, region};
      }
    }
    for (const uint32_t region : regions) {
      const auto bound =
          std::count_if(windows.begin(), windows.end(), [&](const Model& m) { return m.bound && m.region == region; });
      ASSERT_EQ(table_.find(region)->windows, static_cast<uint32_t>(bound));
    }
  }
  for (const Model& m : windows) {
    EXPECT_EQ(result(m.key, kIova, 1, kRemoteRead, kPd, m.qpn),
              m.bound ? AccessResult::kOk : AccessResult::kInvalidated);
  }
}

}  // namespace
}  // namespace uroce::memory
