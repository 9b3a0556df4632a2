// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/fault_injector.h"

#include <algorithm>
#include <array>
#include <bit>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <sys/mman.h>

#include "base/clock.h"
#include "engine/io/memory_link.h"
#include "engine/memory/memory_access.h"
#include "tests/engine/io/stub_io.h"
#include "tests/engine/io/test_packet.h"
#include "wire/icrc.h"

namespace uroce::io::test {
namespace {

constexpr uint32_t kPackets = 20000;

// A link whose receiving or sending end makes faults.
struct Bench {
  std::unique_ptr<MemoryEnd> plain;
  std::unique_ptr<FaultInjector> faulty;

  explicit Bench(const FaultSpec& spec) {
    auto [a, b] = make_memory_link();
    plain = std::move(a);
    faulty = std::make_unique<FaultInjector>(std::move(b), spec);
  }
};

void send_some(PacketIo& io, uint32_t first_psn, uint32_t count) {
  TestBurst burst;
  for (uint32_t i = 0; i < count; ++i) burst.add(envelope_v4(), first_psn + i, 16);
  ASSERT_EQ(io.send(burst.packets()), count);
  io.flush();
}

// Calls `see` for every packet until the receiver has found nothing for longer than anything is held back.
template <class See>
void receive_all(PacketIo& io, See see) {
  std::array<RxPacket, 16> received;
  for (int idle = 0; idle <= FaultInjector::kIdlePolls; ++idle) {
    const size_t count = io.receive(received);
    for (size_t i = 0; i < count; ++i) see(received[i]);
    if (count > 0) idle = 0;
  }
}

// Sends kPackets from one end to the other; the PSNs in the order of arrival.
std::vector<uint32_t> run(PacketIo& from, PacketIo& to) {
  std::vector<uint32_t> psns;
  std::array<RxPacket, 16> received;
  for (uint32_t psn = 0; psn < kPackets; psn += 20) {
    send_some(from, psn, 20);
    for (int poll = 0; poll < 3; ++poll) {
      const size_t count = to.receive(received);
      for (size_t i = 0; i < count; ++i) psns.push_back(psn_of(received[i]));
    }
  }
  receive_all(to, [&](const RxPacket& packet) { psns.push_back(psn_of(packet)); });
  return psns;
}

TEST(FaultInjector, PassesOnLooks) {
  auto inner = std::make_unique<StubIo>(3, 2000);
  StubIo& stub = *inner;
  FaultInjector io(std::move(inner), {});
  expect_passes_on_looks(io, stub);
}

TEST(FaultInjector, WithoutFaultsEverythingPassesInOrder) {
  Bench bench({});
  const std::vector<uint32_t> psns = run(*bench.plain, *bench.faulty);
  ASSERT_EQ(psns.size(), kPackets);
  EXPECT_TRUE(std::is_sorted(psns.begin(), psns.end()));
}

TEST(FaultInjector, DropsTheGivenShareOfReceivedPackets) {
  Bench bench({.drop = 0.1, .seed = 42});
  const std::vector<uint32_t> psns = run(*bench.plain, *bench.faulty);
  const uint64_t dropped = bench.faulty->fault_counters().rx_dropped;
  EXPECT_EQ(psns.size() + dropped, kPackets);
  EXPECT_NEAR(static_cast<double>(dropped), kPackets * 0.1, 200);  // 4.7 standard deviations
  EXPECT_TRUE(std::is_sorted(psns.begin(), psns.end()));
}

// A capture shows dropped packets among the others where they arrived.
TEST(FaultInjector, ShowsDroppedPacketsInTheOrderOfArrival) {
  Bench bench({.drop = 0.1, .seed = 42});
  std::vector<uint32_t> seen;
  bench.faulty->observe_dropped([&](const RxPacket& packet) {
    EXPECT_EQ(packet.faults, kFaultDropped);
    seen.push_back(psn_of(packet));
  });
  std::array<RxPacket, 16> received;
  for (uint32_t psn = 0; psn < 1000; psn += 20) {
    send_some(*bench.plain, psn, 20);
    while (const size_t count = bench.faulty->receive(received)) {
      for (size_t i = 0; i < count; ++i) seen.push_back(psn_of(received[i]));
    }
  }
  EXPECT_EQ(seen.size(), 1000);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(bench.faulty->fault_counters().rx_dropped, 50);
}

TEST(FaultInjector, DropsTheGivenShareOfSentPackets) {
  Bench bench({.drop = 0.1, .seed = 42});
  const std::vector<uint32_t> psns = run(*bench.faulty, *bench.plain);
  const uint64_t dropped = bench.faulty->fault_counters().tx_dropped;
  EXPECT_EQ(psns.size() + dropped, kPackets);
  EXPECT_NEAR(static_cast<double>(dropped), kPackets * 0.1, 200);
}

TEST(FaultInjector, DuplicatesOnReceiveAndOnSend) {
  for (const bool sending : {false, true}) {
    SCOPED_TRACE(sending ? "send" : "receive");
    Bench bench({.duplicate = 0.05, .seed = 3});
    const std::vector<uint32_t> psns = sending ? run(*bench.faulty, *bench.plain) : run(*bench.plain, *bench.faulty);
    std::map<uint32_t, int> times;
    for (const uint32_t psn : psns) ++times[psn];
    EXPECT_EQ(times.size(), kPackets);
    const auto twice = std::count_if(times.begin(), times.end(), [](const auto& entry) { return entry.second == 2; });
    const FaultCounters counters = bench.faulty->fault_counters();
    EXPECT_EQ(static_cast<uint64_t>(twice), sending ? counters.tx_duplicated : counters.rx_duplicated);
    EXPECT_NEAR(static_cast<double>(twice), kPackets * 0.05, 150);
  }
}

class EachWay : public testing::TestWithParam<bool> {
 protected:
  static bool sending() { return GetParam(); }
  static PacketIo& from(Bench& bench) { return sending() ? static_cast<PacketIo&>(*bench.faulty) : *bench.plain; }
  static PacketIo& to(Bench& bench) { return sending() ? static_cast<PacketIo&>(*bench.plain) : *bench.faulty; }
};
INSTANTIATE_TEST_SUITE_P(FaultInjector, EachWay, testing::Bool(),
                         [](const auto& which) { return which.param ? "Sending" : "Receiving"; });

TEST_P(EachWay, ReordersByAtMostEightPackets) {
  Bench bench({.reorder = 0.02, .seed = 9});
  std::vector<uint32_t> psns = run(from(bench), to(bench));
  // What was sent last may be held back until the sender has found nothing to receive for a while.
  receive_all(from(bench), [](const RxPacket&) { FAIL(); });
  from(bench).flush();
  receive_all(to(bench), [&](const RxPacket& packet) { psns.push_back(psn_of(packet)); });
  ASSERT_EQ(psns.size(), kPackets);
  uint64_t late = 0;
  uint32_t highest = 0;
  for (size_t i = 0; i < psns.size(); ++i) {
    if (psns[i] < highest) {
      ++late;
      // Overtaken by 8 that were not held back themselves; a few of those in between may have been.
      EXPECT_LE(highest - psns[i], 16u);
    }
    highest = std::max(highest, psns[i]);
  }
  const FaultCounters counters = bench.faulty->fault_counters();
  // A packet at the very end, or behind others that are held back as well, is not overtaken by anything.
  EXPECT_NEAR(static_cast<double>(late), static_cast<double>(sending() ? counters.tx_reordered : counters.rx_reordered),
              3);
  EXPECT_NEAR(static_cast<double>(late), kPackets * 0.02, 100);
}

TEST(FaultInjector, APacketHeldBackComesWhenNothingFollows) {
  Bench bench({.reorder = 1});
  send_some(*bench.plain, 5, 1);
  std::array<RxPacket, 4> received;
  ASSERT_EQ(bench.faulty->receive(received), 0u);
  EXPECT_FALSE(bench.faulty->prepare_to_wait()) << "would sleep on a packet";
  for (int poll = 1; poll < FaultInjector::kIdlePolls; ++poll) ASSERT_EQ(bench.faulty->receive(received), 0u);
  ASSERT_EQ(bench.faulty->receive(received), 1u);
  EXPECT_EQ(psn_of(received[0]), 5u);
  EXPECT_TRUE(bench.faulty->prepare_to_wait());
}

TEST(FaultInjector, APacketToSendHeldBackLeavesWhenNothingFollows) {
  Bench bench({.reorder = 1});
  send_some(*bench.faulty, 5, 1);
  EXPECT_FALSE(bench.faulty->prepare_to_wait()) << "would sleep on a packet";
  std::array<RxPacket, 4> received;
  for (int poll = 1; poll <= FaultInjector::kIdlePolls; ++poll) {
    ASSERT_EQ(bench.plain->receive(received), 0u);
    ASSERT_EQ(bench.faulty->receive(received), 0u);
    bench.faulty->flush();
  }
  ASSERT_EQ(bench.plain->receive(received), 1u);
  EXPECT_EQ(psn_of(received[0]), 5u);
  EXPECT_TRUE(bench.faulty->prepare_to_wait());
}

TEST(FaultInjector, ASentPacketIsCorruptedAsOnTheWire) {
  Bench bench({.corrupt = 0.3, .seed = 11});
  uint64_t flipped = 0;
  for (uint32_t psn = 0; psn < 1000; ++psn) {
    TestBurst burst;
    burst.add(envelope_v4(), psn, 61);  // and pad
    std::array<std::vector<std::vector<uint8_t>>, 2> frames;
    std::array<RxPacket, 2> received;
    bench.plain->record_sent(&frames[0]);
    ASSERT_EQ(bench.plain->send(burst.packets()), 1u);
    ASSERT_EQ(bench.faulty->send(burst.packets()), 1u);
    ASSERT_EQ(bench.plain->receive(received), 1u);
    const std::span<const uint8_t> right = std::span(frames[0][0]).subspan(42);
    ASSERT_EQ(received[0].ib.size(), right.size());
    int bits = 0;
    for (size_t i = 0; i < right.size(); ++i) bits += std::popcount(static_cast<uint8_t>(right[i] ^ received[0].ib[i]));
    ASSERT_LE(bits, 1);
    flipped += static_cast<uint64_t>(bits);
    ASSERT_EQ(bench.faulty->receive(received), 1u);
    bench.plain->record_sent(nullptr);
  }
  EXPECT_EQ(flipped, bench.faulty->fault_counters().tx_corrupted);
  EXPECT_NEAR(static_cast<double>(flipped), 300, 70);
}

TEST(FaultInjector, WhatCannotBeReadIsMarkedAndNotSent) {
  Bench bench({.drop = 0.01});
  ASSERT_EQ(memory::install_fault_handler(), 0);
  memory::keep_faults_unblocked(monotonic_now());  // as each round does; ThreadSanitizer blocks them in handlers
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TestBurst burst;
  burst.add(envelope_v4(), 1, 16);
  burst.packets()[0].fragments[0].data = static_cast<const uint8_t*>(page);
  EXPECT_EQ(bench.faulty->send(burst.packets()), 1u);
  EXPECT_TRUE(burst.packets()[0].unreadable);
  munmap(page, 4096);
  std::array<RxPacket, 1> received;
  EXPECT_EQ(bench.plain->receive(received), 0u);
}

TEST(FaultInjector, CorruptsOneBitOfTheInfiniBandPart) {
  Bench bench({.corrupt = 0.3, .seed = 11});
  uint64_t corrupted = 0;
  for (uint32_t psn = 0; psn < 1000; ++psn) {
    TestBurst burst;
    burst.add(envelope_v4(), psn, 64);
    std::vector<std::vector<uint8_t>> frames;
    bench.plain->record_sent(&frames);
    bench.plain->send(burst.packets());
    std::array<RxPacket, 2> received;
    ASSERT_EQ(bench.faulty->receive(received), 1u);
    const std::span<const uint8_t> sent = std::span(frames[0]).subspan(42);
    ASSERT_EQ(received[0].ib.size(), sent.size());
    int bits = 0;
    for (size_t i = 0; i < sent.size(); ++i) bits += std::popcount(static_cast<uint8_t>(sent[i] ^ received[0].ib[i]));
    EXPECT_LE(bits, 1);
    corrupted += static_cast<uint64_t>(bits);
  }
  EXPECT_EQ(corrupted, bench.faulty->fault_counters().rx_corrupted);
  EXPECT_NEAR(static_cast<double>(corrupted), 300, 70);
}

TEST(FaultInjector, TheSameSeedMakesTheSameFaults) {
  const FaultSpec spec{.drop = 0.05, .duplicate = 0.05, .reorder = 0.05, .seed = 77};
  Bench first(spec);
  Bench second(spec);
  EXPECT_EQ(run(*first.plain, *first.faulty), run(*second.plain, *second.faulty));
  FaultSpec other = spec;
  other.seed = 78;
  Bench third(other);
  Bench fourth(spec);
  EXPECT_NE(run(*third.plain, *third.faulty), run(*fourth.plain, *fourth.faulty));
}

TEST(FaultInjector, BackpressureOfTheInnerLinkIsPassedOn) {
  auto [a, b] = make_memory_link({.queue_capacity = 4});
  FaultInjector faulty(std::move(a), {.drop = 0.5, .seed = 2});
  TestBurst burst;
  for (uint32_t psn = 0; psn < 512; ++psn) burst.add(envelope_v4(), psn, 16);
  const size_t taken = faulty.send(burst.packets());
  EXPECT_LT(taken, burst.size());
  EXPECT_EQ(taken, 4 + FaultInjector::kBacklog + faulty.fault_counters().tx_dropped);
  std::array<RxPacket, 8> received;
  EXPECT_EQ(b->receive(received), 4u);
  EXPECT_EQ(b->receive(received), 0u);  // done with those
  faulty.flush();
  EXPECT_EQ(b->receive(received), 4u) << "what was taken goes on when there is room";
}

// A small `out` gives the rest of what is due with the next calls.
TEST(FaultInjector, ReceivesIntoASmallArray) {
  Bench bench({.duplicate = 1});
  send_some(*bench.plain, 0, 3);
  std::vector<uint32_t> psns;
  std::array<RxPacket, 1> received;
  for (int poll = 0; poll < 6; ++poll) {
    ASSERT_EQ(bench.faulty->receive(received), 1u);
    psns.push_back(psn_of(received[0]));
  }
  EXPECT_EQ(psns, (std::vector<uint32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(bench.faulty->receive(received), 0u);
}

TEST(FaultInjector, DescriptionNamesFaultsAndSeed) {
  Bench bench({.drop = 0.01, .corrupt = 0.001, .seed = 7});
  EXPECT_EQ(bench.faulty->description(), "memory link, faults drop=1%,corrupt=0.1%,seed=7");
}

}  // namespace
}  // namespace uroce::io::test
