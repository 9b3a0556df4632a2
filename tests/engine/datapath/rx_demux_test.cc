// SPDX-License-Identifier: BSD-2-Clause
// Which QPs get a packet that has arrived, and which packets none. No threads, virtual time. (What no QP may be harmed
// by: datapath_faults_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "engine/io/closed_io.h"
#include "tests/engine/datapath/cable_rig.h"
#include "tests/engine/datapath/fault_rig.h"
#include "tests/engine/datapath/hooked_io.h"

namespace uroce::engine::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

const wire::IpAddress kGroup = v4(239, 1, 2, 3), kOtherGroup = v4(239, 1, 2, 4);

TEST_F(Cable, WhatIsNotForADatagramQpIsDropped) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd), &connected = b.add(QpType::kUc);
  a.connect(ours);
  b.connect(theirs);
  b.connect(connected, a.address, ours.qpn());
  b.post_receive(theirs, 7, 0, 1024);
  b.post_receive(connected, 8, 0, 1024);
  const uint32_t to_b = a.handle_to(b.address);
  const uint32_t to_group = a.handle_to(kGroup);
  ASSERT_TRUE(b.tables.groups.attach(kGroup, *theirs.qp));
  a.datagram(ours, 1, to_b, theirs.qpn(), 0, 4, kQkey + 1);
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongQkey), 1u);
  a.datagram(ours, 2, to_b, connected.qpn(), 0, 4);
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongTransport), 1u);
  a.datagram(ours, 3, to_b, wire::kMulticastQpn.value(), 0, 4);  // the multicast QPN to a unicast address
  run();
  EXPECT_EQ(b.count(Counter::kDropUnknownQp), 1u);
  a.datagram(ours, 4, to_group, theirs.qpn(), 0, 4);  // a QPN to a multicast address
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongAddress), 1u);
  a.datagram(ours, 5, a.handle_to(v4(192, 0, 2, 99)), theirs.qpn(), 0, 4);  // not our address
  run();
  EXPECT_EQ(b.count(Counter::kDropWrongAddress), 2u);
  EXPECT_THAT(theirs.receives(), IsEmpty());
  EXPECT_THAT(connected.receives(), IsEmpty());
  EXPECT_THAT(ours.sends(), SizeIs(5));
}

// Through memory a packet may stand for several, of RC and XRC only. What says so and is another has been forged by the
// process at the other end of the ring.
TEST_F(Cable, OnlyReliablePacketsStandForSeveral) {
  Station &ours = a.add(QpType::kUd), &theirs = b.add(QpType::kUd), &member = b.add(QpType::kUd);
  Station &connected = a.add(QpType::kUc), &far = b.add(QpType::kUc);
  for (Station* const station : {&theirs, &member}) b.connect(*station);
  a.connect(ours);
  a.connect(connected, b.address, far.qpn());
  b.connect(far, a.address, connected.qpn());
  ASSERT_TRUE(b.tables.groups.attach(kGroup, *member.qp));
  for (Station* const station : {&theirs, &member, &far}) b.post_receive(*station, 7, 0, 1024);
  auto link = b.datapath.attach(std::make_unique<io::ClosedIo>(*b.datapath.wire()), nullptr);
  const auto make_long = [](std::span<io::RxPacket> arrived) {
    for (io::RxPacket& packet : arrived) packet.psns = 2;
  };
  b.datapath.attach(std::make_unique<HookedIo>(make_long, std::move(link)), nullptr);
  a.datagram(ours, 1, a.handle_to(b.address), theirs.qpn(), 0, 4);
  a.datagram(ours, 2, a.handle_to(kGroup), wire::kMulticastQpn.value(), 0, 4);
  a.post(connected, work(WrOpcode::kSend, 3), 0, 4);
  run();
  EXPECT_EQ(b.count(Counter::kDropParse), 3u);
  for (Station* const station : {&theirs, &member, &far}) EXPECT_THAT(station->receives(), IsEmpty());
}

// --- multicast -------------------------------------------------------------------------------------------------------

class Multicast : public Cable {
 protected:
  Station& member(Host& host, const wire::IpAddress& group, bool block_own = false) {
    QpInit init;
    init.block_own_multicast = block_own;
    Station& station = host.add(QpType::kUd, init);
    host.connect(station);
    EXPECT_TRUE(host.tables.groups.attach(group, *station.qp));
    for (uint64_t i = 0; i < 4; ++i) host.post_receive(station, i, 0, 1024);
    return station;
  }
  void send(Station& from, const wire::IpAddress& group = kGroup) {
    a.datagram(from, 1, a.handle_to(group), wire::kMulticastQpn.value(), 4096, 100);
    run();
    EXPECT_THAT(from.sends(), SizeIs(1)) << "one send, one completion";
  }
};

TEST_F(Multicast, EveryMemberHereAndThereGetsOneCopy) {
  Station &sender = member(a, kGroup), &near = member(a, kGroup), &far = member(b, kGroup),
          &far_too = member(b, kGroup);
  Station &elsewhere = member(b, kOtherGroup), &near_elsewhere = member(a, kOtherGroup);
  send(sender);
  for (Station* station : {&sender, &near, &far, &far_too}) {
    const std::vector<Cqe> receives = station->receives();
    ASSERT_THAT(receives, SizeIs(1));
    EXPECT_EQ(receives[0].byte_length, kGrh + 100);
    EXPECT_EQ(receives[0].source_qpn, sender.qpn());
  }
  EXPECT_EQ(Bytes(&b.bytes[kGrh], &b.bytes[kGrh + 100]), Bytes(&a.bytes[4096], &a.bytes[4196]));
  EXPECT_THAT(elsewhere.receives(), IsEmpty());
  EXPECT_THAT(near_elsewhere.receives(), IsEmpty());
}

TEST_F(Multicast, WhoBlocksItselfStillHearsTheOthers) {
  Station &sender = member(a, kGroup, true), &near = member(a, kGroup, true);
  send(sender);
  EXPECT_THAT(sender.receives(), IsEmpty());
  EXPECT_THAT(near.receives(), SizeIs(1));
}

// A QP elsewhere that happens to have the same number is not itself.
TEST_F(Multicast, BlockingItselfIsNotBlockingItsNumber) {
  Station& far = member(b, kGroup, true);
  transport::test::PeerPacket packet(wire::Opcode::kUdSendOnly, 1);
  Bytes ib = packet.datagram(kQkey, far.qpn()).bytes();
  wire::store_be24(&ib[5], wire::kMulticastQpn.value());
  ASSERT_TRUE(b.end->inject_frame(sealed_frame(a.path_to(kGroup).envelope, ib)));
  run();
  EXPECT_THAT(far.receives(), SizeIs(1));
}

TEST_F(Multicast, AfterDetachAndForGroupsOfNobodyItIsDropped) {
  Station &sender = member(a, kOtherGroup), &far = member(b, kGroup);
  ASSERT_TRUE(b.tables.groups.detach(kGroup, *far.qp));
  EXPECT_FALSE(b.tables.groups.detach(kGroup, *far.qp));
  send(sender);
  EXPECT_THAT(far.receives(), IsEmpty());
  EXPECT_EQ(b.count(Counter::kDropNoGroup), 1u);
}

TEST_F(Multicast, MembersDecideOneByOne) {
  Station &sender = member(a, kOtherGroup), &deaf = member(b, kGroup), &other_key = member(b, kGroup),
          &far = member(b, kGroup);
  transport::QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_EQ(deaf.qp->transport->modify(attributes, transport::kQpState, b.now), 0);
  b.datapath.completions().publish();  // as a set-up call does before it lets go of the lock
  EXPECT_FALSE(deaf.receives().empty());
  attributes.state = QpState::kRts;
  attributes.qkey = kQkey + 1;
  ASSERT_EQ(other_key.qp->transport->modify(attributes, transport::kQpState | transport::kQpQkey, b.now), 0);
  send(sender);
  EXPECT_EQ(b.count(Counter::kDropQpState), 1u);
  EXPECT_EQ(b.count(Counter::kDropWrongQkey), 1u);
  EXPECT_THAT(deaf.receives(), IsEmpty());
  EXPECT_THAT(other_key.receives(), IsEmpty());
  EXPECT_THAT(far.receives(), SizeIs(1));
}

TEST_F(Multicast, DamagedPacketIsDroppedOnce) {
  Station &one = member(b, kGroup), &two = member(b, kGroup);
  transport::test::PeerPacket packet(wire::Opcode::kUdSendOnly, 1);
  Bytes ib = packet.datagram(kQkey, 17).bytes();
  wire::store_be24(&ib[5], wire::kMulticastQpn.value());
  Bytes frame = sealed_frame(a.path_to(kGroup).envelope, ib);
  frame.back() ^= 1;
  ASSERT_TRUE(b.end->inject_frame(frame));
  run();
  EXPECT_EQ(b.count(Counter::kDropBadIcrc), 1u);
  EXPECT_THAT(one.receives(), IsEmpty());
  EXPECT_THAT(two.receives(), IsEmpty());
}

// --- alike packets ---------------------------------------------------------------------------------------------------

// A host that hears WRITEs for two RC QPs and a UC QP, of which each has its own part of the memory.
struct Listener {
  explicit Listener(std::pair<std::unique_ptr<io::MemoryEnd>, std::unique_ptr<io::MemoryEnd>> link)
      : peer(std::move(link.second)), host(2, std::move(link.first)) {
    for (const QpType type : {QpType::kRc, QpType::kRc, QpType::kUc}) {
      host.connect(*stations.emplace_back(&host.add(type)), v4(192, 0, 2, 1), 0x202);
    }
  }
  void hear(std::span<const Bytes> frames) {
    for (const Bytes& frame : frames) ASSERT_TRUE(host.end->inject_frame(frame));
    std::array<io::RxPacket, 64> drained;
    while (host.run()) {
      while (peer->receive(drained) > 0) {
      }
    }
  }
  wire::Psn expected(size_t k) const { return stations[k]->qp->transport->position().received; }

  std::unique_ptr<io::MemoryEnd> peer;
  Host host;
  std::vector<Station*> stations;
};

class MiddlePackets : public testing::TestWithParam<uint32_t> {
 protected:
  uint32_t up_to(uint32_t most) { return std::uniform_int_distribution<uint32_t>(0, most)(random_); }

  // WRITEs of up to 80 packets, one behind the other; packet i has PSN kSqPsn + i.
  std::vector<Bytes> writes(const Station& to, bool reliable, uint32_t offset, uint32_t key) {
    std::vector<Bytes> all;
    while (all.size() < 1000) {
      const uint32_t count = 2 + up_to(78), begin = offset + up_to(4);
      for (uint32_t i = 0; i < count; ++i) {
        const uint8_t opcode = (reliable ? 0x06 : 0x26) + (i == 0 ? 0 : i + 1 < count ? 1 : 2);
        transport::test::PeerPacket packet(wire::Opcode{opcode},
                                           transport::test::kSqPsn + static_cast<uint32_t>(all.size()));
        packet.payload(pattern(kMtu, static_cast<uint32_t>(all.size()))).reth(begin, key, count * kMtu);
        if (up_to(20) == 0) packet.ack_request();
        all.push_back(packet.bytes());
        wire::store_be24(&all.back()[5], to.qpn());
      }
    }
    return all;
  }

  // A packet as it arrives: mostly as it was sent.
  Bytes arriving(Bytes ib, const wire::Envelope& from) {
    wire::Envelope envelope = from;
    const uint32_t what = up_to(60);
    if (what == 0) envelope.traffic_class = wire::kEcnCe;
    if (what == 1) envelope.source = v4(192, 0, 2, 77);
    if (what == 2) envelope.destination = v4(192, 0, 2, 78);
    if (what == 3) ib[2] = 0x12;                                      // P_Key
    if (what == 4) wire::store_be24(&ib[5], 0x3333);                  // QPN
    if (what == 5) ib[1] |= 0x01;                                     // TVer
    if (what == 6) ib[4] ^= 0x40;                                     // BECN, which the ICRC does not cover
    if (what == 7) ib.resize(ib.size() - 4 * (1 + up_to(kMtu / 8)));  // and so the length
    if (what == 8) envelope.source_port = 0xc001;
    Bytes frame = sealed_frame(envelope, ib);
    if (what == 9) frame[frame.size() - 1 - up_to(kMtu)] ^= 1;
    return frame;
  }

  static constexpr uint32_t kMtu = transport::test::kMtu;
  std::mt19937 random_{GetParam()};
};

// Whether they are taken several at a time or one in each round makes no difference.
TEST_P(MiddlePackets, CountAsEachByItself) {
  Listener together(io::make_memory_link({.queue_capacity = 1024})),
      alone(io::make_memory_link({.queue_capacity = 1024}));
  for (Listener* listener : {&together, &alone}) {
    Host& host = listener->host;
    host.bytes = Bytes(3 * 81 * kMtu);
    host.key = host.tables.regions.add({.base = host.bytes.data(),
                                        .iova = 0,
                                        .length = host.bytes.size(),
                                        .access = memory::kLocalWrite | transport::test::kAllRemote,
                                        .pd = kPd});
  }
  ASSERT_EQ(together.host.key, alone.host.key);
  wire::Envelope from = together.stations[0]->qp->path.envelope;
  std::swap(from.source, from.destination);
  std::array<std::vector<Bytes>, 3> streams;
  for (uint32_t k = 0; k < 3; ++k) {
    ASSERT_EQ(together.stations[k]->qpn(), alone.stations[k]->qpn());
    streams[k] = writes(*together.stations[k], k < 2, k * 81 * kMtu, together.host.key);
  }
  for (int burst = 0; burst < 60; ++burst) {
    SCOPED_TRACE(burst);
    std::vector<Bytes> frames;
    std::array<size_t, 3> at;
    for (size_t k = 0; k < 3; ++k) {
      at[k] = static_cast<size_t>(wire::Psn::distance(wire::Psn(transport::test::kSqPsn), alone.expected(k)));
      at[k] -= std::min<size_t>(at[k], up_to(9) == 0 ? up_to(5) : 0);  // duplicates
    }
    for (uint32_t piece = up_to(3); piece < 4; ++piece) {
      const uint32_t k = up_to(2), length = up_to(40);
      for (uint32_t i = 0; i < length && at[k] < streams[k].size(); ++i) {
        at[k] += up_to(30) == 0;  // a packet is lost
        if (at[k] < streams[k].size()) frames.push_back(arriving(streams[k][at[k]++], from));
      }
    }
    together.hear(frames);
    for (const Bytes& frame : frames) alone.hear({&frame, 1});
    ASSERT_EQ(together.host.bytes, alone.host.bytes);
    for (size_t k = 0; k < 3; ++k) {
      ASSERT_EQ(together.expected(k), alone.expected(k)) << k;
      ASSERT_EQ(together.stations[k]->qp->transport->state(), alone.stations[k]->qp->transport->state());
    }
    for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i) {
      const auto counter = static_cast<Counter>(i);
      // Several packets at once are answered once.
      if (counter == Counter::kTxAcks || counter == Counter::kTxNaks || counter == Counter::kTxCnps) continue;
      ASSERT_EQ(together.host.count(counter), alone.host.count(counter)) << Counters::text(counter);
    }
  }
  EXPECT_GT(together.host.count(Counter::kRxRequests), 500u);
  for (const Counter counter : {Counter::kDropBadIcrc, Counter::kDropWrongAddress, Counter::kDropWrongPkey,
                                Counter::kDropUnknownQp, Counter::kDropParse, Counter::kRxCongestionMarks}) {
    EXPECT_GT(together.host.count(counter), 0u) << Counters::text(counter);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MiddlePackets, testing::Range(1u, 31u));

// --- what comes next -------------------------------------------------------------------------------------------------

// Each QP is asked what it does next, whatever comes behind its packets: nothing, a packet that is refused, another
// QP's.
TEST(WhatComesNext, EachQpAnswers) {
  Listener listener(io::make_memory_link({}));
  Host& host = listener.host;
  wire::Envelope from = listener.stations[0]->qp->path.envelope;
  std::swap(from.source, from.destination);
  const auto frame = [&](size_t k, uint32_t n, uint32_t qpn = 0) {
    transport::test::PeerPacket packet(wire::Opcode::kRcWriteOnly, transport::test::kSqPsn + n);
    Bytes ib = packet.payload(pattern(16, n)).reth(0, host.key, 16).ack_request().bytes();
    wire::store_be24(&ib[5], qpn == 0 ? listener.stations[k]->qpn() : qpn);
    return sealed_frame(from, ib);
  };
  const auto damaged = [](Bytes bytes) {
    bytes.back() ^= 1;
    return bytes;
  };
  listener.hear(std::array{frame(0, 0), damaged(frame(0, 1))});
  EXPECT_EQ(host.count(Counter::kTxAcks), 1u);
  listener.hear(std::array{frame(0, 1), frame(1, 0), frame(0, 2), frame(0, 3, 0x3333)});
  EXPECT_EQ(host.count(Counter::kTxAcks), 3u);
  listener.hear(std::array{frame(0, 3), damaged(frame(1, 1)), frame(1, 1)});
  EXPECT_EQ(host.count(Counter::kTxAcks), 5u);
  EXPECT_EQ(listener.expected(0), wire::Psn(transport::test::kSqPsn + 4));
  EXPECT_EQ(listener.expected(1), wire::Psn(transport::test::kSqPsn + 2));
}

}  // namespace
}  // namespace uroce::engine::test
