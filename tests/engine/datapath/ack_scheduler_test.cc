// SPDX-License-Identifier: BSD-2-Clause
// When the data path sends the ACKs that its QPs owe, in relation to what the application sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "tests/engine/datapath/cable_rig.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::engine::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::Opcode;
using enum Datapath::Caller;

constexpr size_t kIb = wire::kEthernetSize + wire::kIpv4Size + wire::kUdpSize;

// `a` sends a message of 8 bytes to `b`, which answers with another.
class Acks : public Cable {
 protected:
  Acks() : asking(a.add(QpType::kRc)), answering(b.add(QpType::kRc)) {
    a.connect(asking, b.address, answering.qpn());
    b.connect(answering, a.address, asking.qpn());
    b.post_receive(answering, 1, 0, 64);
    b.end->record_sent(&frames_);
    a.post(asking, work(WrOpcode::kSend, 1), 4096, 8);
    a.run();
  }
  ~Acks() override { b.end->record_sent(nullptr); }
  void answer() { b.post(answering, work(WrOpcode::kSend, 2), 4096, 8); }
  // Opcodes of what `b` has sent since the last call.
  std::vector<Opcode> sent() {
    std::vector<Opcode> opcodes;
    for (const Bytes& frame : frames_) opcodes.push_back(static_cast<Opcode>(frame[kIb]));
    frames_.clear();
    return opcodes;
  }

  Station &asking, &answering;

 private:
  std::vector<Bytes> frames_;
};

TEST_F(Acks, LeaveBehindTheAnswerOfAnApplicationThatPolls) {
  b.run(kPolling);
  EXPECT_THAT(sent(), IsEmpty());
  answer();
  b.run(kPolling);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcSendOnly, Opcode::kRcAcknowledge));
}

TEST_F(Acks, LeaveInTheNextRoundWithoutAnAnswer) {
  b.run(kPolling);
  b.run(kPolling);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(Acks, LeaveAtOnceInTheBackground) {
  b.run(kBackground);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(Acks, LeaveAtOnceWhenTheyCoverManyMessages) {
  for (uint64_t i = 1; i < transport::Responder::kAckCoalesce; ++i) {
    b.post_receive(answering, 1 + i, 0, 64);
    a.post(asking, work(WrOpcode::kSend, 1 + i), 4096, 8);
  }
  a.run();
  answer();
  b.run(kPolling);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcSendOnly, Opcode::kRcAcknowledge)) << "in the round that took them";
}

// The peer would ask until it gives up.
TEST_F(Acks, LeaveBeforeTheQpIsDestroyed) {
  b.run(kPolling);
  b.destroy(answering);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(Acks, LeaveBeforeTheQpChangesItsState) {
  b.run(kPolling);
  transport::QpAttributes attributes;
  attributes.state = QpState::kErr;
  EXPECT_EQ(b.datapath.modify(*answering.qp, attributes, transport::kQpState, std::nullopt, b.now), 0);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// ib_send_lat -e: the application is awake before the round that woke it is over, has armed the queue again, and its
// answer is posted. The peer would take the event of the answer for that of its own send.
class AckOfAnEvent : public Acks, public testing::WithParamInterface<Datapath::Caller> {};

TEST_P(AckOfAnEvent, LeavesAheadOfTheAnswer) {
  answering.recv_cq.arm(queue::CompletionQueue::Arm::kAny);
  answering.on_event = [this] {
    answering.recv_cq.arm(queue::CompletionQueue::Arm::kAny);
    answer();
  };
  b.run(GetParam());
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge, Opcode::kRcSendOnly));
}

INSTANTIATE_TEST_SUITE_P(, AckOfAnEvent, testing::Values(kPolling, kBackground));

}  // namespace
}  // namespace uroce::engine::test
