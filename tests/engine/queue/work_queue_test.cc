// SPDX-License-Identifier: BSD-2-Clause
// The rings between application and engine: reserve, publish, fetch, release; and what a hostile application writes.
#include "engine/queue/work_queue.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace uroce::queue {
namespace {

SendWqe wqe(uint64_t wr_id) {
  SendWqe w{};
  w.wr_id = wr_id;
  w.opcode = WrOpcode::kSend;
  return w;
}

bool post(SendQueue& sq, uint64_t wr_id, const std::vector<Sge>& sges = {}) {
  SendQueue::Slot slot;
  if (!sq.reserve(0, slot)) return false;
  *slot.wqe = wqe(wr_id);
  slot.wqe->sge_count = static_cast<uint8_t>(sges.size());
  std::copy(sges.begin(), sges.end(), slot.sges);
  sq.publish(1);
  return true;
}

uint64_t fetch_one(SendQueue& sq) {
  const uint32_t index = sq.fetched();
  sq.fetch();
  return sq.entry(index).wqe.wr_id;
}

// Memory for a queue, as an application's allocator gives it: exactly as much as was asked for, full of rubbish. What
// lies behind it is watched here, and by the sanitizer.
class GivenMemory {
 public:
  explicit GivenMemory(size_t size)
      : size_(size), data_(static_cast<std::byte*>(std::aligned_alloc(SendQueue::kAlignment, size))) {
    std::memset(data_, 0xa5, size);
  }
  ~GivenMemory() { std::free(data_); }
  std::byte* data() const { return data_; }
  bool has(const void* place) const { return place >= data_ && place < data_ + size_; }

 private:
  const size_t size_;
  std::byte* const data_;
};

TEST(GivenMemory, HoldsTheSendQueueAndNothingBehindIt) {
  for (const uint32_t depth : {0u, 1u, 3u, 64u, 100u}) {
    for (const uint32_t sges : {0u, 1u, 3u, 100u}) {
      for (const uint32_t inline_bytes : {0u, 1u, 65u}) {
        GivenMemory memory(SendQueue::bytes(depth, sges, inline_bytes));
        SendQueue sq(depth, sges, inline_bytes, memory.data());
        SendQueue::Slot slot;
        for (uint32_t i = 0; i < 2 * sq.depth(); ++i) {
          ASSERT_TRUE(sq.reserve(0, slot));
          *slot.wqe = wqe(i);
          std::fill_n(slot.sges, sq.max_sge(), Sge{});
          std::memset(slot.inline_data, 0xff, sq.max_inline());
          ASSERT_TRUE(memory.has(slot.wqe) && memory.has(slot.sges));
          sq.publish(1);
          ASSERT_EQ(fetch_one(sq), i);
          sq.release();
        }
      }
    }
  }
}

TEST(GivenMemory, HoldsTheReceiveQueueUntilItIsResized) {
  for (const uint32_t depth : {0u, 1u, 3u, 64u}) {
    GivenMemory memory(ReceiveQueue::bytes(depth, 3));
    ReceiveQueue rq(depth, 3, memory.data());
    const std::vector<Sge> sges(3, Sge{1, 2, 3});
    for (uint32_t i = 0; i < rq.depth(); ++i) ASSERT_TRUE(rq.post(i, sges));
    ASSERT_TRUE(rq.resize(200));
    for (uint32_t i = 0; !rq.empty(); ++i) {
      ReceiveWqe taken;
      Sge taken_sges[kMaxSge];
      ASSERT_TRUE(rq.take(taken, taken_sges));
      EXPECT_EQ(taken.wr_id, i);
    }
  }
}

// --- SendQueue -------------------------------------------------------------------------------------------------------

TEST(SendQueue, HoldsExactlyItsDepth) {
  for (const uint32_t depth : {1u, 2u, 3u, 5u, 64u, 100u}) {
    SCOPED_TRACE(depth);
    SendQueue sq(depth, 1, 0);
    EXPECT_EQ(sq.depth(), depth);
    for (uint32_t i = 0; i < depth; ++i) ASSERT_TRUE(post(sq, i));
    EXPECT_FALSE(post(sq, 99));
    EXPECT_EQ(fetch_one(sq), 0u);
    EXPECT_FALSE(post(sq, 99)) << "fetched is not free yet";
    sq.release();
    EXPECT_TRUE(post(sq, 99));
    EXPECT_FALSE(post(sq, 99));
  }
}

TEST(SendQueue, DepthAndSgesAreAtLeastOneAndSgesAtMostTheLimit) {
  SendQueue sq(0, 0, 0);
  EXPECT_EQ(sq.depth(), 1u);
  EXPECT_EQ(sq.max_sge(), 1u);
  EXPECT_TRUE(post(sq, 1, {{1, 2, 3}}));
  EXPECT_EQ(SendQueue(1, 1000, 0).max_sge(), kMaxSge);
}

// A chain of work requests becomes visible as a whole.
TEST(SendQueue, ReservedSlotsAreInvisibleUntilPublished) {
  SendQueue sq(4, 1, 0);
  SendQueue::Slot slot;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(sq.reserve(i, slot));
    *slot.wqe = wqe(10 + i);
  }
  EXPECT_FALSE(sq.reserve(4, slot));
  EXPECT_EQ(sq.head(), sq.fetched());
  sq.publish(3);
  EXPECT_EQ(sq.head() - sq.fetched(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(fetch_one(sq), 10 + i);
  EXPECT_EQ(sq.head(), sq.fetched());
}

TEST(SendQueue, KeepsOrderAndContentAroundTheRing) {
  SendQueue sq(3, 2, 16);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 1000; ++round) {
    const uint32_t n = 1 + static_cast<uint32_t>(round % 3);
    for (uint32_t i = 0; i < n; ++i, ++in) {
      ASSERT_TRUE(post(sq, in, {{in, static_cast<uint32_t>(in), 5}, {in + 1, 1, 6}}));
    }
    for (uint32_t i = 0; i < n; ++i, ++out) {
      const uint32_t index = sq.fetched();
      ASSERT_EQ(index, sq.tail());
      ASSERT_EQ(fetch_one(sq), out);
      const SendQueue::Entry entry = sq.entry(index);
      ASSERT_EQ(entry.sges.size(), 2u);
      ASSERT_EQ(entry.sges[0].address, out);
      ASSERT_EQ(entry.sges[1].address, out + 1);
      ASSERT_EQ(entry.wqe.length, static_cast<uint32_t>(out) + 1);
      sq.release();
    }
  }
}

// What a request needs at least, and where its SGEs or its inline data share a place.
TEST(SendQueue, SlotsHoldWhatWasAskedForAndNoMore) {
  EXPECT_EQ(SendQueue::bytes(1, 1, 0), 64u);
  EXPECT_EQ(SendQueue::bytes(128, 1, 16), 128u * 64);
  EXPECT_EQ(SendQueue::bytes(128, 4, 0), 128u * 112);
  EXPECT_EQ(SendQueue::bytes(128, 4, 64), 128u * 112);
  EXPECT_EQ(SendQueue::bytes(128, 1, 65), 128u * 128);
}

TEST(SendQueue, RequestsForXrcNameTheirQueueBesideAllElse) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaWriteWithImmediate, WrOpcode::kSendWithInvalidate, WrOpcode::kRdmaRead,
                                WrOpcode::kCompareSwap, WrOpcode::kFetchAdd}) {
    SendWqe w = wqe(1);
    w.opcode = opcode;
    w.rkey = 2;
    const bool atomic = opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
    if (atomic) w.operands = {.compare_add = 3, .swap = 4};
    if (!atomic) w.immediate_or_rkey = 5;
    w.set_xrc_srqn(0xabcdef);
    EXPECT_EQ(w.xrc_srqn(), 0xabcdefu);
    EXPECT_EQ(w.rkey, 2u);
    if (atomic) {
      EXPECT_EQ(w.operands.compare_add, 3u);
      EXPECT_EQ(w.operands.swap, 4u);
    } else {
      EXPECT_EQ(w.immediate_or_rkey, 5u);
    }
  }
}

TEST(SendQueue, LengthIsTheSumOfTheSgesWhateverTheWqeSays) {
  SendQueue sq(4, 4, 0);
  SendQueue::Slot slot;
  ASSERT_TRUE(sq.reserve(0, slot));
  *slot.wqe = wqe(1);
  slot.wqe->length = 0xffffffff;
  slot.wqe->sge_count = 2;
  slot.sges[0] = {0, 10, 1};
  slot.sges[1] = {0, 20, 1};
  sq.publish(1);
  sq.fetch();
  EXPECT_EQ(sq.entry(0).wqe.length, 30u);
}

TEST(SendQueue, SumThatDoesNotFitIsTheLargestLength) {
  SendQueue sq(1, 4, 0);
  ASSERT_TRUE(post(sq, 1, {{0, 0xffffffff, 1}, {0, 0xffffffff, 1}, {0, 2, 1}}));
  sq.fetch();
  EXPECT_EQ(sq.entry(0).wqe.length, 0xffffffffu);
}

// faults.md 48, "Security". Run under AddressSanitizer.
TEST(SendQueue, HostileCountsAreCutToWhatTheQueueHolds) {
  SendQueue sq(1, 2, 8);
  SendQueue::Slot slot;
  ASSERT_TRUE(sq.reserve(0, slot));
  *slot.wqe = wqe(1);
  slot.wqe->sge_count = 255;
  slot.sges[0] = {0, 1, 1};
  slot.sges[1] = {0, 2, 1};
  sq.publish(1);
  EXPECT_EQ(sq.entry(0).sges.size(), 2u);
  EXPECT_EQ(sq.entry(0).wqe.length, 3u);
  sq.release();

  ASSERT_TRUE(sq.reserve(0, slot));
  *slot.wqe = wqe(2);
  slot.wqe->flags = kInline;
  slot.wqe->sge_count = 255;
  slot.wqe->length = 0xffffffff;
  std::memset(slot.inline_data, 0xab, 8);
  sq.publish(1);
  sq.fetch();
  const SendQueue::Entry entry = sq.entry(1);
  EXPECT_EQ(entry.wqe.length, 8u);
  EXPECT_TRUE(entry.sges.empty());
  EXPECT_EQ(entry.inline_data[7], 0xab);
}

TEST(SendQueue, InlineIntoAQueueWithoutRoomForItIsEmpty) {
  SendQueue sq(2, 1, 0);
  SendQueue::Slot slot;
  ASSERT_TRUE(sq.reserve(0, slot));
  *slot.wqe = wqe(1);
  slot.wqe->flags = kInline;
  slot.wqe->length = 4;
  sq.publish(1);
  sq.fetch();
  EXPECT_EQ(sq.entry(0).wqe.length, 0u);
}

TEST(SendQueue, InlineDataOfNeighboursDoesNotMix) {
  SendQueue sq(4, 1, 5);
  SendQueue::Slot slot;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(sq.reserve(i, slot));
    *slot.wqe = wqe(i);
    slot.wqe->flags = kInline;
    slot.wqe->length = 5;
    std::memset(slot.inline_data, static_cast<int>(i), 5);
  }
  sq.publish(4);
  for (uint32_t i = 0; i < 4; ++i) {
    sq.fetch();
    const SendQueue::Entry entry = sq.entry(i);
    EXPECT_EQ(std::vector<uint8_t>(entry.inline_data, entry.inline_data + 5),
              std::vector<uint8_t>(5, static_cast<uint8_t>(i)));
  }
}

TEST(SendQueue, FetchStartsWithFreshProgress) {
  SendQueue sq(1, 1, 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(post(sq, 1));
    const uint32_t index = sq.fetched();
    sq.fetch();
    SendProgress& progress = sq.entry(index).progress;
    EXPECT_FALSE(progress.started);
    EXPECT_EQ(progress.responses, 0u);
    progress = {.first_psn = 1, .psn_count = 2, .responses = 3, .started = true};
    sq.release();
  }
}

TEST(SendQueue, ResetDropsPostedAndFetched) {
  SendQueue sq(4, 1, 0);
  for (uint64_t id = 0; id < 4; ++id) post(sq, id);
  sq.fetch();
  sq.fetch();
  sq.reset();
  EXPECT_EQ(sq.tail(), sq.head());
  EXPECT_EQ(sq.fetched(), sq.head());
  for (uint64_t id = 10; id < 14; ++id) EXPECT_TRUE(post(sq, id));
  EXPECT_FALSE(post(sq, 14));
  EXPECT_EQ(fetch_one(sq), 10u);
}

// --- ReceiveQueue ----------------------------------------------------------------------------------------------------

TEST(ReceiveQueue, HoldsExactlyItsDepthAndGivesOldestFirst) {
  for (const uint32_t depth : {1u, 3u, 64u}) {
    ReceiveQueue rq(depth, 2);
    EXPECT_TRUE(rq.empty());
    for (uint32_t i = 0; i < depth; ++i) ASSERT_TRUE(rq.post(i, {}));
    EXPECT_FALSE(rq.post(99, {}));
    ReceiveWqe wqe;
    Sge sges[kMaxSge];
    ASSERT_TRUE(rq.take(wqe, sges));
    EXPECT_EQ(wqe.wr_id, 0u);
    EXPECT_TRUE(rq.post(99, {})) << "taken is free";
    for (uint32_t i = 1; i < depth; ++i) {
      ASSERT_TRUE(rq.take(wqe, sges));
      EXPECT_EQ(wqe.wr_id, i);
    }
    ASSERT_TRUE(rq.take(wqe, sges));
    EXPECT_EQ(wqe.wr_id, 99u);
    EXPECT_FALSE(rq.take(wqe, sges));
    EXPECT_TRUE(rq.empty());
  }
}

// A list of requests becomes visible as a whole.
TEST(ReceiveQueue, ReservedRequestsAreInvisibleUntilPublished) {
  ReceiveQueue rq(3, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    Sge* const sge = rq.reserve(i, i, 1);
    ASSERT_NE(sge, nullptr);
    *sge = {i, 1, 1};
  }
  EXPECT_EQ(rq.reserve(3, 3, 1), nullptr);
  EXPECT_TRUE(rq.empty());
  rq.publish(3);
  for (uint32_t i = 0; i < 3; ++i) {
    ReceiveWqe wqe;
    Sge sge;
    ASSERT_TRUE(rq.take(wqe, {&sge, 1}));
    EXPECT_EQ(wqe.wr_id, i);
    EXPECT_EQ(sge.address, i);
  }
}

TEST(ReceiveQueue, CopiesSgesAndSumsThem) {
  ReceiveQueue rq(2, 3);
  const std::vector<Sge> sges = {{1, 10, 2}, {3, 0, 4}, {5, 30, 6}};
  ASSERT_TRUE(rq.post(7, sges));
  ReceiveWqe wqe;
  Sge out[kMaxSge];
  ASSERT_TRUE(rq.take(wqe, out));
  EXPECT_EQ(wqe.sge_count, 3u);
  EXPECT_EQ(wqe.length, 40u);
  EXPECT_EQ(out[0].address, 1u);
  EXPECT_EQ(out[2].lkey, 6u);
}

TEST(ReceiveQueue, TooManySgesAreRefused) {
  ReceiveQueue rq(2, 2);
  EXPECT_FALSE(rq.post(1, std::vector<Sge>(3)));
  EXPECT_TRUE(rq.empty());
  EXPECT_TRUE(rq.post(1, std::vector<Sge>(2)));
  EXPECT_EQ(ReceiveQueue(1, 1000).max_sge(), kMaxSge) << "take() has room for no more";
}

TEST(ReceiveQueue, SumThatDoesNotFitIsTheLargestLength) {
  ReceiveQueue rq(1, 2);
  ASSERT_TRUE(rq.post(1, std::vector<Sge>{{0, 0xffffffff, 1}, {0, 0xffffffff, 1}}));
  ReceiveWqe wqe;
  Sge sges[kMaxSge];
  ASSERT_TRUE(rq.take(wqe, sges));
  EXPECT_EQ(wqe.length, 0xffffffffu);
}

TEST(ReceiveQueue, ResetDropsEverything) {
  ReceiveQueue rq(3, 1);
  for (uint64_t id = 0; id < 3; ++id) rq.post(id, {});
  rq.reset();
  EXPECT_TRUE(rq.empty());
  EXPECT_TRUE(rq.post(9, {}));
  ReceiveWqe wqe;
  Sge sges[kMaxSge];
  ASSERT_TRUE(rq.take(wqe, sges));
  EXPECT_EQ(wqe.wr_id, 9u);
}

// --- threads ---------------------------------------------------------------------------------------------------------

TEST(WorkQueueThreads, PosterAndEngineAgreeOnEverySendRequest) {
  constexpr uint64_t kMany = 100'000;
  SendQueue sq(8, 2, 0);
  std::thread poster([&] {
    for (uint64_t id = 0; id < kMany;) {
      if (post(sq, id, {{id, 1, 2}})) {
        ++id;
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool right = true;
  for (uint64_t id = 0; id < kMany;) {
    if (sq.head() == sq.fetched()) {
      std::this_thread::yield();
      continue;
    }
    const uint32_t index = sq.fetched();
    sq.fetch();
    const SendQueue::Entry entry = sq.entry(index);
    right &= entry.wqe.wr_id == id && entry.sges.size() == 1 && entry.sges[0].address == id;
    sq.release();
    ++id;
  }
  poster.join();
  EXPECT_TRUE(right);
}

TEST(WorkQueueThreads, PosterAndEngineAgreeOnEveryReceiveRequest) {
  constexpr uint64_t kMany = 100'000;
  ReceiveQueue rq(8, 2);
  std::thread poster([&] {
    for (uint64_t id = 0; id < kMany;) {
      const Sge sge{id, 1, 2};
      if (rq.post(id, {&sge, 1})) {
        ++id;
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool right = true;
  ReceiveWqe wqe;
  Sge sges[kMaxSge];
  for (uint64_t id = 0; id < kMany;) {
    if (!rq.take(wqe, sges)) {
      std::this_thread::yield();
      continue;
    }
    right &= wqe.wr_id == id && wqe.sge_count == 1 && sges[0].address == id;
    ++id;
  }
  poster.join();
  EXPECT_TRUE(right);
}

}  // namespace
}  // namespace uroce::queue
