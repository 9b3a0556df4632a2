// SPDX-License-Identifier: BSD-2-Clause
// The completion queue: order, capacity, arming, purging, and one producer with consumers in other threads.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "engine/queue/completion_burst.h"

namespace uroce::queue {
namespace {

using Arm = CompletionQueue::Arm;

class CountingNotifier final : public CompletionNotifier {
 public:
  virtual ~CountingNotifier() = default;
  void on_completion(CompletionQueue&) override { ++count; }
  int count = 0;
};

Cqe cqe(uint64_t wr_id, uint32_t qpn = 1) {
  Cqe c;
  c.wr_id = wr_id;
  c.qpn = qpn;
  return c;
}

std::vector<uint64_t> take(CompletionQueue& cq, uint32_t limit = UINT32_MAX) {
  std::vector<uint64_t> ids;
  const uint32_t count = cq.poll(limit, [&](const Cqe& c) { ids.push_back(c.wr_id); });
  EXPECT_EQ(count, ids.size());
  return ids;
}

bool append(CompletionBurst& burst, CompletionQueue& cq, const Cqe& completion) {
  CompletionQueue::Mark last{};
  return burst.append(cq, completion, last);
}

using Ids = std::vector<uint64_t>;

TEST(CompletionQueue, CapacityIsAtLeastWhatWasAskedFor) {
  for (const uint32_t capacity : {0u, 1u, 2u, 3u, 100u, 128u}) {
    CompletionQueue cq(capacity, nullptr);
    EXPECT_GE(cq.capacity(), capacity);
    for (uint32_t i = 0; i < cq.capacity(); ++i) ASSERT_TRUE(cq.push(cqe(i)));
    EXPECT_FALSE(cq.overrun());
  }
}

// What an application's allocator gives: as much as was asked for and no more; the sanitizer watches its end.
TEST(CompletionQueue, LiesInTheMemoryGivenUntilItIsResized) {
  for (const uint32_t capacity : {1u, 2u, 5u, 64u}) {
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::malloc(CompletionQueue::bytes(capacity))), std::free);
    CompletionQueue cq(capacity, nullptr, CompletionQueue::Overrun::kFail, memory.get());
    for (uint32_t i = 0; i < 3 * cq.capacity(); ++i) {
      ASSERT_TRUE(cq.push(cqe(i)));
      EXPECT_EQ(take(cq), std::vector<uint64_t>{i});
    }
    for (uint32_t i = 0; i < cq.capacity(); ++i) ASSERT_TRUE(cq.push(cqe(i)));
    EXPECT_FALSE(cq.push(cqe(99)));
    const uint32_t before = cq.capacity();
    CompletionQueue::Ring ring = CompletionQueue::make_ring(200);
    ASSERT_TRUE(cq.resize(200, ring));
    EXPECT_EQ(take(cq).size(), before);
  }
}

TEST(CompletionQueue, FirstInFirstOutUpToTheLimit) {
  CompletionQueue cq(8, nullptr);
  EXPECT_TRUE(cq.empty());
  EXPECT_EQ(take(cq), Ids{});
  for (uint64_t id = 1; id <= 5; ++id) cq.push(cqe(id));
  EXPECT_FALSE(cq.empty());
  EXPECT_EQ(take(cq, 0), Ids{});
  EXPECT_EQ(take(cq, 2), (Ids{1, 2}));
  EXPECT_EQ(take(cq, 10), (Ids{3, 4, 5}));
  EXPECT_TRUE(cq.empty());
}

TEST(CompletionQueue, AllFieldsArrive) {
  CompletionQueue cq(2, nullptr);
  Cqe in;
  in.wr_id = 1;
  in.timestamp = 2;
  in.qpn = 3;
  in.source_qpn = 4;
  in.byte_length = 5;
  in.immediate_or_rkey = 6;
  in.vendor_error = 7;
  in.status = WcStatus::kRetryExceeded;
  in.opcode = WcOpcode::kFetchAdd;
  in.flags = kWcWithImmediate;
  in.solicited = true;
  cq.push(in);
  cq.poll(1, [&](const Cqe& out) {
    EXPECT_EQ(out.wr_id, 1u);
    EXPECT_EQ(out.timestamp, 2u);
    EXPECT_EQ(out.qpn, 3u);
    EXPECT_EQ(out.source_qpn, 4u);
    EXPECT_EQ(out.byte_length, 5u);
    EXPECT_EQ(out.immediate_or_rkey, 6u);
    EXPECT_EQ(out.vendor_error, 7u);
    EXPECT_EQ(out.status, WcStatus::kRetryExceeded);
    EXPECT_EQ(out.opcode, WcOpcode::kFetchAdd);
    EXPECT_EQ(out.flags, kWcWithImmediate);
    EXPECT_TRUE(out.solicited);
  });
}

// IBTA 11.6.3.1: what does not fit is lost and reported; what is there stays.
TEST(CompletionQueue, OverrunLosesTheNewOneAndIsRemembered) {
  CompletionQueue cq(4, nullptr);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(cq.push(cqe(id)));
  EXPECT_FALSE(cq.overrun());
  EXPECT_FALSE(cq.push(cqe(5)));
  EXPECT_TRUE(cq.overrun());
  EXPECT_EQ(take(cq), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(cq.push(cqe(6)));
  EXPECT_EQ(take(cq), (Ids{6}));
  EXPECT_TRUE(cq.overrun());
}

TEST(CompletionQueue, WrapsAroundManyTimes) {
  CompletionQueue cq(4, nullptr);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(cq.push(cqe(in++)));
    for (const uint64_t id : take(cq)) ASSERT_EQ(id, out++);
  }
}

// A lock would make the thread that polls wait for itself.
TEST(CompletionQueue, OfOneConsumerHasNoLock) {
  CompletionQueue cq(4, nullptr, CompletionQueue::Overrun::kFail, nullptr, CompletionQueue::Consumers::kOne);
  ASSERT_TRUE(cq.push(cqe(1)));
  EXPECT_EQ(cq.poll(1, [&](const Cqe&) { EXPECT_EQ(cq.poll(0, [](const Cqe&) {}), 0u); }), 1u);
  EXPECT_TRUE(cq.empty());
}

// --- bursts
// -----------------------------------------------------------------------------------------------------------

TEST(CompletionBurst, ShowsEachQueueAllItsCompletionsAtOnce) {
  CompletionQueue a(8, nullptr), b(8, nullptr), c(8, nullptr);
  CompletionBurst burst;
  for (int round = 0; round < 5; ++round) {
    for (uint64_t id = 0; id < 3; ++id) {
      for (CompletionQueue* cq : {&a, &b}) ASSERT_TRUE(append(burst, *cq, cqe(id)));
    }
    for (CompletionQueue* cq : {&a, &b, &c}) EXPECT_TRUE(cq->empty());
    burst.publish();
    for (CompletionQueue* cq : {&a, &b}) EXPECT_EQ(take(*cq), (Ids{0, 1, 2}));
    EXPECT_TRUE(c.empty());
  }
}

TEST(CompletionBurst, KeepsNobodyWaitingWhoArmedTheQueue) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  CompletionBurst burst;
  append(burst, cq, cqe(1));
  cq.arm(Arm::kAny);  // finds nothing
  EXPECT_FALSE(cq.has_missed());
  append(burst, cq, cqe(2));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_EQ(take(cq), (Ids{1, 2}));
  append(burst, cq, cqe(3));
  EXPECT_TRUE(cq.empty());
  cq.arm(Arm::kAny);
  EXPECT_EQ(notifier.count, 1);
  burst.publish();
  EXPECT_EQ(notifier.count, 2) << "armed before it was published";
  EXPECT_EQ(take(cq), (Ids{3}));
}

// One event tells of the first that is due; of what was published with it, who arms the queue again is told at once.
TEST(CompletionBurst, TellsOfTheFirstAndLeavesTheOthersToTheNextArming) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  CompletionBurst burst;
  for (uint64_t id = 1; id <= 3; ++id) append(burst, cq, cqe(id));
  cq.arm(Arm::kAny);
  burst.publish();
  EXPECT_EQ(notifier.count, 1);
  EXPECT_FALSE(cq.armed());
  EXPECT_TRUE(cq.has_missed());
  cq.arm(Arm::kAny);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 2);
  EXPECT_FALSE(cq.has_missed());
}

// Whoever waits is told although nothing has come: of an armed queue, once.
TEST(CompletionQueue, ReportsEarlyWhileItIsArmed) {
  for (const Arm arm : {Arm::kAny, Arm::kSolicited}) {
    CountingNotifier notifier;
    CompletionQueue cq(8, &notifier);
    cq.report_early();
    EXPECT_EQ(notifier.count, 0);
    cq.arm(arm);
    cq.report_early();
    cq.report_early();
    EXPECT_EQ(notifier.count, 1);
    EXPECT_FALSE(cq.armed());
    EXPECT_TRUE(cq.empty());
    CompletionBurst burst;
    append(burst, cq, cqe(1));
    burst.publish();
    EXPECT_EQ(notifier.count, 1);
    cq.arm(Arm::kAny);
    EXPECT_TRUE(cq.has_missed()) << "what came after it is told of";
  }
}

TEST(CompletionBurst, FullQueueIsFullWhetherPublishedOrNot) {
  for (const auto overrun : {CompletionQueue::Overrun::kFail, CompletionQueue::Overrun::kOverwrite}) {
    const bool overwrites = overrun == CompletionQueue::Overrun::kOverwrite;
    CompletionQueue cq(4, nullptr, overrun);
    CompletionBurst burst;
    for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(append(burst, cq, cqe(id)));
    for (uint64_t id = 5; id <= 10; ++id) EXPECT_EQ(append(burst, cq, cqe(id)), overwrites);
    EXPECT_EQ(cq.overrun(), !overwrites);
    EXPECT_EQ(take(cq, 8), (overwrites ? Ids{7, 8, 9} : Ids{})) << "to make room, the others have been published";
    burst.publish();
    EXPECT_EQ(take(cq), (overwrites ? Ids{10} : Ids{1, 2, 3, 4}));
  }
}

// What goes away or moves need not be published before: what stays is published by it.
TEST(CompletionBurst, PurgesAndResizesWhatIsNotPublished) {
  CompletionQueue cq(8, nullptr);
  CompletionBurst burst;
  for (uint64_t id = 1; id <= 6; ++id) append(burst, cq, cqe(id, id % 2 == 0 ? 7 : 8));
  cq.purge(7);
  EXPECT_EQ(take(cq, 8), (Ids{1, 3, 5}));
  append(burst, cq, cqe(9, 8));
  CompletionQueue::Ring ring = CompletionQueue::make_ring(4);
  ASSERT_TRUE(cq.resize(4, ring));
  EXPECT_EQ(take(cq, 8), (Ids{9}));
  burst.publish();
  EXPECT_TRUE(cq.empty());
}

// --- arming (IBTA 11.4.2.2) ------------------------------------------------------------------------------------------

TEST(CompletionQueue, UnarmedQueueNotifiesNobody) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  Cqe solicited = cqe(1);
  solicited.solicited = true;
  cq.push(solicited);
  EXPECT_EQ(notifier.count, 0);
  EXPECT_FALSE(cq.armed());
}

TEST(CompletionQueue, ArmedForAnyNotifiesOnceForTheNextCompletion) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  cq.push(cqe(1));  // before arming: not the next one
  cq.arm(Arm::kAny);
  EXPECT_TRUE(cq.armed());
  EXPECT_EQ(notifier.count, 0);
  cq.push(cqe(2));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_FALSE(cq.armed());
  cq.push(cqe(3));
  EXPECT_EQ(notifier.count, 1);
  cq.arm(Arm::kAny);
  cq.push(cqe(4));
  EXPECT_EQ(notifier.count, 2);
}

TEST(CompletionQueue, ArmedForSolicitedWaitsForSolicitedOrError) {
  CountingNotifier notifier;
  CompletionQueue cq(16, &notifier);
  cq.arm(Arm::kSolicited);
  cq.push(cqe(1));
  EXPECT_EQ(notifier.count, 0);
  EXPECT_TRUE(cq.armed());
  Cqe solicited = cqe(2);
  solicited.solicited = true;
  cq.push(solicited);
  EXPECT_EQ(notifier.count, 1);

  // wire.md: error CQEs count as solicited.
  cq.arm(Arm::kSolicited);
  Cqe failed = cqe(3);
  failed.status = WcStatus::kFlushError;
  cq.push(failed);
  EXPECT_EQ(notifier.count, 2);
  EXPECT_FALSE(cq.armed());
}

// As with ConnectX: what came while nobody was asked to tell is told when somebody asks, if it has not been polled.
TEST(CompletionQueue, WhatCameUnarmedIsReportedOnce) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  cq.push(cqe(1));
  EXPECT_TRUE(cq.has_missed());
  cq.report_missed();  // not armed
  EXPECT_EQ(notifier.count, 0);
  cq.arm(Arm::kAny);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 1);
  EXPECT_FALSE(cq.armed());

  // Not polled, but the application knows of it.
  EXPECT_FALSE(cq.has_missed());
  cq.arm(Arm::kAny);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 1);
  cq.push(cqe(2));
  EXPECT_EQ(notifier.count, 2);
  EXPECT_FALSE(cq.has_missed());

  cq.push(cqe(3));
  EXPECT_TRUE(cq.has_missed());
  EXPECT_EQ(cq.poll(8, [](const Cqe&) {}), 3u);
  EXPECT_FALSE(cq.has_missed());
  cq.arm(Arm::kAny);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 2);
}

TEST(CompletionQueue, OnlyWhatTheQueueIsArmedForIsReportedAfterwards) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  cq.push(cqe(1));
  cq.arm(Arm::kSolicited);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 0);
  EXPECT_TRUE(cq.armed());
  Cqe solicited = cqe(2);
  solicited.solicited = true;
  cq.push(solicited);
  EXPECT_EQ(notifier.count, 1);
  cq.push(solicited);
  cq.arm(Arm::kSolicited);
  cq.report_missed();
  EXPECT_EQ(notifier.count, 2);
}

// IBTA 11.4.2.2: a request for any completion overrides one for solicited, not the reverse.
TEST(CompletionQueue, StrongerArmWins) {
  for (const bool any_first : {false, true}) {
    CountingNotifier notifier;
    CompletionQueue cq(8, &notifier);
    cq.arm(any_first ? Arm::kAny : Arm::kSolicited);
    cq.arm(any_first ? Arm::kSolicited : Arm::kAny);
    cq.push(cqe(1));
    EXPECT_EQ(notifier.count, 1);
  }
}

TEST(CompletionQueue, ArmingTwiceNotifiesOnce) {
  CountingNotifier notifier;
  CompletionQueue cq(8, &notifier);
  cq.arm(Arm::kAny);
  cq.arm(Arm::kAny);
  cq.push(cqe(1));
  cq.push(cqe(2));
  EXPECT_EQ(notifier.count, 1);
}

TEST(CompletionQueue, WithoutNotifierArmingIsHarmless) {
  CompletionQueue cq(8, nullptr);
  cq.arm(Arm::kAny);
  EXPECT_TRUE(cq.push(cqe(1)));
  EXPECT_FALSE(cq.armed());
}

// --- purging ---------------------------------------------------------------------------------------------------------

TEST(CompletionQueue, PurgeRemovesOneQpsCompletionsAndKeepsTheOrderOfTheRest) {
  for (uint32_t start = 0; start < 8; ++start) {  // every place of the ring
    CompletionQueue cq(8, nullptr);
    for (uint32_t i = 0; i < start; ++i) cq.push(cqe(99));
    take(cq);
    for (uint64_t id = 0; id < 8; ++id) cq.push(cqe(id, id % 3 == 0 ? 7 : 8));
    cq.purge(7);
    EXPECT_TRUE(cq.push(cqe(100))) << "the room is free again";
    EXPECT_EQ(take(cq), (Ids{1, 2, 4, 5, 7, 100}));
  }
}

TEST(CompletionQueue, PurgeOfNothingAndOfEverything) {
  CompletionQueue cq(4, nullptr);
  cq.purge(1);
  for (uint64_t id = 1; id <= 3; ++id) cq.push(cqe(id));
  cq.purge(2);
  EXPECT_EQ(take(cq), (Ids{1, 2, 3}));
  for (uint64_t id = 1; id <= 4; ++id) cq.push(cqe(id));
  cq.purge(1);
  EXPECT_TRUE(cq.empty());
  EXPECT_EQ(take(cq), Ids{});
}

TEST(CompletionQueue, PurgeLooksNoFurtherThanTheLastOne) {
  CompletionQueue cq(8, nullptr);
  cq.push(cqe(1, 7));
  const CompletionQueue::Mark last = cq.mark();
  cq.push(cqe(2, 8));
  cq.push(cqe(3, 7));  // not of the one who says so
  cq.purge(7, last);
  EXPECT_EQ(take(cq), (Ids{2, 3}));
  cq.push(cqe(4, 7));
  cq.purge(7, last);
  EXPECT_EQ(take(cq), (Ids{4})) << "what the mark is of has been polled";
}

// Many QPs of which some go now and then, and their numbers to others, against a list that does the same the long way.
TEST(CompletionQueue, PurgeByMarksIsPurgeOfAll) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    CompletionQueue cq(64, nullptr);
    std::deque<std::pair<uint64_t, uint32_t>> expected;  // wr_id, qpn
    std::array<std::optional<CompletionQueue::Mark>, 6> marks;
    for (uint64_t id = 0; id < 2000; ++id) {
      const uint32_t qpn = below(marks.size());
      const uint32_t what = below(16);
      if (what < 9 && expected.size() < 64) {
        ASSERT_TRUE(cq.push(cqe(id, qpn)));
        marks[qpn] = cq.mark();
        expected.emplace_back(id, qpn);
      } else if (what < 14) {
        for (const uint64_t polled : take(cq, below(3))) {
          ASSERT_EQ(polled, expected.front().first);
          expected.pop_front();
        }
      } else {
        if (marks[qpn]) cq.purge(qpn, *marks[qpn]);
        marks[qpn].reset();
        std::erase_if(expected, [&](const auto& one) { return one.second == qpn; });
      }
    }
    Ids rest;
    for (const auto& [id, qpn] : expected) rest.push_back(id);
    ASSERT_EQ(take(cq), rest);
  }
}

// --- threads ---------------------------------------------------------------------------------------------------------

constexpr uint64_t kMany = 200'000;

void produce(CompletionQueue& cq) {
  for (uint64_t id = 0; id < kMany;) {
    if (cq.push(cqe(id))) {
      ++id;
    } else {
      std::this_thread::yield();
    }
  }
}

TEST(CompletionQueueThreads, OneProducerOneConsumer) {
  CompletionQueue cq(64, nullptr);
  std::thread producer([&] {
    CompletionBurst burst;
    for (uint64_t id = 0; id < kMany;) {
      const bool fits = append(burst, cq, cqe(id));
      if (fits) ++id;
      if (id % 5 == 0 || !fits) burst.publish();
      if (!fits) std::this_thread::yield();
    }
  });
  uint64_t expected = 0;
  bool in_order = true;
  while (expected < kMany) {
    if (cq.poll(16, [&](const Cqe& c) { in_order &= c.wr_id == expected++; }) == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_TRUE(in_order);
  EXPECT_TRUE(cq.empty());
}

// Every completion is taken exactly once, and each consumer sees increasing numbers.
TEST(CompletionQueueThreads, OneProducerTwoConsumers) {
  CompletionQueue cq(64, nullptr);
  std::vector<std::atomic<uint8_t>> seen(kMany);
  std::atomic<uint64_t> total{0};
  std::atomic<bool> in_order{true};
  const auto consume = [&] {
    uint64_t next = 0;
    while (total.load() < kMany) {
      const uint32_t n = cq.poll(7, [&](const Cqe& c) {
        if (c.wr_id < next) in_order = false;
        next = c.wr_id + 1;
        ++seen[c.wr_id];
      });
      if (n == 0) std::this_thread::yield();
      total += n;
    }
  };
  std::thread one(consume), two(consume);
  produce(cq);
  one.join();
  two.join();
  EXPECT_TRUE(in_order);
  for (const auto& count : seen) ASSERT_EQ(count, 1);
}

// Whoever overwrites takes the place of a consumer, whatever the application promised.
TEST(CompletionQueueThreads, OneConsumerAndAProducerThatOverwrites) {
  CompletionQueue cq(8, nullptr, CompletionQueue::Overrun::kOverwrite, nullptr, CompletionQueue::Consumers::kOne);
  std::atomic<bool> done{false};
  std::thread producer([&] {
    for (uint64_t id = 1; id <= kMany; ++id) cq.push(cqe(id));
    done = true;
  });
  uint64_t last = 0;
  bool in_order = true;
  const auto poll = [&] {
    return cq.poll(3, [&](const Cqe& c) { in_order &= c.wr_id > std::exchange(last, c.wr_id); });
  };
  while (!done) poll();
  while (poll() != 0) {
  }
  producer.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(last, kMany);
}

// The promise of arm(): arm, poll until empty, sleep: no completion is slept through. A lost wake-up hangs the
// consumer, which the time limit of acquire turns into a failure.
TEST(CompletionQueueThreads, NoWakeUpIsLost) {
  class Waker final : public CompletionNotifier {
   public:
    virtual ~Waker() = default;
    void on_completion(CompletionQueue&) override { semaphore.release(); }
    std::counting_semaphore<> semaphore{0};
  };
  constexpr uint64_t kRounds = 20'000;
  Waker waker;
  CompletionQueue cq(64, &waker);
  std::atomic<uint64_t> taken{0};
  std::thread producer([&] {
    CompletionBurst burst;
    for (uint64_t id = 0; id < kRounds; ++id) {
      append(burst, cq, cqe(id));
      if (id % 3 == 0 || id + 1 == kRounds) burst.publish();
      while (taken.load() + 4 < id) std::this_thread::yield();  // a few at a time, so that the consumer often sleeps
    }
  });
  const auto poll = [&] { taken += cq.poll(16, [](const Cqe&) {}); };
  bool lost = false;
  while (taken < kRounds && !lost) {
    poll();
    if (taken == kRounds) break;
    cq.arm(Arm::kAny);
    if (!cq.empty()) continue;
    lost = !waker.semaphore.try_acquire_for(std::chrono::seconds(30));
  }
  taken = kRounds;  // frees the producer also after a failure
  producer.join();
  EXPECT_FALSE(lost);
}

// Several shards fill one queue while a consumer polls: nothing is lost, and each finds its own completions behind the
// last that it pushed. Fails below ThreadSanitizer where they do not lock each other out.
TEST(CompletionQueueThreads, ShardsFillItTogether) {
  constexpr uint64_t kEach = 20000;
  constexpr uint32_t kProducers = 3;
  CompletionQueue cq(1u << 16, nullptr);
  for (uint32_t shard = 0; shard < kProducers; ++shard) cq.add_shard(shard);
  ASSERT_TRUE(cq.shared());
  EXPECT_EQ(cq.home(), 0u);
  std::vector<std::thread> producers;
  std::array<CompletionQueue::Mark, kProducers> last{};
  for (uint32_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&cq, &last, p] {
      CompletionBurst burst;
      for (uint64_t id = 0; id < kEach;) {
        if (burst.append(cq, cqe(id, p), last[p])) {
          ++id;
        } else {
          std::this_thread::yield();
        }
      }
      burst.publish();
    });
  }
  std::array<uint64_t, kProducers> next{};
  uint64_t taken = 0;
  while (taken < (kProducers - 1) * kEach) {
    taken += cq.poll(64, [&](const Cqe& c) { ASSERT_EQ(c.wr_id, next[c.qpn]++); });
  }
  for (std::thread& producer : producers) producer.join();
  std::array<uint64_t, kProducers> left{};
  for (uint32_t p = 0; p < kProducers; ++p) left[p] = kEach - next[p];
  cq.purge(1, last[1]);
  uint64_t rest = 0;
  cq.poll(UINT32_MAX, [&](const Cqe& c) {
    EXPECT_NE(c.qpn, 1u);
    ++rest;
  });
  EXPECT_EQ(rest, left[0] + left[2]);
}

}  // namespace
}  // namespace uroce::queue
