// SPDX-License-Identifier: BSD-2-Clause
// Management datagrams on the wire, between two hosts that a veth pair joins: what is taken, by which name each other
// one is counted, and how datagrams leave. As root; skips itself otherwise.
#include "broker/server/gsi_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "engine/io/udp/socket.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/icrc.h"
#include "wire/mad.h"

namespace uroce::broker {
namespace {

using io::test::VethPair;
using Bytes = std::vector<uint8_t>;

wire::Mad some_mad() {
  wire::Mad mad;
  for (size_t i = 0; i < mad.size(); ++i) mad[i] = static_cast<uint8_t>(i);
  return mad;
}

UniqueFd member(int family) {
  auto opened = io::open_group_member(family);
  EXPECT_TRUE(std::holds_alternative<UniqueFd>(opened));
  return std::move(std::get<UniqueFd>(opened));
}

// The test's thread is on host a, which has the GsiSocket; b sends and gets packets by sockets of its own.
class GsiSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    veth_ = std::make_unique<VethPair>();
    VethPair::enter(veth_->b());
    far_v4_ = member(AF_INET);
    far_v6_ = member(AF_INET6);
    VethPair::enter(veth_->a());
    v4_ = member(AF_INET);
    v6_ = member(AF_INET6);
    start();
  }
  void start(const std::optional<io::FaultSpec>& faults = {}) {
    view_ = net::NetView::open();
    host_ = std::make_unique<net::HostNet>(*view_);
    capture_ = std::make_unique<GsiCapture>(*view_);
    capture_->follow();
    gsi_ = std::make_unique<GsiSocket>(*host_, *capture_, faults,
                                       [this](const cm::Datagram& datagram, Time) { taken_.push_back(datagram); });
    gsi_->use(v4_.get(), v6_.get());
  }

  wire::Envelope envelope(int family) const {
    wire::Envelope envelope = family == AF_INET ? VethPair::envelope_v4(veth_->b(), veth_->a())
                                                : VethPair::envelope_v6(veth_->b(), veth_->a());
    envelope.source_port = wire::kRoceUdpPort;
    envelope.traffic_class = 0x48;
    envelope.hop_limit = 33;
    return envelope;
  }
  // BTH to ICRC, after `change` to what the ICRC covers.
  Bytes packet(int family, const std::function<void(Bytes&)>& change = nullptr) const {
    Bytes bytes(wire::kGsiPacketSize);
    wire::emit_gsi_packet(wire::Psn(5), some_mad(), bytes.data());
    if (change) change(bytes);
    const uint32_t crc = wire::icrc(envelope(family), bytes);
    bytes.resize(bytes.size() + 4);
    wire::store_le32(&bytes[bytes.size() - 4], crc);
    return bytes;
  }
  void send(int family, Bytes bytes) {
    io::UdpTxSlot slot;
    msghdr message;
    io::prepare_send(slot, envelope(family), veth_->b().ifindex, bytes, bytes.size(), message);
    EXPECT_EQ(sendmsg((family == AF_INET ? far_v4_ : far_v6_).get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }
  // Takes the next message, and says for how many packets nobody is.
  uint32_t receive(int family) {
    const int socket = (family == AF_INET ? v4_ : v6_).get();
    pollfd wait{socket, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 20'000), 1);
    return gsi_->receive(socket, now_);
  }
  void expect_dropped(GsiCounter counter, Bytes bytes, uint32_t nobodys = 0) {
    const uint64_t before = gsi_->counters().get(counter);
    send(AF_INET, std::move(bytes));
    EXPECT_EQ(receive(AF_INET), nobodys) << GsiCounters::text(counter);
    EXPECT_EQ(gsi_->counters().get(counter), before + 1) << GsiCounters::text(counter);
    EXPECT_TRUE(taken_.empty());
  }

  std::unique_ptr<VethPair> veth_;
  UniqueFd far_v4_, far_v6_, v4_, v6_;
  std::unique_ptr<net::NetView> view_;
  std::unique_ptr<net::HostNet> host_;
  std::unique_ptr<GsiCapture> capture_;
  std::unique_ptr<GsiSocket> gsi_;
  std::vector<cm::Datagram> taken_;
  Time now_{std::chrono::hours(1)};
};

TEST_F(GsiSocketTest, TakesDatagramsWithWhereTheyCameFrom) {
  for (const int family : {AF_INET, AF_INET6}) {
    taken_.clear();
    send(family, packet(family));
    EXPECT_EQ(receive(family), 0u);
    ASSERT_EQ(taken_.size(), 1u);
    const cm::Datagram& datagram = taken_.front();
    const auto& [a, b] = std::pair(veth_->a(), veth_->b());
    EXPECT_EQ(datagram.netdev, static_cast<uint32_t>(a.ifindex));
    EXPECT_EQ(datagram.ca_guid, host_->guid(datagram.netdev));
    EXPECT_NE(datagram.ca_guid, wire::Guid{});
    EXPECT_EQ(datagram.source, family == AF_INET ? b.v4 : b.v6);
    EXPECT_EQ(datagram.destination, family == AF_INET ? a.v4 : a.v6);
    EXPECT_EQ(datagram.source_qpn, wire::kGsiQpn);
    EXPECT_EQ(datagram.traffic_class, 0x48);
    EXPECT_EQ(datagram.hop_limit, 33);
    EXPECT_EQ(datagram.mad, some_mad());
  }
}

TEST_F(GsiSocketTest, EveryReasonToDropHasItsName) {
  const auto changed = [this](size_t at, uint8_t value) {
    return packet(AF_INET, [=](Bytes& bytes) { bytes[at] = value; });
  };
  expect_dropped(GsiCounter::kDropNobody, changed(7, 77), 1);
  expect_dropped(GsiCounter::kDropMalformed, changed(7, 0));     // QP0
  expect_dropped(GsiCounter::kDropMalformed, changed(0, 0x65));  // with immediate data
  expect_dropped(GsiCounter::kDropMalformed, changed(1, 0x10));  // padded
  expect_dropped(GsiCounter::kDropMalformed, changed(1, 0x01));  // transport version
  expect_dropped(GsiCounter::kDropMalformed, packet(AF_INET, [](Bytes& bytes) { bytes.pop_back(); }));
  expect_dropped(GsiCounter::kDropMalformed, packet(AF_INET, [](Bytes& bytes) { bytes.push_back(0); }));
  expect_dropped(GsiCounter::kDropMalformed, Bytes(15));
  expect_dropped(GsiCounter::kDropPkey, changed(3, 0xfe));
  expect_dropped(GsiCounter::kDropQkey, changed(wire::Bth::kSize, 0));
  Bytes damaged = packet(AF_INET);
  damaged[100] ^= 1;
  expect_dropped(GsiCounter::kDropIcrc, damaged);
}

// A limited member of the partition, as a NIC may be.
TEST_F(GsiSocketTest, MembershipIsNotIdentity) {
  send(AF_INET, packet(AF_INET, [](Bytes& bytes) { bytes[2] = 0x7f; }));
  receive(AF_INET);
  EXPECT_EQ(taken_.size(), 1u);
}

// Packets of one length from one sender may be merged on the way.
TEST_F(GsiSocketTest, TakesRunsApart) {
  const Bytes one = packet(AF_INET6);
  Bytes run;
  for (int i = 0; i < 10; ++i) run.insert(run.end(), one.begin(), one.end());
  io::UdpTxSlot slot;
  msghdr message;
  io::prepare_send(slot, envelope(AF_INET6), veth_->b().ifindex, run, one.size(), message);
  ASSERT_EQ(sendmsg(far_v6_.get(), &message, 0), static_cast<ssize_t>(run.size()));
  while (taken_.size() < 10) receive(AF_INET6);
  EXPECT_EQ(taken_.size(), 10u);
}

TEST_F(GsiSocketTest, ACallTakesABoundedNumberOfMessages) {
  for (size_t i = 0; i < 3 * GsiSocket::kMessages; ++i) {
    send(AF_INET, packet(AF_INET, [&](Bytes& bytes) { bytes.resize(bytes.size() - i); }));  // which are not merged
  }
  send(AF_INET, packet(AF_INET));
  const auto malformed = [this] { return gsi_->counters().get(GsiCounter::kDropMalformed); };
  receive(AF_INET);
  EXPECT_LE(malformed() + taken_.size(), GsiSocket::kMessages);
  EXPECT_GT(malformed() + taken_.size(), 0u);
}

TEST_F(GsiSocketTest, DatagramsLeaveAsTheyShould) {
  for (const int family : {AF_INET, AF_INET6}) {
    const auto& [a, b] = std::pair(veth_->a(), veth_->b());
    gsi_->send({.netdev = static_cast<uint32_t>(a.ifindex),
                .source = family == AF_INET ? a.v4 : a.v6,
                .destination = family == AF_INET ? b.v4 : b.v6,
                .traffic_class = 0x28,
                .hop_limit = 7,
                .mad = some_mad()},
               now_);
    EXPECT_EQ(gsi_->counters().get(GsiCounter::kDropNotSent), 0u);
    const int socket = (family == AF_INET ? far_v4_ : far_v6_).get();
    Bytes buffer(65536);
    io::UdpRxSlot slot;
    msghdr message;
    io::prepare_receive(slot, buffer, message);
    pollfd wait{socket, POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 20'000), 1);
    const ssize_t size = recvmsg(socket, &message, 0);
    ASSERT_EQ(size, static_cast<ssize_t>(wire::kGsiPacketSize + 4));
    io::UdpArrival arrival;
    uint32_t lost = 0;
    ASSERT_TRUE(io::parse_received(message, static_cast<size_t>(size), arrival, lost));
    EXPECT_EQ(arrival.envelope.source, family == AF_INET ? a.v4 : a.v6);
    EXPECT_EQ(arrival.envelope.traffic_class, 0x28);
    EXPECT_EQ(arrival.envelope.hop_limit, 7);
    wire::Envelope as_sent = arrival.envelope;
    as_sent.ip_id = 0;
    as_sent.ip_id_known = true;
    EXPECT_TRUE(wire::icrc_matches(as_sent, arrival.bytes)) << "with ID 0 and no other";
    const auto bth = wire::Bth::parse(wire::BthView::at(arrival.bytes.data()));
    EXPECT_EQ(bth.opcode, wire::Opcode::kUdSendOnly);
    EXPECT_EQ(bth.dest_qp, wire::kGsiQpn);
    EXPECT_EQ(bth.pkey, wire::Bth::kDefaultPkey);
    const auto deth = wire::Deth::parse(wire::DethView::at(arrival.bytes.data() + wire::Bth::kSize));
    EXPECT_EQ(deth.qkey, wire::kGsiQkey);
    EXPECT_EQ(deth.source_qp, wire::kGsiQpn);
  }
}

TEST_F(GsiSocketTest, WhatIsForThisHostDoesNotLeave) {
  const auto& a = veth_->a();
  const cm::Datagram datagram{
      .netdev = static_cast<uint32_t>(a.ifindex), .source = a.v4, .destination = a.v4, .mad = some_mad()};
  for (size_t i = 0; i < GsiSocket::kMostWaiting + 10; ++i) gsi_->send(datagram, now_);
  EXPECT_EQ(gsi_->counters().get(GsiCounter::kDropNoRoom), 10u);
  EXPECT_TRUE(taken_.empty()) << "not before the turn";
  EXPECT_LE(gsi_->deadline(), now_);
  gsi_->work(now_);
  EXPECT_EQ(taken_.size(), GsiSocket::kMostInATurn);
  while (gsi_->deadline() != kNever) gsi_->work(now_);
  EXPECT_EQ(taken_.size(), GsiSocket::kMostWaiting);
}

// Who has an address of this host at the other end of the wire.
TEST_F(GsiSocketTest, DropsWhatSaysThatItIsFromThisHost) {
  VethPair::run(veth_->b(), "ip -6 address add " + veth_->a().v6.text() + "/128 dev " + veth_->b().netdev + " nodad");
  VethPair::run(veth_->b(), "ip -6 address add fd99::1/64 dev " + veth_->b().netdev + " nodad");
  VethPair::run(veth_->a(), "ip -6 address add fd99::2/64 dev " + veth_->a().netdev + " nodad");
  uint8_t there[16];
  ASSERT_EQ(inet_pton(AF_INET6, "fd99::2", there), 1);
  wire::Envelope forged = envelope(AF_INET6);
  forged.source = veth_->a().v6;
  forged.destination = wire::IpAddress::v6(there);
  Bytes bytes(wire::kGsiPacketSize);
  wire::emit_gsi_packet(wire::Psn(5), some_mad(), bytes.data());
  const uint32_t crc = wire::icrc(forged, bytes);
  bytes.resize(bytes.size() + 4);
  wire::store_le32(&bytes[bytes.size() - 4], crc);
  io::UdpTxSlot slot;
  msghdr message;
  io::prepare_send(slot, forged, veth_->b().ifindex, bytes, bytes.size(), message);
  ASSERT_EQ(sendmsg(far_v6_.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  receive(AF_INET6);
  EXPECT_EQ(gsi_->counters().get(GsiCounter::kDropForged), 1u);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(GsiSocketTest, FaultsAreCountedAndRepeatable) {
  const auto run = [this] {
    start(io::FaultSpec{.drop = 0.2, .duplicate = 0.2, .reorder = 0.2, .seed = 9});
    taken_.clear();
    const auto& a = veth_->a();
    for (uint8_t i = 0; i < 200; ++i) {
      cm::Datagram datagram{.netdev = static_cast<uint32_t>(a.ifindex), .source = a.v4, .destination = a.v4};
      datagram.mad.fill(i);
      gsi_->send(datagram, now_);
      gsi_->work(now_);
    }
    Time later = now_;
    while (gsi_->deadline() != kNever) gsi_->work(later = std::max(later, gsi_->deadline()));
    std::vector<uint8_t> order;
    for (const cm::Datagram& datagram : taken_) order.push_back(datagram.mad[0]);
    return order;
  };
  const auto first = run();
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  for (const GsiCounter counter :
       {GsiCounter::kFaultDropped, GsiCounter::kFaultDuplicated, GsiCounter::kFaultDelayed}) {
    EXPECT_GT(gsi_->counters().get(counter), 10u) << GsiCounters::text(counter);
  }
  EXPECT_EQ(run(), first) << "the same seed, the same faults";
}

}  // namespace
}  // namespace uroce::broker
