// SPDX-License-Identifier: BSD-2-Clause
// Two processes of one host: which packets go from one to the other by memory, and what becomes of the rest.
#include "engine/io/same_host/same_host.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <poll.h>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/io/fault_injector.h"
#include "engine/memory/memory_access.h"
#include "tests/engine/io/same_host/same_host_rig.h"
#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::io::test {
namespace {

std::vector<uint8_t> payload_of(const RxPacket& received) {
  wire::Packet packet;
  const wire::ParseError error = received.apart.empty() ? wire::parse_packet(received.ib, packet)
                                                        : wire::parse_packet(received.ib, received.apart, packet);
  EXPECT_EQ(error, wire::ParseError::kNone);
  return {packet.payload.begin(), packet.payload.end()};
}

TEST_F(SameHostTest, PacketsGoByMemoryOnceTheProcessesHaveMet) {
  TestBurst burst;
  add(burst, 1, 0);
  add(burst, 2, 1);
  burst.add(envelope_v6(), 3, 4096, TxPacket::kMaxFragments);
  wire::store_be24(&burst.packets().back().header[5], kTheirs << kRangeBits);
  burst.packets().back().to_this_host = true;
  ASSERT_EQ(ours.io->send(burst.packets()), 3u);
  EXPECT_EQ(sent_by_network(), 3u);
  EXPECT_EQ(theirs.receive_some().size(), 3u);
  meet();
  ASSERT_EQ(ours.io->send(burst.packets()), 3u);
  EXPECT_EQ(sent_by_network(), 3u);
  const std::vector<RxPacket> arrived = theirs.receive_some();
  ASSERT_EQ(arrived.size(), 3u);
  for (size_t i = 0; i < arrived.size(); ++i) {
    EXPECT_TRUE(arrived[i].without_icrc);
    EXPECT_EQ(psn_of(arrived[i]), i + 1);
    EXPECT_EQ(payload_of(arrived[i]), burst.payload(i));
    EXPECT_EQ(arrived[i].envelope.source, burst.packets()[i].envelope->source);
    EXPECT_EQ(arrived[i].envelope.destination, burst.packets()[i].envelope->destination);
  }
  EXPECT_EQ(ours.io->counters().tx_packets, 6u);
  EXPECT_EQ(theirs.io->counters().rx_packets, 6u);
  EXPECT_EQ(ours.io->counters().tx_bytes, theirs.io->counters().rx_bytes);
}

TEST_F(SameHostTest, OnlyPacketsToThisHost) {
  meet();
  TestBurst burst = burst_of(3);
  burst.packets()[1].to_this_host = false;
  ASSERT_EQ(ours.io->send(burst.packets()), 3u);
  EXPECT_EQ(sent_by_network(), 1u);
  TestBurst to_others;
  add(to_others, 1, 8, kTheirs + 1);
  ours.io->send(to_others.packets());
  EXPECT_EQ(sent_by_network(), 2u);
  EXPECT_EQ(ours.asked, std::vector<uint32_t>{kTheirs + 1});
}

TEST_F(SameHostTest, AsksForAPeerLessAndLessOften) {
  TestBurst burst = burst_of(1);
  for (int i = 0; i < 100; ++i) {
    ours.io->send(burst.packets());
    theirs.receive(theirs.network);
  }
  EXPECT_EQ(ours.asked, std::vector<uint32_t>(7, kTheirs));
}

TEST_F(SameHostTest, BurstsLargerThanTheRing) {
  meet();
  TestBurst burst = burst_of(300, 4096);
  size_t sent = 0, arrived = 0;
  while (arrived < burst.size()) {
    sent += ours.io->send(burst.packets().subspan(sent, std::min<size_t>(128, burst.size() - sent)));
    for (const RxPacket& packet : theirs.receive()) {
      ASSERT_EQ(psn_of(packet), arrived);
      EXPECT_EQ(payload_of(packet), burst.payload(arrived));
      ++arrived;
    }
  }
  EXPECT_GT(ours.io->counters().tx_backpressure, 0u);
  EXPECT_EQ(ours.io->counters().tx_unread, 0u);
}

// It may have been stopped; others must not wait for it.
TEST_F(SameHostTest, WhatAPeerDoesNotReadIsLostInTheEnd) {
  meet();
  TestBurst burst = burst_of(300, 4096);
  size_t sent = ours.io->send(burst.packets());
  EXPECT_LT(sent, burst.size());
  test_time += std::chrono::milliseconds(9);
  EXPECT_EQ(ours.io->send(burst.packets().subspan(sent)), 0u) << "it may read yet";
  EXPECT_EQ(ours.io->counters().tx_unread, 0u);
  test_time += std::chrono::milliseconds(1);
  EXPECT_EQ(ours.io->send(burst.packets().subspan(sent)), burst.size() - sent);
  EXPECT_GT(ours.io->counters().tx_unread, 0u);
  EXPECT_EQ(theirs.receive().size(), 63u) << "what one receive() takes, in the order in which it was sent";
  ours.io->send(burst.packets().first(1));
  size_t rest = 0;
  while (const size_t count = theirs.receive().size()) rest += count;
  EXPECT_EQ(63 + rest, ours.io->counters().tx_packets);
}

TEST_F(SameHostTest, UnreadablePayloadIsLeftOut) {
  meet();
  void* const gone = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TestBurst burst = burst_of(3);
  burst.packets()[1].fragments[0].data = static_cast<const uint8_t*>(gone);
  ASSERT_EQ(memory::install_fault_handler(), 0);
  memory::keep_faults_unblocked(monotonic_now());  // as each round does; ThreadSanitizer blocks them in handlers
  ASSERT_EQ(ours.io->send(burst.packets()), 3u);
  EXPECT_FALSE(burst.packets()[0].unreadable);
  EXPECT_TRUE(burst.packets()[1].unreadable);
  const std::vector<RxPacket> arrived = theirs.receive_some();
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(psn_of(arrived[1]), 2u);
  munmap(gone, 4096);
}

// --- long packets, and payload that stays where it is ---------------------------------------------------------------

constexpr size_t kLong = 65536;

class LongPackets : public SameHostTest {
 protected:
  LongPackets() {
    for (uint32_t psn = 0; psn < 6; ++psn) add(burst, psn, kLong);
    for (TxPacket& packet : burst.packets()) packet.psns = kLong / 1024;
    add(burst, 6, 100);
  }
  void meet() {
    SameHostTest::meet();
    ours.receive();
    theirs.receive();
  }
  uint32_t allowed(uint32_t range = kTheirs) const { return ours.io->long_payload(wire::Qpn(range << kRangeBits)); }
  static void expect_payload(const RxPacket& packet, const std::vector<uint8_t>& payload) {
    EXPECT_TRUE(payload_of(packet) == payload);  // not printed
  }

  TestBurst burst;  // six long ones and a short one
};

TEST_F(LongPackets, ArriveWithTheirPsns) {
  EXPECT_EQ(allowed(), 0u);
  meet();
  EXPECT_EQ(allowed(), kLong);
  EXPECT_EQ(allowed(kOurs), 0u);
  EXPECT_EQ(allowed(1023), 0u);
  ASSERT_EQ(ours.io->send(burst.packets()), 7u);
  uint32_t arrived = 0;
  for (int i = 0; i < 10 && arrived < 7; ++i) {
    for (const RxPacket& packet : theirs.receive()) {
      EXPECT_EQ(packet.psns, arrived < 6 ? 64u : 1u);
      EXPECT_EQ(psn_of(packet), arrived);
      expect_payload(packet, burst.payload(arrived++));
    }
  }
  EXPECT_EQ(arrived, 7u);
  EXPECT_EQ(ours.io->counters().tx_bytes, theirs.io->counters().rx_bytes);
}

TEST_F(LongPackets, PayloadStaysWhereItIsUntilTheNextReceiveOrSend) {
  meet();
  ASSERT_EQ(ours.io->send(burst.packets()), 7u);
  const std::vector<RxPacket> arrived = theirs.receive();
  ASSERT_EQ(arrived.size(), 3u) << "what one receive() takes";
  for (const RxPacket& packet : arrived) {
    EXPECT_EQ(packet.ib.size(), wire::kBthSize);
    EXPECT_EQ(packet.apart.size(), kLong + wire::kIcrcSize);
  }
  TestBurst more = burst_of(1000, 1000);
  size_t taken = ours.io->send(more.packets());
  EXPECT_LT(taken, 1000u) << "there is no room";
  for (size_t i = 0; i < 3; ++i) expect_payload(arrived[i], burst.payload(i));
  theirs.io->send({});
  EXPECT_GT(ours.io->send(more.packets().subspan(taken)), 100u) << "there is room before an acknowledgement says so";
}

TEST_F(LongPackets, PayloadOfOtherTransportsAndShortOnesIsCopied) {
  meet();
  TestBurst others;
  for (const wire::Opcode opcode :
       {wire::Opcode::kUcSendOnly, wire::Opcode::kRcSendOnly, wire::Opcode::kXrcAcknowledge}) {
    others.add(envelope_v4(), 0, opcode == wire::Opcode::kRcSendOnly ? 400 : 2000, 1, opcode);
    wire::store_be24(&others.packets().back().header[5], kTheirs << kRangeBits);
    others.packets().back().to_this_host = true;
  }
  ASSERT_EQ(ours.io->send(others.packets()), 3u);
  const std::vector<RxPacket> arrived = theirs.receive();
  ASSERT_EQ(arrived.size(), 3u);
  for (const RxPacket& packet : arrived) EXPECT_TRUE(packet.apart.empty());
}

TEST_F(LongPackets, NoneForWhoShowsItsPackets) {
  meet();
  ASSERT_EQ(ours.io->send(burst.packets().first(1)), 1u);
  theirs.io->show_packets(true);
  EXPECT_EQ(allowed(), 0u);
  const std::vector<RxPacket> on_its_way = theirs.receive();
  ASSERT_EQ(on_its_way.size(), 1u);
  EXPECT_TRUE(on_its_way[0].apart.empty()) << "in one piece";
  expect_payload(on_its_way[0], burst.payload(0));
  SameHostTest::meet();
  ours.receive();
  theirs.receive();
  EXPECT_EQ(allowed(), 0u) << "nor by a new peer";
  theirs.io->show_packets(false);
  EXPECT_EQ(allowed(), kLong);
  ASSERT_EQ(ours.io->send(burst.packets().first(1)), 1u);
  EXPECT_EQ(theirs.receive_some().at(0).psns, 64u);
}

// A peer that goes on as if it had not been told.
TEST_F(LongPackets, NotManyThatAreLate) {
  meet();
  theirs.io->show_packets(true);
  TestBurst late = burst_of(100, 8);
  for (TxPacket& packet : late.packets()) packet.psns = 2;
  size_t arrived = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ours.io->send(late.packets()), 100u);
    for (int k = 0; k < 3; ++k) arrived += theirs.receive().size();
  }
  EXPECT_EQ(arrived, 2048u);
  EXPECT_EQ(theirs.io->counters().rx_malformed, 10'000u - 2048u);
  TestBurst as_on_a_wire = burst_of(1);
  ours.io->send(as_on_a_wire.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u);
}

TEST_F(LongPackets, NoneForAFaultInjector) {
  FaultInjector injector(std::move(theirs.io), FaultSpec{});
  SameHostTest::meet();
  ours.receive();
  theirs.receive(injector);
  EXPECT_EQ(allowed(), 0u);
  EXPECT_EQ(injector.long_payload(wire::Qpn(kOurs << kRangeBits)), 0u);
  ASSERT_EQ(ours.io->send(burst.packets()), 7u);
  size_t arrived = 0;
  for (int i = 0; i < 100; ++i) arrived += theirs.receive(injector).size();
  EXPECT_EQ(arrived, 1u) << "they were never asked for";
  EXPECT_EQ(injector.counters().rx_malformed, 6u);
}

TEST_F(LongPackets, AreLostWithTheirPeer) {
  meet();
  theirs.io.reset();
  ours.io->prepare_to_wait();
  ASSERT_EQ(ours.io->send(burst.packets()), 7u);
  EXPECT_EQ(ours.io->counters().tx_unread, 6u);
  EXPECT_EQ(sent_by_network(), 1u);
}

// --- faults on purpose ----------------------------------------------------------------------------------------------

TEST_F(SameHostTest, ABrokenPacketIsFoundToBeBroken) {
  meet();
  TestBurst burst = burst_of(1);
  burst.packets()[0].icrc_damage = 1;
  ours.io->send(burst.packets());
  const std::vector<RxPacket> arrived = theirs.receive_some();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_FALSE(arrived[0].without_icrc);
  EXPECT_FALSE(wire::icrc_matches(arrived[0].envelope, arrived[0].ib));
}

class SameHostFaults : public SameHostTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Corrupting, SameHostFaults, testing::Bool());

TEST_P(SameHostFaults, TheInjectorGetsAnIcrcToBreak) {
  meet();
  const auto receive_with = [this](const FaultSpec& spec) {
    FaultInjector injector(std::move(theirs.io), spec);
    std::vector<RxPacket> arrived;
    for (int i = 0; i < 100 && arrived.empty(); ++i) arrived = theirs.receive(injector);
    std::vector<bool> intact;
    for (const RxPacket& packet : arrived) intact.push_back(wire::icrc_matches(packet.envelope, packet.ib));
    return intact;
  };
  TestBurst burst = burst_of(2);
  ours.io->send(burst.packets());
  FaultSpec spec;
  spec.corrupt = GetParam() ? 1 : 0;
  EXPECT_EQ(receive_with(spec), std::vector<bool>(2, !GetParam()));
}

// --- sleep ----------------------------------------------------------------------------------------------------------

TEST_F(SameHostTest, PacketsWakeWhoSleeps) {
  meet();
  TestBurst burst = burst_of(1);
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  EXPECT_FALSE(theirs.would_wake());
  ours.io->send(burst.packets());
  EXPECT_TRUE(theirs.would_wake());
  EXPECT_FALSE(theirs.io->prepare_to_wait()) << "there is a packet";
  EXPECT_EQ(theirs.receive_some().size(), 1u);
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  EXPECT_FALSE(theirs.would_wake());
}

// The thread that sleeps is not the one that receives.
TEST_F(SameHostTest, ASleeperIsWokenThoughOthersReceive) {
  meet();
  TestBurst burst = burst_of(1);
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  EXPECT_TRUE(theirs.receive().empty());
  ours.io->send(burst.packets());
  EXPECT_TRUE(theirs.would_wake());
}

// A wake-up is for who sleeps: another thread that receives the packet meanwhile, or looks whether there is room in a
// ring, leaves it alone.
TEST_F(SameHostTest, AWakeUpIsLeftToWhoSleeps) {
  meet();
  TestBurst burst = burst_of(1);
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  ours.io->send(burst.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u) << "by a thread that polls";
  EXPECT_TRUE(theirs.would_wake()) << "the one that sleeps has not had it yet";
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  EXPECT_FALSE(theirs.would_wake());
  ours.io->send(burst.packets());
  EXPECT_TRUE(theirs.would_wake());
}

TEST_F(SameHostTest, AWakeUpIsLeftToWhoSleepsByWhoFindsARingFull) {
  meet();
  TestBurst answer;
  add(answer, 1, 100, kOurs);
  TestBurst burst = burst_of(64, 4096);
  ours.receive();
  EXPECT_TRUE(ours.io->prepare_to_wait());
  theirs.io->send(answer.packets());
  EXPECT_TRUE(ours.would_wake());
  while (ours.io->send(burst.packets()) == burst.packets().size()) continue;
  EXPECT_GT(ours.io->counters().tx_backpressure, 0u);
  EXPECT_TRUE(ours.would_wake());
}

// One writer; a thread that sleeps on the descriptors; one that polls a few times behind each packet, as a program does
// before it sleeps on its channel. Whoever takes the packets, none is left in the ring while all sleep.
TEST_F(SameHostTest, NothingIsLeftInTheRingWhileAllSleep) {
  constexpr uint32_t kRecords = 20'000;
  meet();
  std::mutex lock;  // as the shard's
  std::atomic<uint32_t> sent{0}, arrived{0};
  std::atomic<bool> stalled{false};
  const auto goes_on = [&] { return arrived < kRecords && !stalled; };
  std::thread sleeper([&] {
    while (goes_on()) {
      std::vector<pollfd> waits;
      {
        const std::lock_guard guard(lock);
        arrived += static_cast<uint32_t>(theirs.receive().size());
        if (!theirs.io->prepare_to_wait()) continue;
        const std::span<const pollfd> descriptors = theirs.io->wait_descriptors();
        waits.assign(descriptors.begin(), descriptors.end());
      }
      if (goes_on()) stalled = poll(waits.data(), waits.size(), 20'000) == 0 && goes_on();
    }
  });
  std::thread poller([&] {
    std::mt19937 random(1);
    for (uint32_t seen = 0; goes_on(); std::this_thread::yield()) {
      if (seen == sent) continue;
      seen = sent;
      for (uint32_t looks = random() % 4; looks > 0; --looks) {
        const std::unique_lock holding(lock, std::try_to_lock);
        if (holding) arrived += static_cast<uint32_t>(theirs.receive().size());
      }
    }
  });
  TestBurst burst = burst_of(1);
  while (sent < kRecords && !stalled) {
    sent += static_cast<uint32_t>(ours.io->send(burst.packets()));
    // One at a time, so that each finds its reader asleep or just awake.
    while (arrived < sent && !stalled) std::this_thread::yield();
  }
  EXPECT_FALSE(stalled) << sent << " packets were sent, " << arrived << " have arrived, and nobody is woken";
  EXPECT_EQ(arrived, sent);
  TestBurst last = burst_of(1);
  for (int i = 0; i < 2; ++i) ours.io->send(last.packets());  // the sleeper may be about to sleep
  sleeper.join();
  poller.join();
}

// What it has written before is received; afterwards it may still have the memory, and is nobody.
TEST_F(SameHostTest, WhoHasItsRangeNoLongerIsNoPeer) {
  meet();
  TestBurst burst = burst_of(1), back;
  add(back, 7, 100, kOurs);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 0u);
  theirs.io->send(back.packets());
  ours.peers->part(kTheirs);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
  theirs.io->send(back.packets());
  size_t received = 0;
  for (int i = 0; i < 10; ++i) received += ours.receive().size();
  EXPECT_EQ(received, 1u);
  ours.io->prepare_to_wait();
  ours.peers->bury();
  theirs.io->prepare_to_wait();
  theirs.io->send(back.packets());
  EXPECT_EQ(theirs.network.counters().tx_packets, 1u) << "it sees the end";
  meet();  // with whoever has the range next
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
}

// Its packets are there before it is.
TEST_F(SameHostTest, APeerThatIsNewWakesWhoSleeps) {
  TestBurst burst = burst_of(1);
  for (int round = 0; round < 500; ++round) {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ours.peers->bury();
    theirs.peers->bury();
    ASSERT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    ours.io->send(burst.packets());
    std::thread broker([&] { theirs.peers->add(kOurs, std::move(other)); });
    size_t arrived = 0;
    bool woken = true;
    while (woken && arrived == 0) {
      if (theirs.io->prepare_to_wait()) {
        const std::span<const pollfd> descriptors = theirs.io->wait_descriptors();
        std::vector<pollfd> waits(descriptors.begin(), descriptors.end());
        woken = poll(waits.data(), waits.size(), 20'000) > 0;
      }
      arrived = theirs.receive().size();
    }
    broker.join();
    ASSERT_EQ(arrived, 1u) << "round " << round;
  }
}

// As after a wake-up that was lost.
TEST_F(SameHostTest, APeerThatReadsNothingForASecondIsCountedAndWoken) {
  meet();
  theirs.io->prepare_to_wait();
  TestBurst burst = burst_of(3);
  ours.io->send(burst.packets());
  theirs.io->prepare_to_wait();  // the ring is taken, and it sleeps on
  EXPECT_FALSE(theirs.would_wake());
  ours.io->prepare_to_wait();
  test_time += std::chrono::milliseconds(999);
  ours.io->prepare_to_wait();
  EXPECT_EQ(ours.io->counters().tx_stalls, 0u);
  test_time += std::chrono::milliseconds(1);
  for (int i = 0; i < 5; ++i) ours.io->prepare_to_wait();
  EXPECT_EQ(ours.io->counters().tx_stalls, 1u);
  EXPECT_TRUE(theirs.would_wake());
  EXPECT_EQ(theirs.receive_some().size(), 3u);
  test_time += std::chrono::seconds(5);
  for (int i = 0; i < 5; ++i) ours.io->prepare_to_wait();
  EXPECT_EQ(ours.io->counters().tx_stalls, 1u) << "there is nothing to read";
}

// --- peers that end -------------------------------------------------------------------------------------------------

TEST_F(SameHostTest, WhatAPeerHasSentBeforeItsEndArrives) {
  meet();
  TestBurst burst = burst_of(3);
  ours.io->send(burst.packets());
  EXPECT_TRUE(theirs.receive_some().size() == 3 && theirs.io->prepare_to_wait());
  ours.io->send(burst.packets());
  ours.io.reset();
  EXPECT_TRUE(theirs.would_wake());
  EXPECT_FALSE(theirs.io->prepare_to_wait());
  EXPECT_EQ(theirs.receive_some().size(), 3u);
  EXPECT_TRUE(theirs.io->prepare_to_wait());
  EXPECT_FALSE(theirs.would_wake()) << "nothing is left of it";
}

TEST_F(SameHostTest, AfterItsEndPacketsGoByTheNetworkAndItIsAskedForAgain) {
  meet();
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u);
  theirs.io.reset();
  ours.io->prepare_to_wait();
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
  EXPECT_EQ(ours.asked, std::vector<uint32_t>{kTheirs});
}

TEST_F(SameHostTest, ItsEndIsSeenByWhoOnlyPolls) {
  meet();
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u);
  theirs.io.reset();
  for (int i = 0; i < 5000; ++i) ours.receive();
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
}

TEST_F(SameHostTest, ANewProcessWithTheRangeTakesThePlaceOfTheFormerOne) {
  meet();
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  meet();
  ours.io->send(burst.packets());
  size_t arrived = 0;
  for (int i = 0; i < 100; ++i) arrived += theirs.receive().size();
  EXPECT_EQ(arrived, 2u);
  EXPECT_EQ(sent_by_network(), 0u);
}

TEST_F(SameHostTest, NoMorePeersThanDescriptorsAllow) {
  std::vector<PeerEnd> others(PeerExchange::kMostPeers + 1);
  for (size_t i = 0; i < others.size(); ++i) {
    PeerEnd end;
    ASSERT_EQ(make_peers(end, others[i]), 0);
    EXPECT_EQ(ours.peers->add(static_cast<uint32_t>(i), std::move(end)), i < PeerExchange::kMostPeers);
  }
  ours.receive();
  others[3] = {};  // that one ends
  ours.io->prepare_to_wait();
  ours.peers->bury();
  PeerEnd one, other;
  ASSERT_EQ(make_peers(one, other), 0);
  EXPECT_TRUE(ours.peers->add(3, std::move(one)));
}

}  // namespace
}  // namespace uroce::io::test
