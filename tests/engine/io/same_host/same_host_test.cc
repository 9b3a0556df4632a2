// SPDX-License-Identifier: BSD-2-Clause
// Two processes of one host: which packets go from one to the other by memory, and what becomes of the rest.
#include "engine/io/same_host/same_host.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <random>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/io/fault_injector.h"
#include "engine/io/memory_link.h"
#include "engine/memory/memory_access.h"
#include "tests/engine/io/test_packet.h"
#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/icrc.h"

namespace uroce::io::test {
namespace {

constexpr uint32_t kRangeBits = 14;
constexpr uint32_t kOurs = 5, kTheirs = 6;

// Stands still unless a test moves it.
Time test_time;

// One of the processes. Its network is a link to the other one, where a test sees what did not go by memory.
struct Process {
  explicit Process(std::unique_ptr<MemoryEnd> end) : network(*end) {
    io = std::make_unique<SameHost>(std::move(end),
                                    SameHost::Config{.range_bits = kRangeBits,
                                                     .meet = [this](uint32_t range) { asked.push_back(range); },
                                                     .arrivals = arrivals,
                                                     .now = [] { return test_time; }});
  }
  std::vector<RxPacket> receive(PacketIo& from) {
    const size_t count = from.receive(received);
    return {received.begin(), received.begin() + static_cast<ptrdiff_t>(count)};
  }
  std::vector<RxPacket> receive() { return receive(*io); }
  // Until one call brings something. The network gets a look now and then only.
  std::vector<RxPacket> receive_some() {
    std::vector<RxPacket> packets;
    for (int i = 0; i < 100 && packets.empty(); ++i, test_time += std::chrono::microseconds(1)) packets = receive();
    return packets;
  }
  bool would_wake() const {
    const std::span<const pollfd> descriptors = io->wait_descriptors();
    std::vector<pollfd> waits(descriptors.begin(), descriptors.end());
    return poll(waits.data(), waits.size(), 0) > 0;
  }

  MemoryEnd& network;
  std::vector<uint32_t> asked;
  std::shared_ptr<NewPeers> arrivals = std::make_shared<NewPeers>();
  std::unique_ptr<SameHost> io;
  std::array<RxPacket, 64> received;
};

class SameHostTest : public testing::Test {
 protected:
  SameHostTest() : SameHostTest(make_memory_link()) {}
  explicit SameHostTest(std::pair<std::unique_ptr<MemoryEnd>, std::unique_ptr<MemoryEnd>> link)
      : ours(std::move(link.first)), theirs(std::move(link.second)) {}

  void meet() {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    ASSERT_TRUE(theirs.arrivals->add(kOurs, std::move(other)));
  }
  static void add(TestBurst& burst, uint32_t psn, size_t size, uint32_t range = kTheirs) {
    burst.add(envelope_v4(), psn, size);
    wire::store_be24(&burst.packets().back().header[5], range << kRangeBits | 77);
    burst.packets().back().to_this_host = true;
  }
  static TestBurst burst_of(uint32_t count, size_t size = 100) {
    TestBurst burst;
    for (uint32_t psn = 0; psn < count; ++psn) add(burst, psn, size);
    return burst;
  }
  size_t sent_by_network() const { return ours.network.counters().tx_packets; }

  Process ours, theirs;
};

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

// The network holds more than one receive() brings.
TEST_F(SameHostTest, WhatWentByTheNetworkBeforeArrivesBefore) {
  TestBurst burst = burst_of(250);
  ASSERT_EQ(ours.io->send(burst.packets().first(200)), 200u);
  meet();
  EXPECT_EQ(theirs.receive().size(), 64u) << "the peer is there and has sent nothing";
  ASSERT_EQ(ours.io->send(burst.packets().subspan(200)), 50u);
  EXPECT_EQ(sent_by_network(), 200u);
  uint32_t arrived = 64;
  for (int i = 0; i < 100 && arrived < 250; ++i) {
    for (const RxPacket& packet : theirs.receive()) ASSERT_EQ(psn_of(packet), arrived++);
  }
  EXPECT_EQ(arrived, 250u);
}

TEST_F(SameHostTest, ABusyNetworkDoesNotKeepANewPeerWaiting) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(64);
  for (TxPacket& packet : by_network.packets()) packet.to_this_host = false;
  ours.io->send(by_memory.packets());
  bool arrived = false;
  for (int i = 0; i < 1000 && !arrived; ++i) {
    ours.io->send(by_network.packets());
    for (const RxPacket& packet : theirs.receive()) arrived |= packet.without_icrc;
  }
  EXPECT_TRUE(arrived);
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

TEST_F(SameHostTest, BothWaysGetTheirTurn) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(1);
  by_network.packets()[0].to_this_host = false;
  ours.io->send(by_network.packets());
  bool arrived = false;
  for (int i = 0; i < 100 && !arrived; ++i, test_time += std::chrono::microseconds(1)) {
    ours.io->send(by_memory.packets());
    for (const RxPacket& packet : theirs.receive()) arrived |= !packet.without_icrc;
  }
  EXPECT_TRUE(arrived) << "the network is not forgotten over the memory";
}

// A look into the network may be a system call, and a program that spins makes many.
TEST_F(SameHostTest, AQuietNetworkIsLeftAloneForAWhile) {
  meet();
  TestBurst by_memory = burst_of(1), by_network = burst_of(1);
  by_network.packets()[0].to_this_host = false;
  ours.io->send(by_memory.packets());
  EXPECT_EQ(theirs.receive_some().size(), 1u);
  while (!theirs.receive().empty()) continue;
  test_time += QuietTurns::kQuiet;
  for (uint32_t look = 0; look < QuietTurns::kLooks; ++look) EXPECT_TRUE(theirs.receive().empty());  // its turn
  ours.io->send(by_network.packets());
  for (int look = 0; look < 1000; ++look) EXPECT_TRUE(theirs.receive().empty());
  theirs.io->prepare_to_wait();
  EXPECT_EQ(theirs.receive().size(), 1u) << "after a sleep it is not known what there is";
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

// Its packets are there before it is.
TEST_F(SameHostTest, APeerThatIsNewWakesWhoSleeps) {
  TestBurst burst = burst_of(1);
  for (int round = 0; round < 500; ++round) {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    ours.io->send(burst.packets());
    std::thread broker([&] { theirs.arrivals->add(kOurs, std::move(other)); });
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

// --- peers that end, and hostile ones -------------------------------------------------------------------------------

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
  std::vector<PeerEnd> others(NewPeers::kMostPeers + 1);
  for (size_t i = 0; i < others.size(); ++i) {
    PeerEnd end;
    ASSERT_EQ(make_peers(end, others[i]), 0);
    EXPECT_EQ(ours.arrivals->add(static_cast<uint32_t>(i), std::move(end)), i < NewPeers::kMostPeers);
  }
  ours.receive();
  others[3] = {};  // that one ends
  ours.io->prepare_to_wait();
  PeerEnd one, other;
  ASSERT_EQ(make_peers(one, other), 0);
  EXPECT_TRUE(ours.arrivals->add(3, std::move(one)));
}

// A side of a pair that the test plays itself.
struct Hostile {
  explicit Hostile(PeerEnd its_end) : end(std::move(its_end)) {
    bytes = static_cast<uint8_t*>(
        mmap(nullptr, 4096 + 2 * kRingSize, PROT_READ | PROT_WRITE, MAP_SHARED, end.memory.get(), 0));
  }
  ~Hostile() { munmap(bytes, 4096 + 2 * kRingSize); }
  // Of the ring that this side writes to.
  RingControl& control() { return reinterpret_cast<RingControl*>(bytes)[end.side]; }
  uint8_t* ring() { return bytes + 4096 + end.side * kRingSize; }
  // In front of the record behind the first one, which has `size` bytes.
  void set_next_length(size_t size, uint32_t length) {
    std::memcpy(ring() + (size + sizeof(length) + 15) / 16 * 16, &length, sizeof(length));
  }

  PeerEnd end;
  uint8_t* bytes;
};

class HostilePeer : public SameHostTest {
 protected:
  HostilePeer() {
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    EXPECT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
  }
  // `count` records of `size` bytes.
  void write(size_t count, uint32_t size) {
    RingWriter writer(peer->control(), peer->ring());
    for (size_t i = 0; i < count; ++i) {
      uint8_t* const at = writer.reserve(size);
      ASSERT_NE(at, nullptr);
      std::fill_n(at, size, uint8_t{0xff});
      writer.add(size);
    }
    writer.publish();
  }
  void expect_network_goes_on() {
    TestBurst burst = burst_of(1);
    theirs.network.send(burst.packets());
    EXPECT_EQ(ours.receive_some().size(), 1u);
  }

  std::optional<Hostile> peer;
};

TEST_F(HostilePeer, RecordsThatAreNoPacketsAreCounted) {
  for (const uint32_t size : {1u, 40u, 55u}) {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    const uint64_t before = ours.io->counters().rx_malformed;
    write(3, size);
    EXPECT_TRUE(ours.receive().empty());
    EXPECT_EQ(ours.io->counters().rx_malformed, before + 3);
  }
  write(1, 100'000);
  expect_network_goes_on();
}

// What a record says of its PSNs stands in front of the BTH.
TEST_F(HostilePeer, LongerThanTheLongestIsNoPacket) {
  ours.receive();
  const auto arrived = [this](uint32_t size, uint16_t more_psns) {
    RingWriter writer(peer->control(), peer->ring());
    uint8_t* const at = writer.reserve(size);
    std::fill_n(at, size, uint8_t{0});
    std::memcpy(at + 38, &more_psns, sizeof(more_psns));
    writer.add(size);
    writer.publish();
    const std::vector<RxPacket> packets = ours.receive();
    const size_t psns = packets.empty() ? 0 : packets[0].psns;
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    EXPECT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    ours.receive();
    return psns;
  };
  constexpr uint32_t kLongest = 40 + 48 + 65536 + 4;
  EXPECT_EQ(arrived(kLongest, 1), 2u);
  EXPECT_EQ(arrived(kLongest + 1, 1), 0u);
  EXPECT_EQ(arrived(kLongest + 1, 0xffff), 0u);
  EXPECT_EQ(arrived(kLongest, 0), 0u) << "too long for one packet";
  EXPECT_EQ(arrived(56, 0xffff), 65536u) << "the transport finds that it is too short";
  EXPECT_EQ(ours.io->counters().rx_malformed, 3u);
}

// The index says so as soon as what it said before has been received, which stays readable.
TEST_F(HostilePeer, PayloadStaysThoughTheRingBreaks) {
  RingWriter writer(peer->control(), peer->ring());
  uint8_t* const at = writer.reserve(4096);
  std::fill_n(at, 4096, uint8_t{0});
  writer.add(4096);
  writer.publish();
  peer->set_next_length(4096, UINT32_MAX);
  peer->control().tail += 64;
  const std::vector<RxPacket> arrived = ours.receive();
  ASSERT_EQ(arrived.size(), 1u);
  ASSERT_FALSE(arrived[0].apart.empty());
  EXPECT_EQ(arrived[0].apart.back(), 0);
  ours.receive();
  EXPECT_EQ(ours.io->counters().ring_errors, 1u);
}

TEST_F(HostilePeer, ManyOfThemDoNotKeepOthersWaiting) {
  write(1000, 20);
  expect_network_goes_on();
  EXPECT_LT(ours.io->counters().rx_malformed, 1000u);
}

TEST_F(HostilePeer, ABrokenRingEndsIt) {
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 0u);
  peer->control().tail = 1;
  EXPECT_TRUE(ours.receive().empty());
  EXPECT_EQ(ours.io->counters().ring_errors, 1u);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
  expect_network_goes_on();
}

TEST_F(HostilePeer, TheMemoryKeepsItsSize) {
  EXPECT_NE(ftruncate(peer->end.memory.get(), 0), 0);
  EXPECT_NE(fcntl(peer->end.memory.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(HostilePeer, WakesDoNotPileUp) {
  const uint8_t wake = 0;
  for (int i = 0; i < 10'000; ++i) ::send(peer->end.socket.get(), &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  int looks = 0;
  for (; looks < 10'000 && ours.would_wake(); ++looks) ours.io->prepare_to_wait();
  EXPECT_LT(looks, 10'000);
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 0u) << "it is still a peer";
}

TEST_F(HostilePeer, ScribblesAnywhere) {
  std::mt19937 random(1);
  TestBurst burst = burst_of(8, 1024);
  for (int round = 0; round < 300; ++round) {
    write(20, 40 + random() % 200);
    for (int i = 0; i < 20; ++i) {
      const size_t controls = 2 * sizeof(RingControl), all = 4096 + 2 * kRingSize;
      const size_t place = random() % 2 == 0 ? random() % controls : random() % all;
      const uint64_t value = random() % 4 == 0 ? random() % (2 * kRingSize) : uint64_t{random()} << 32 | random();
      std::memcpy(peer->bytes + std::min(place, all - sizeof(value)), &value, sizeof(value));
      ours.receive();
      ours.io->send(burst.packets());
    }
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.arrivals->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    theirs.receive(theirs.network);
  }
  while (!theirs.receive(theirs.network).empty()) continue;
  expect_network_goes_on();
}

// What a broker never passes on.
TEST_F(HostilePeer, OtherMemoryIsNotTaken) {
  const auto offer = [this](int memory, uint32_t side) {
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    one.memory.reset(memory);
    one.side = side;
    return ours.arrivals->add(kTheirs + 1, std::move(one));
  };
  const auto memory = [](off_t size, int seals) {
    const int fd = memfd_create("other", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, size), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr off_t kSize = 4096 + 2 * kRingSize;
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_TRUE(offer(memory(kSize, kSeals), 0));
  EXPECT_FALSE(offer(memory(kSize, kSeals), 2));
  EXPECT_FALSE(offer(memory(kSize, F_SEAL_GROW), 0)) << "it could shrink";
  EXPECT_FALSE(offer(memory(kSize - 4096, kSeals), 0));
  EXPECT_FALSE(offer(open("/dev/null", O_RDWR | O_CLOEXEC), 0));
  EXPECT_FALSE(offer(-1, 0));
}

}  // namespace
}  // namespace uroce::io::test
