// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run_peers.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "engine/io/udp/message.h"
#include "engine/io/udp/receiver.h"
#include "engine/io/udp/socket.h"
#include "engine/io/udp/udp.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/icrc.h"

namespace uroce::io::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using wire::Opcode;
using Bytes = std::vector<uint8_t>;

RunPeers::Clock::time_point now;
RunPeers::Clock::duration took{};  // from one look at the clock to the next

// What UdpIo has for one IP version, with a clock of the test's.
struct Side {
  Side(const VethPair::End& end, bool v4) {
    VethPair::enter(end);
    EXPECT_FALSE(socket.open(v4 ? AF_INET : AF_INET6, end.netdev));
    peers = std::make_unique<RunPeers>(socket.fd(), end.ifindex, [] { return std::exchange(now, now + took); });
    receiver = std::make_unique<UdpReceiver>(socket.fd(), 0, *peers, counters, notices);
  }
  // Packets that are for QPs.
  size_t receive() {
    std::array<RxPacket, 8> packets;
    return receiver->receive(packets);
  }
  // What the kernel has received instead.
  std::vector<Bytes> messages() const {
    std::vector<Bytes> all;
    Bytes bytes(1000);
    for (ssize_t size; (size = recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT)) >= 0;) {
      all.emplace_back(bytes.begin(), bytes.begin() + size);
    }
    return all;
  }

  UdpSocket socket;
  IoCounters counters;
  std::unique_ptr<RunPeers> peers;
  Notices notices;
  std::unique_ptr<UdpReceiver> receiver;
};

class AskingForRuns : public testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kQuestion = 48, kAnswer = 24;  // bytes

  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    now = RunPeers::Clock::time_point(1h);
    veth_ = std::make_unique<VethPair>();
    a_ = std::make_unique<Side>(veth_->a(), GetParam());
    b_ = std::make_unique<Side>(veth_->b(), GetParam());
    burst_.add(envelope(), 0, 8, 1, Opcode::kUcSendOnly);
  }
  wire::Envelope envelope() const {
    return GetParam() ? VethPair::envelope_v4(veth_->a(), veth_->b()) : VethPair::envelope_v6(veth_->a(), veth_->b());
  }
  static wire::IpAddress group() {
    wire::IpAddress v6;
    v6.bytes = {0xff, 0x0e, 1};
    return GetParam() ? ipv4(239, 77, 1, 1) : v6;
  }
  bool allowed() { return a_->peers->allow(burst_.packets()[0]); }
  // When it asks while it has packets all the time.
  std::vector<int> seconds_of_questions(int seconds) {
    std::vector<int> asked_at;
    for (int i = 0; i < seconds; ++i, now += 1s) {
      allowed();
      for (size_t questions = b_->messages().size(); questions > 0; --questions) asked_at.push_back(i);
    }
    return asked_at;
  }
  // As the kernel says of one that has arrived.
  wire::Envelope envelope_of_question() const {
    wire::Envelope envelope = this->envelope();
    envelope.source_port = wire::kRoceUdpPort;
    envelope.ip_id_known = false;
    return envelope;
  }
  // The two packets of one that a_ asks now.
  std::pair<Bytes, Bytes> question() {
    allowed();
    std::vector<Bytes> questions = b_->messages();
    EXPECT_THAT(questions, ElementsAre(testing::SizeIs(kQuestion)));
    if (questions.size() != 1) return {};
    const Bytes both = std::move(questions.front());
    return {Bytes(both.begin(), both.begin() + kAnswer), Bytes(both.begin() + kAnswer, both.end())};
  }
  // As if `ib` had arrived at `side`.
  static bool take(Side& side, const wire::Envelope& envelope, const Bytes& ib) {
    RxPacket packet;
    packet.envelope = envelope;
    packet.ib = ib;
    return side.peers->take(packet);
  }
  static Bytes sealed(const wire::Envelope& envelope, Bytes ib) {
    wire::store_le32(&ib[ib.size() - 4], wire::icrc(envelope, std::span(ib).first(ib.size() - 4)));
    return ib;
  }

  std::unique_ptr<VethPair> veth_;
  std::unique_ptr<Side> a_, b_;
  TestBurst burst_;
};

INSTANTIATE_TEST_SUITE_P(, AskingForRuns, testing::Values(true, false),
                         [](const auto& version) { return version.param ? "IPv4" : "IPv6"; });

TEST_P(AskingForRuns, RunsLeaveOnceThePeerHasAnswered) {
  EXPECT_FALSE(allowed());
  EXPECT_EQ(a_->receive(), 0u);
  EXPECT_FALSE(allowed());
  EXPECT_EQ(b_->receive(), 0u) << "questions are not for QPs";
  EXPECT_EQ(a_->receive(), 0u);
  EXPECT_TRUE(allowed());
  EXPECT_EQ(b_->counters.rx_packets + a_->counters.rx_packets, 0u);
}

// And multicast groups are not asked: there are many peers.
TEST_P(AskingForRuns, OnlyOfPacketsThatNobodyAcknowledges) {
  wire::Envelope to_group = envelope();
  to_group.destination = group();
  group_req membership{.gr_interface = static_cast<uint32_t>(veth_->b().ifindex), .gr_group = {}};
  UdpTxSlot slot;
  msghdr message;
  prepare_send(slot, to_group, 0, {}, 1, message);
  std::memcpy(&membership.gr_group, message.msg_name, message.msg_namelen);
  ASSERT_EQ(setsockopt(b_->socket.fd(), GetParam() ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &membership,
                       sizeof(membership)),
            0);
  burst_.add(envelope(), 0, 8);
  burst_.add(envelope(), 0, 8, 1, Opcode::kXrcSendOnly);
  burst_.add(envelope(), 0, 8, 1, Opcode::kUdSendOnly);
  burst_.add(to_group, 0, 8, 1, Opcode::kUdSendOnly);
  EXPECT_TRUE(a_->peers->allow(burst_.packets()[1]));
  EXPECT_TRUE(a_->peers->allow(burst_.packets()[2]));
  EXPECT_FALSE(a_->peers->allow(burst_.packets()[4]));
  EXPECT_THAT(b_->messages(), IsEmpty());
  EXPECT_FALSE(a_->peers->allow(burst_.packets()[3]));
  EXPECT_THAT(b_->messages(), ElementsAre(testing::SizeIs(kQuestion)));
}

TEST_P(AskingForRuns, ASilentPeerIsAskedEverLessOften) {
  EXPECT_THAT(seconds_of_questions(200), ElementsAre(0, 1, 3, 7, 15, 31, 63, 123, 183));
  EXPECT_FALSE(allowed());
}

// It may have become another one.
TEST_P(AskingForRuns, APeerThatFallsSilentIsTrustedForAWhile) {
  allowed();
  b_->receive();
  a_->receive();
  EXPECT_TRUE(allowed());
  now += 1s;
  EXPECT_THAT(seconds_of_questions(1), ElementsAre(0));
  EXPECT_THAT(seconds_of_questions(1), ElementsAre(0));
  now -= 1ns;
  EXPECT_TRUE(allowed());
  now += 1ns;
  EXPECT_FALSE(allowed());
}

TEST_P(AskingForRuns, ThoseWhoAnswerAreAskedEverySecond) {
  for (int i = 0; i < 20; ++i, now += 1s) {
    EXPECT_EQ(allowed(), i > 0);
    b_->receive();
    a_->receive();
    EXPECT_TRUE(allowed());
  }
}

// Somebody who has not got the question, or a packet that was damaged.
TEST_P(AskingForRuns, ForgedAnswersDoNotCount) {
  allowed();
  b_->receive();
  const std::vector<Bytes> answers = a_->messages();
  ASSERT_THAT(answers, ElementsAre(testing::SizeIs(kAnswer)));
  wire::Envelope back = envelope();
  std::swap(back.source, back.destination);
  back.source_port = wire::kRoceUdpPort;
  back.ip_id = 0;
  for (size_t i = 0; i < kAnswer; ++i) {
    Bytes damaged = answers[0];
    damaged[i] ^= 0x10;
    take(*a_, back, damaged);
    if (i >= 16 && i < 20) take(*a_, back, sealed(back, damaged));  // the cookie
    EXPECT_EQ(allowed(), i == 4) << i;                              // FECN, BECN and reserved bits are not covered
    if (i == 4) now += RunPeers::kTrust;
  }
  wire::Envelope stranger = back;
  stranger.source.bytes[15] ^= 1;
  EXPECT_TRUE(take(*a_, stranger, sealed(stranger, answers[0])));
  EXPECT_FALSE(allowed());
  EXPECT_TRUE(take(*a_, back, answers[0]));
  EXPECT_TRUE(allowed());
  for (const uint8_t opcode : {0x24, 0xc2, 0xff}) {
    Bytes other = answers[0];
    other[0] = opcode;
    EXPECT_FALSE(take(*a_, back, sealed(back, other))) << "that is for others to count";
  }
}

// The first packet says nothing: where runs are lost it may arrive alone.
TEST_P(AskingForRuns, TheSecondPacketOfAQuestionIsAnswered) {
  wire::Envelope to = envelope_of_question();
  const auto [first, second] = question();
  EXPECT_TRUE(take(*b_, to, first));
  EXPECT_THAT(a_->messages(), IsEmpty());
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), ElementsAre(testing::SizeIs(kAnswer)));
  now += RunPeers::kAnswerInterval - 1ns;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), IsEmpty()) << "whoever floods it with questions";
  now += 1ns;
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), ElementsAre(testing::SizeIs(kAnswer)));
  now += 1s;
  to.destination = group();
  EXPECT_FALSE(take(*b_, to, sealed(to, second)));
}

// Who waits at a socket of this host is woken by who sends there, and may be millions: nobody makes a process send them
// answers.
TEST_P(AskingForRuns, ThisHostIsNotAnsweredNorWhoeverTakesLong) {
  const wire::Envelope to = envelope_of_question();
  const Bytes second = question().second;
  b_->peers->set_local_addresses({&to.source, 1});
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), IsEmpty());
  b_->peers->set_local_addresses({&to.destination, 1});
  took = 60ms;
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), ElementsAre(testing::SizeIs(kAnswer)));
  took = 0ms;
  now += (RunPeers::kShareOfAnswers - 3) * 60ms;
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), IsEmpty());
  now += 60ms;
  EXPECT_TRUE(take(*b_, to, second));
  EXPECT_THAT(a_->messages(), ElementsAre(testing::SizeIs(kAnswer)));
}

TEST_P(AskingForRuns, OfSoManyPeersAtATime) {
  TestBurst others;
  for (size_t i = 0; i < RunPeers::kPeers; ++i) {
    wire::Envelope to = envelope();
    to.destination.bytes[15] = static_cast<uint8_t>(100 + i);
    others.add(to, 0, 8, 1, Opcode::kUdSendOnly);
  }
  const auto all_but = [&](size_t n) {
    for (size_t i = 0; i < others.size() - n; ++i) EXPECT_FALSE(a_->peers->allow(others.packets()[i]));
  };
  all_but(0);
  EXPECT_THAT(seconds_of_questions(1), IsEmpty());
  for (int i = 0; i < 10; ++i, now += 1s) all_but(1);
  EXPECT_THAT(seconds_of_questions(1), ElementsAre(0)) << "in the place of who has no packets any more";
}

// Through UdpIo: UC leaves alone, then in runs.
TEST_P(AskingForRuns, BurstsOfUdpIo) {
  a_.reset();
  b_.reset();
  const auto open = [](const VethPair::End& end) {
    VethPair::enter(end);
    return std::get<std::unique_ptr<UdpIo>>(UdpIo::open({.netdev = end.netdev, .ifindex = end.ifindex}));
  };
  const auto a = open(veth_->a()), b = open(veth_->b());
  for (const Opcode opcode : {Opcode::kUcSendOnly, Opcode::kUcSendMiddle}) {
    TestBurst burst;
    for (uint32_t psn = 0; psn < 100; ++psn) burst.add(envelope(), psn, 1024, 1, opcode);
    const bool first = opcode == Opcode::kUcSendOnly;
    exchange(*a, *b, burst);
    EXPECT_EQ(a->counters().tx_run_packets, first ? 0u : 100u);
    std::array<RxPacket, 4> none;
    for (int i = 0; i < 40; ++i) EXPECT_EQ(a->receive(none), 0u);  // the answer
  }
  EXPECT_EQ(b->counters().rx_packets, 200u);
}

}  // namespace
}  // namespace uroce::io::test
