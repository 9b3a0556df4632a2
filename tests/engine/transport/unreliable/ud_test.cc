// SPDX-License-Identifier: BSD-2-Clause
// What a UD QP does with datagrams: takes those of its Q_Key, with the network header in front, and drops the others
// (IBTA 9.8.3).
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/scripted_qp.h"
#include "wire/ip_udp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

constexpr uint32_t kGrh = 40;

class UdReceiver : public testing::Test {
 protected:
  UdReceiver() {
    host_.envelope.source = wire::IpAddress::v4(std::array<uint8_t, 4>{10, 1, 2, 3}.data());
    host_.envelope.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{10, 1, 2, 4}.data());
    host_.envelope.traffic_class = 0x28;
    host_.envelope.hop_limit = 63;
    host_.to_rts();
  }
  PeerPacket datagram_of(const Bytes& data, uint32_t qkey = kQkey) {
    return request(Opcode::kUdSendOnly, 900, data).datagram(qkey, 0x333);
  }
  ScriptedQp host_{{.type = QpType::kUd}};
  Buffer buffer_ = host_.make_buffer(4 * kMtu);
};

TEST_F(UdReceiver, PayloadStandsBehindTheNetworkHeader) {
  for (const uint32_t size : {0u, 1u, 7u, kMtu}) {
    SCOPED_TRACE(size);
    host_.post_receive(1, {buffer_.sge(0, kGrh + kMtu)});
    host_.receive(datagram_of(pattern(size, 5)));
    const std::vector<queue::Cqe> receives = host_.receives();
    ASSERT_THAT(receives, ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
    EXPECT_EQ(receives[0].opcode, WcOpcode::kReceive);
    EXPECT_EQ(receives[0].byte_length, kGrh + size);
    EXPECT_EQ(receives[0].source_qpn, 0x333u);
    EXPECT_EQ(receives[0].flags, queue::kWcGrh);
    EXPECT_FALSE(receives[0].solicited);
    EXPECT_EQ(part(buffer_.bytes, kGrh, size), pattern(size, 5));
  }
}

// wire.md "UD receive": 20 zero bytes and the IPv4 header with a valid checksum.
TEST_F(UdReceiver, Ipv4Header) {
  host_.post_receive(1, {buffer_.sge(0, kGrh + kMtu)});
  host_.receive(datagram_of(pattern(5)));
  EXPECT_THAT(part(buffer_.bytes, 0, 20), Each(0));
  const Bytes ip = part(buffer_.bytes, 20, 20);
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(ip[1], 0x28);
  EXPECT_EQ(ip[2] << 8 | ip[3], 20 + 8 + 12 + 8 + 8 + 4) << "IP, UDP, BTH, DETH, payload and pad, ICRC";
  EXPECT_EQ(ip[8], 63);
  EXPECT_EQ(ip[9], 17);
  EXPECT_THAT(part(ip, 12, 8), ElementsAre(10, 1, 2, 3, 10, 1, 2, 4));
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(ip[i] << 8 | ip[i + 1]);
  sum = (sum & 0xffff) + (sum >> 16);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu) << "the header checksum is valid";
}

TEST_F(UdReceiver, Ipv6Header) {
  Bytes source(16), destination(16);
  for (uint8_t i = 0; i < 16; ++i) {
    source[i] = static_cast<uint8_t>(0x20 + i);
    destination[i] = static_cast<uint8_t>(0x40 + i);
  }
  host_.envelope.source = wire::IpAddress::v6(source.data());
  host_.envelope.destination = wire::IpAddress::v6(destination.data());
  host_.envelope.flow_label = 0x54321;
  host_.post_receive(1, {buffer_.sge(0, kGrh + kMtu)});
  host_.receive(datagram_of(pattern(5)));
  const Bytes& ip = buffer_.bytes;
  EXPECT_EQ(ip[0] >> 4, 6);
  EXPECT_EQ((ip[0] & 0xf) << 4 | ip[1] >> 4, 0x28);
  EXPECT_EQ((ip[1] & 0xf) << 16 | ip[2] << 8 | ip[3], 0x54321);
  EXPECT_EQ(ip[4] << 8 | ip[5], 8 + 12 + 8 + 8 + 4);
  EXPECT_EQ(ip[6], 17);
  EXPECT_EQ(ip[7], 63);
  EXPECT_EQ(part(ip, 8, 16), source);
  EXPECT_EQ(part(ip, 24, 16), destination);
}

TEST_F(UdReceiver, HeaderAndPayloadAreScatteredOverTheSges) {
  host_.post_receive(1, {buffer_.sge(0, 30), buffer_.sge(100, 15), buffer_.sge(200, kMtu)});
  host_.receive(datagram_of(pattern(50, 5)));
  ASSERT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  EXPECT_EQ(part(buffer_.bytes, 110, 5), part(pattern(50, 5), 0, 5));
  EXPECT_EQ(part(buffer_.bytes, 200, 45), part(pattern(50, 5), 5, 45));
}

TEST_F(UdReceiver, ImmediateAndSolicited) {
  host_.post_receive(1, {buffer_.sge(0, kGrh)});
  host_.receive(request(Opcode::kUdSendOnlyImmediate, 1).datagram(kQkey, 5).immediate(0xaa55).solicited());
  const std::vector<queue::Cqe> receives = host_.receives();
  ASSERT_THAT(receives, SizeIs(1));
  EXPECT_EQ(receives[0].flags, queue::kWcGrh | queue::kWcWithImmediate);
  EXPECT_EQ(receives[0].immediate_or_rkey, 0xaa55u);
  EXPECT_TRUE(receives[0].solicited);
}

TEST_F(UdReceiver, AnyPsnIsAsGoodAsAnother) {
  for (const uint32_t psn : {5u, 5u, 0xffffffu, 0u, 0x800000u}) {
    host_.post_receive(psn, {buffer_.sge(0, kGrh)});
    host_.receive(request(Opcode::kUdSendOnly, psn).datagram(kQkey, 5));
    EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(psn, WcStatus::kSuccess)));
  }
}

TEST_F(UdReceiver, WrongQkeyIsDropped) {
  host_.post_receive(1, {buffer_.sge(0, kGrh + kMtu)});
  for (int bit = 0; bit < 32; ++bit) host_.receive(datagram_of(pattern(5), kQkey ^ 1u << bit));
  EXPECT_EQ(host_.count(Counter::kDropWrongQkey), 32u);
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(host_.rq.available(), 1u);
  EXPECT_EQ(buffer_.bytes, pattern(4 * kMtu, 3));
}

TEST_F(UdReceiver, NewQkeyCountsFromTheNextDatagramOn) {
  QpAttributes a = default_attributes();
  a.qkey = 0x80010000;
  ASSERT_EQ(host_.modify(QpState::kRts, kQpState | kQpQkey, a), 0);
  host_.post_receive(1, {buffer_.sge(0, kGrh)});
  host_.receive(datagram_of({}));
  EXPECT_THAT(host_.receives(), IsEmpty());
  host_.receive(datagram_of({}, 0x80010000));
  EXPECT_THAT(host_.receives(), SizeIs(1));
}

TEST_F(UdReceiver, WithoutAReceiveRequestItIsLost) {
  host_.receive(datagram_of(pattern(5)));
  EXPECT_EQ(host_.count(Counter::kDropNoReceive), 1u);
  EXPECT_THAT(host_.drain(), IsEmpty());
  host_.post_receive(1, {buffer_.sge(0, kGrh + 5)});
  host_.receive(datagram_of(pattern(5)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess))) << "exactly large enough";
}

TEST_F(UdReceiver, LongerThanTheReceiveRequestIsLostAndTheRequestStays) {
  host_.post_receive(1, {buffer_.sge(0, kGrh + 4)});
  host_.post_receive(2, {buffer_.sge(0, kGrh + kMtu)});
  host_.receive(datagram_of(pattern(5)));
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_EQ(host_.count(Counter::kDropMessage), 1u);
  EXPECT_EQ(buffer_.bytes, pattern(4 * kMtu, 3));
  host_.receive(datagram_of(pattern(4)));
  host_.receive(datagram_of(pattern(5)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
}

// Whatever the receive request has room for: a peer can send it in IP fragments, which sockets put together.
TEST_F(UdReceiver, LongerThanThePathMtuIsLostAndTheRequestStays) {
  host_.post_receive(1, {buffer_.sge(0, kGrh + 2 * kMtu)});
  for (const uint32_t size : {kMtu + 1, 2 * kMtu}) host_.receive(datagram_of(pattern(size)));
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kDropMessage), 2u);
  EXPECT_EQ(buffer_.bytes, pattern(4 * kMtu, 3));
  host_.receive(datagram_of(pattern(kMtu)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
}

TEST_F(UdReceiver, ReceiveBufferThatMayNotBeWrittenEndsTheQp) {
  host_.post_receive(1, {{kIova, kGrh + kMtu, buffer_.key + 1}});
  host_.receive(datagram_of(pattern(5)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(UdReceiver, PacketsOfOtherTransportsAreDropped) {
  host_.post_receive(1, {buffer_.sge(0, kGrh + kMtu)});
  for (const Opcode opcode : {Opcode::kRcSendOnly, Opcode::kUcSendOnly, Opcode::kXrcSendOnly}) {
    host_.receive(request(opcode, 1, pattern(8)));
  }
  host_.receive(PeerPacket(Opcode::kCnp, 0));
  EXPECT_EQ(host_.count(Counter::kDropWrongTransport), 4u);
  EXPECT_THAT(host_.receives(), IsEmpty());
}

TEST(UdStates, ReceivesInEveryStateFromReadyToReceiveOnButNotInError) {
  ScriptedQp host{{.type = QpType::kUd}};
  host.to_init();
  Buffer buffer = host.make_buffer(kMtu);
  for (uint64_t i = 0; i < 4; ++i) host.post_receive(i, {buffer.sge(0, kGrh)});
  const auto arrives = [&] {
    host.receive(request(Opcode::kUdSendOnly, 1).datagram(kQkey, 5));
    return host.receives().size() == 1;
  };
  EXPECT_FALSE(arrives());
  ASSERT_EQ(host.modify(QpState::kRtr, rtr_mask(QpType::kUd)), 0);
  EXPECT_TRUE(arrives());
  EXPECT_THAT(host.events, IsEmpty()) << "nobody established anything";
  ASSERT_EQ(host.modify(QpState::kRts, rts_mask(QpType::kUd)), 0);
  host.post(work(queue::WrOpcode::kRdmaRead, 7));
  EXPECT_THAT(host.pull(), IsEmpty());
  ASSERT_EQ(host.qp.state(), QpState::kSqe);
  EXPECT_TRUE(arrives());
  ASSERT_EQ(host.modify(QpState::kRts, kQpState), 0);
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState), 0);
  EXPECT_TRUE(arrives());
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  host.receives();
  EXPECT_FALSE(arrives());
}

TEST(UdShared, SharedReceiveQueueOfAnotherProtectionDomain) {
  ScriptedQp host{{.type = QpType::kUd, .rq_shared = true, .rq_pd = kPd + 1}};
  host.to_rts();
  Buffer theirs{pattern(kMtu)}, ours{pattern(kMtu), 0x5000};
  host.add(theirs, {.access = memory::kLocalWrite, .pd = kPd + 1});
  host.add(ours, {.access = memory::kLocalWrite});
  host.post_receive(1, {theirs.sge(0, kMtu)});
  host.receive(request(Opcode::kUdSendOnly, 1, pattern(8)).datagram(kQkey, 5));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kSuccess)));
  host.post_receive(2, {ours.sge(0, kMtu)});
  host.receive(request(Opcode::kUdSendOnly, 1, pattern(8)).datagram(kQkey, 5));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(2, WcStatus::kLocalProtectionError)));
  EXPECT_THAT(host.events, Contains(AsyncEvent::kQpLastWqeReached));
}

TEST(UdShared, ReceiveRequestThatIsTooShortIsGivenBackAndTheQpGoesOn) {
  ScriptedQp host{{.type = QpType::kUd, .rq_shared = true}};
  host.to_rts();
  Buffer buffer = host.make_buffer(kMtu);
  host.post_receive(1, {buffer.sge(0, 44)});
  host.post_receive(2, {buffer.sge(0, kMtu)});
  host.receive(request(Opcode::kUdSendOnly, 1, pattern(8)).datagram(kQkey, 5));
  host.receive(request(Opcode::kUdSendOnly, 1, pattern(8)).datagram(kQkey, 5));
  EXPECT_THAT(host.receives(),
              ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError), IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

}  // namespace
}  // namespace uroce::transport::test
