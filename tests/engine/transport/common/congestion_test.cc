// SPDX-License-Identifier: BSD-2-Clause
// CNPs at the QP (IBTA annex A17, wire.md "ConnectX and DCQCN"): marks are answered with a CNP, CNPs slow the QP down.
// Faults 30 and 31. The laws of the rate are tested in tests/engine/congestion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WrOpcode;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::Opcode;

// As it arrives, ICRC included.
Bytes cnp_bytes() {
  wire::Bth bth;
  bth.opcode = Opcode::kCnp;
  bth.becn = true;
  bth.dest_qp = wire::Qpn(kQpn);
  Bytes bytes(wire::kBthSize + wire::kCnpReservedSize + wire::kIcrcSize);
  bth.emit(bytes.data());
  return bytes;
}

class Congestion : public testing::Test {
 protected:
  Congestion() { host_.to_rts(); }
  void receive_cnp() {
    const Bytes bytes = cnp_bytes();
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
    host_.qp.on_packet(packet, host_.now);
  }
  // What the engine does with a packet whose IP header says CE.
  void receive_marked(const PeerPacket& packet) {
    host_.qp.on_congestion_mark(host_.now);
    host_.receive(packet);
  }
  size_t pull_count() {
    size_t count = 0;
    io::TxPacket packet;
    while (host_.qp.pull(packet, host_.now)) ++count;
    return count;
  }
  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(64 * kMtu);
};

TEST_F(Congestion, AMarkIsAnsweredWithACnpAheadOfEverything) {
  receive_marked(request(Opcode::kRcWriteOnly, kRqPsn).ack_request());
  host_.post(work(WrOpcode::kSend, 1));
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now));
  io::TxPacket out;
  ASSERT_TRUE(host_.qp.pull(out, host_.now));
  EXPECT_TRUE(out.priority);
  EXPECT_EQ(out.header_size, 28);
  EXPECT_EQ(out.payload_size, 0u);
  const wire::Bth bth = wire::Bth::parse(wire::BthView::at(out.header.data()));
  EXPECT_EQ(bth.opcode, Opcode::kCnp);
  EXPECT_TRUE(bth.becn);
  EXPECT_EQ(bth.psn, wire::Psn(0));
  EXPECT_EQ(bth.pkey, 0xffff);
  EXPECT_EQ(bth.dest_qp, wire::Qpn(kPeerQpn));
  EXPECT_TRUE(std::all_of(out.header.begin() + 12, out.header.begin() + 28, [](uint8_t b) { return b == 0; }));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn)));
}

// Fault 31.
TEST_F(Congestion, MarksOnEveryPacketGiveLimitedCnps) {
  for (uint32_t n = 0; n < 1000; ++n) {
    receive_marked(request(Opcode::kRcWriteOnly, kRqPsn + n));
    (void)pull_count();
    host_.advance(std::chrono::nanoseconds(100));
  }
  EXPECT_EQ(host_.count(Counter::kRxCongestionMarks), 1000u);
  EXPECT_EQ(host_.count(Counter::kTxCnps), 25u) << "100 us, one in 4 us";
}

TEST_F(Congestion, NothingIsHeldBackWithoutCnps) {
  for (uint64_t id = 0; id < 100; ++id) host_.post(work(WrOpcode::kSend, id));
  EXPECT_EQ(pull_count(), 100u);
}

// Fault 30: down to the floor, alive, and back.
TEST_F(Congestion, AFloodOfCnpsSlowsTheQpToAFloorFromWhichItRecovers) {
  uint32_t sent = 0;
  uint64_t posted = 0, completed = 0;
  const auto run = [&](milliseconds time, bool flood) {
    const uint32_t before = sent;
    for (const Time end = host_.now + time; host_.now < end; host_.advance(microseconds(1))) {
      if (flood) receive_cnp();
      if (posted - completed < 8) host_.post(work(WrOpcode::kSend, posted++), {buffer_.sge(0, kMtu)});
      if (host_.qp.deadline() <= host_.now) host_.qp.on_timer(host_.now);
      for (size_t n = pull_count(); n > 0; --n) host_.receive(ack(kSqPsn + sent++));
      completed += host_.sends().size();
    }
    return sent - before;
  };
  EXPECT_GT(run(milliseconds(10), false), 5000u) << "one a microsecond";
  run(milliseconds(20), true);  // the rate is at its floor by then
  const uint32_t at_the_floor = run(milliseconds(100), true);
  EXPECT_GE(at_the_floor, 30u);  // 1 Mb/s, 288 bytes with headers each: 2.3 ms
  EXPECT_LE(at_the_floor, 60u);
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  run(milliseconds(20), false);
  EXPECT_GT(run(milliseconds(10), false), 5000u) << "recovered";
  EXPECT_EQ(completed, sent);
  EXPECT_EQ(host_.count(Counter::kTxRetransmissions), 0u) << "what is held back does not time out";
}

TEST_F(Congestion, HeldBackItSleepsUntilItMaySend) {
  for (int i = 0; i < 2000; ++i) {
    receive_cnp();
    host_.advance(microseconds(4));
  }
  for (uint64_t id = 0; id < 10; ++id) host_.post(work(WrOpcode::kSend, id), {buffer_.sge(0, kMtu)});
  (void)pull_count();
  const Time deadline = host_.qp.deadline();
  EXPECT_GT(deadline, host_.now);
  EXPECT_LT(deadline, host_.now + milliseconds(40));
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
  host_.now = deadline;
  host_.qp.on_timer(host_.now);
  EXPECT_TRUE(host_.qp.wants_to_send(host_.now) || host_.qp.deadline() > host_.now);
}

// What is held back has a time also after the QP has failed: the NAK that tells why waits behind the responses.
TEST_F(Congestion, HeldBackResponsesAndTheNakBehindThemLeaveAfterTheQpHasFailed) {
  for (int i = 0; i < 2000; ++i) {
    receive_cnp();
    host_.advance(microseconds(4));
  }
  host_.receive(read_request(kRqPsn, buffer_.iova, buffer_.key, 4 * kMtu));
  host_.receive(request(Opcode::kRcWriteMiddle, kRqPsn + 4));  // of nothing
  ASSERT_EQ(host_.qp.state(), QpState::kErr);
  std::vector<SentPacket> sent = host_.pull();
  for (int i = 0; i < 100 && sent.size() < 5; ++i) {
    ASSERT_NE(host_.qp.agenda(host_.now).deadline, kNever);
    host_.expire();
    for (SentPacket& packet : host_.pull()) sent.push_back(std::move(packet));
  }
  ASSERT_THAT(sent, SizeIs(5));
  EXPECT_EQ(sent.back().headers.bth.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(host_.qp.agenda(host_.now).deadline, kNever);
}

TEST_F(Congestion, CnpsOfAQpThatIsNotConnectedAreDropped) {
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  receive_cnp();
  EXPECT_EQ(host_.count(Counter::kRxCnps), 0u);
  EXPECT_EQ(host_.count(Counter::kDropQpState), 1u);
}

// The rate is the destination's: it survives a RESET, and another QP to the same destination obeys it.
TEST_F(Congestion, TheRateIsTheDestinations) {
  for (int i = 0; i < 2000; ++i) {
    receive_cnp();
    host_.advance(microseconds(4));
  }
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  host_.to_rts();
  for (uint64_t id = 0; id < 100; ++id) host_.post(work(WrOpcode::kSend, id), {buffer_.sge(0, kMtu)});
  EXPECT_LT(pull_count(), 5u);
  host_.qp.obey(nullptr);
  EXPECT_GT(pull_count(), 90u);
}

// --- what the controller is told -------------------------------------------------------------------------------------

class WithDelay : public Congestion {
 protected:
  WithDelay() {
    host_.congestion = congestion::Controller(congestion::Algorithm::kDelay);
    host_.qp.obey(&host_.congestion);
  }
  congestion::Rate rate() { return host_.congestion.rate(host_.now); }
  // `count` messages, each answered after `rtt`; those that ask for it.
  void exchange(int count, Duration rtt, bool again = false) {
    for (int i = 0; i < count; ++i, ++psn_) {
      host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, kMtu)});
      while (pull_count() == 0) host_.now = std::max(host_.now + microseconds(1), host_.qp.deadline());
      host_.advance(rtt);
      if (again) {
        host_.qp.on_timer(host_.now);
        pull_count();
      }
      host_.receive(ack(kSqPsn + psn_));
      (void)host_.sends();
    }
  }
  uint32_t psn_ = 0;
};

TEST_F(WithDelay, LongRoundTripsSlowTheQpDown) {
  exchange(100, microseconds(20));
  EXPECT_EQ(rate(), congestion::Rate::unlimited());
  exchange(10, microseconds(500));
  EXPECT_NE(rate(), congestion::Rate::unlimited());
  EXPECT_GT(host_.count(Counter::kRateCuts), 0u);
}

// Karn: the acknowledgement of what was sent twice says nothing about the time.
TEST_F(WithDelay, WhatWasSentTwiceIsNotTimed) {
  exchange(100, milliseconds(2), true);
  EXPECT_GT(host_.count(Counter::kProbes), 50u);
  EXPECT_EQ(rate(), congestion::Rate::unlimited());
}

TEST_F(WithDelay, LossesAreTold) {
  for (uint64_t id = 0; id < 4; ++id) host_.post(work(WrOpcode::kSend, id), {buffer_.sge(0, kMtu)});
  EXPECT_EQ(pull_count(), 4u);
  host_.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + 1));
  EXPECT_NE(rate(), congestion::Rate::unlimited());
  host_.advance(milliseconds(5));
  EXPECT_EQ(pull_count(), 3u);
  EXPECT_EQ(host_.count(Counter::kRateCuts), 1u) << "one loss, however many packets are sent again for it";
}

// What a timer sends does not wait for the rate, which may be less than a packet in the time of all retries.
TEST_F(WithDelay, TheRetryBudgetLastsAsLongAsItsTimeoutSays) {
  for (const uint8_t timeout : {5, 8, 12}) {
    SCOPED_TRACE(static_cast<int>(timeout));
    QpAttributes attributes = default_attributes();
    attributes.timeout = timeout;
    attributes.retry_count = 3;
    ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
    host_.to_rts(attributes);
    for (int i = 0; i < 40; ++i) {
      host_.advance(milliseconds(1));
      host_.congestion.on_lost(host_.now);
    }
    host_.advance(milliseconds(200));
    host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 8 * kMtu)});
    ASSERT_EQ(pull_count(), 1u);
    const Time start = host_.now;
    const Duration budget = 4 * 4 * LossRecovery::transport_timeout(timeout);
    (void)host_.run_until(start + 2 * budget);
    const auto done = host_.sends();
    ASSERT_THAT(done, SizeIs(1));
    EXPECT_EQ(done[0].status, queue::WcStatus::kRetryExceeded);
    const Duration taken = Time(Duration(static_cast<int64_t>(done[0].timestamp))) - start;
    EXPECT_GE(taken, budget);
    EXPECT_LE(taken, budget + microseconds(10));
  }
}

// Nor does its timer, where the peer has refused what was sent and the rate holds it back.
TEST_F(WithDelay, TheRetransmissionTimerRunsWhileTheRateHoldsBack) {
  QpAttributes attributes = default_attributes();
  attributes.timeout = 5;
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  host_.to_rts(attributes);
  for (int i = 0; i < 40; ++i) {
    host_.advance(milliseconds(1));
    host_.congestion.on_lost(host_.now);
  }
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 8 * kMtu)});
  ASSERT_EQ(pull_count(), 1u);
  host_.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn));
  ASSERT_EQ(pull_count(), 0u) << "held back";
  EXPECT_LE(host_.qp.deadline(), host_.now + 4 * LossRecovery::transport_timeout(5));
  host_.expire();
  EXPECT_EQ(host_.count(Counter::kTimeouts), 1u);
  EXPECT_THAT(host_.pull(1), ElementsAre(HasPsn(kSqPsn)));
}

// A smaller window: fewer packets in flight, and every one of them asks, so that answers come.
TEST_F(WithDelay, ASmallWindowAsksForAcknowledgements) {
  ASSERT_TRUE(host_.congestion.on_lost(host_.now));
  for (int i = 0; i < 40; ++i) {
    host_.advance(milliseconds(1));
    host_.congestion.on_lost(host_.now);
  }
  ASSERT_EQ(host_.congestion.window(kMtu), 1u);
  host_.post(work(WrOpcode::kSend, 1), {buffer_.sge(0, 8 * kMtu)});
  const std::vector<SentPacket> first = host_.pull();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_TRUE(first[0].headers.bth.ack_request);
  host_.advance(milliseconds(50));
  EXPECT_THAT(host_.pull(), IsEmpty()) << "the window is full";
}

}  // namespace
}  // namespace uroce::transport::test
