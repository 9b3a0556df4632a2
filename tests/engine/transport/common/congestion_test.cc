// CNPs at the QP (IBTA annex A17, wire.md "ConnectX and DCQCN"): marks are answered with a CNP, CNPs slow the QP down.
// Faults 30 and 31. The laws of the rate are tested in tests/engine/congestion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(Congestion, ResetForgetsTheRate) {
  for (int i = 0; i < 2000; ++i) {
    receive_cnp();
    host_.advance(microseconds(4));
  }
  ASSERT_EQ(host_.modify(QpState::kReset, kQpState), 0);
  host_.to_rts();
  for (uint64_t id = 0; id < 100; ++id) host_.post(work(WrOpcode::kSend, id), {buffer_.sge(0, kMtu)});
  EXPECT_EQ(pull_count(), 100u);
}

}  // namespace
}  // namespace uroce::transport::test
