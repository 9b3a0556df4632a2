// SPDX-License-Identifier: BSD-2-Clause
// When the data path sends the ACKs that its QPs owe, in relation to what the application sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/datapath/cable_rig.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::engine::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using transport::test::rdma;
using wire::Opcode;
using enum Datapath::Caller;

constexpr size_t kIb = wire::kEthernetSize + wire::kIpv4Size + wire::kUdpSize;

// Two hosts with one QP each. What `b` sends is written down.
class Pair : public Cable {
 protected:
  Pair() : asking(a.add(QpType::kRc)), answering(b.add(QpType::kRc)) {
    a.connect(asking, b.address, answering.qpn());
    b.connect(answering, a.address, asking.qpn());
    b.end->record_sent(&frames_);
  }
  ~Pair() override { b.end->record_sent(nullptr); }
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

// `a` has sent a message of 8 bytes to `b`, which answers with another.
class Acks : public Pair {
 protected:
  Acks() {
    b.post_receive(answering, 1, 0, 64);
    a.post(asking, work(WrOpcode::kSend, 1), 4096, 8);
    a.run();
  }
  void answer() { b.post(answering, work(WrOpcode::kSend, 2), 4096, 8); }
};

TEST_F(Acks, LeaveBeforeTheProcessEnds) {
  b.run(kPolling);
  EXPECT_THAT(sent(), IsEmpty());
  b.datapath.settle_acks(b.now);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  b.run();
  EXPECT_THAT(sent(), IsEmpty());
}

// Refuses packets a few times.
class CrowdedIo final : public io::PacketIo {
 public:
  std::unique_ptr<io::PacketIo> link;
  int refusals = 0;

  size_t send(std::span<io::TxPacket> burst) override { return refusals-- > 0 ? 0 : link->send(burst); }
  size_t receive(std::span<io::RxPacket> out) override { return link->receive(out); }
  bool flush() override { return link->flush(); }
  std::span<const pollfd> wait_descriptors() const override { return link->wait_descriptors(); }
  bool prepare_to_wait() override { return link->prepare_to_wait(); }
  uint32_t max_udp_length() const override { return link->max_udp_length(); }
  std::string description() const override { return link->description(); }
  io::IoCounters counters() const override { return link->counters(); }
};

class CrowdedAcks : public Acks {
 protected:
  CrowdedAcks() {
    auto crowded = std::make_unique<CrowdedIo>();
    io = crowded.get();
    io->link = b.datapath.attach(std::move(crowded), nullptr);
    io->refusals = 3;
  }
  CrowdedIo* io;
};

TEST_F(CrowdedAcks, LeaveBeforeTheQpIsDestroyed) {
  b.run(kPolling);
  b.destroy(answering);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// It has been pulled, so nothing is owed any more.
TEST_F(CrowdedAcks, LeaveBeforeTheQpIsDestroyedAlsoIfTheyWaitForRoom) {
  b.run();
  EXPECT_THAT(sent(), IsEmpty());
  b.destroy(answering);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(CrowdedAcks, LeaveBeforeTheProcessEnds) {
  b.run(kPolling);
  b.datapath.settle_acks(b.now);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(Acks, LeaveBehindTheAnswerOfAnApplicationThatPolls) {
  b.run(kPolling);
  EXPECT_THAT(sent(), IsEmpty());
  answer();
  b.run(kPolling);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcSendOnly, Opcode::kRcAcknowledge));
}

// Sending that much takes so long that what came meanwhile has been taken, too.
TEST_F(Acks, LeaveWithALongPostOfAnApplicationThatMaySleepThen) {
  for (int i = 0; i < 32; ++i) answer();
  b.run(kPosting);
  EXPECT_THAT(sent(), AllOf(SizeIs(32), Each(Opcode::kRcSendOnly)));
  EXPECT_TRUE(b.datapath.unfinished());
  b.datapath.leave_nothing(b.now);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  EXPECT_FALSE(b.datapath.unfinished());
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

TEST_F(Acks, LeaveForEachQpOfABurst) {
  Station &asking_too = a.add(QpType::kRc), &answering_too = b.add(QpType::kRc);
  a.connect(asking_too, b.address, answering_too.qpn());
  b.connect(answering_too, a.address, asking_too.qpn());
  b.run(kBackground);
  sent();
  for (int turn = 0; turn < 2; ++turn) {
    for (Station* station : {&asking, &asking_too}) {
      a.post(*station, rdma(WrOpcode::kRdmaWrite, 1, 0, b.key), 4096, 8);
      a.run(kPosting);
    }
  }
  b.run(kBackground);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge, Opcode::kRcAcknowledge)) << "one for each QP";
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

// A program that sleeps until an event comes, and answers or not.
class AckOfAnEventThatIsAnswered : public Acks, public testing::WithParamInterface<Datapath::Caller> {
 protected:
  void SetUp() override { answering.recv_cq.arm(queue::CompletionQueue::Arm::kAny); }
  void arrives() {
    b.post_receive(answering, 3, 0, 64);
    a.post(asking, work(WrOpcode::kSend, 3), 4096, 8);
    a.run();
    event();
  }
  void event() {
    b.run(GetParam());
    answering.recv_cq.arm(queue::CompletionQueue::Arm::kAny);
  }
  void answer_now() {
    a.post_receive(asking, 4, 0, 64);
    answer();
    b.run(kPosting);
  }
};

// The peer is woken once.
TEST_P(AckOfAnEventThatIsAnswered, LeavesWithTheAnswer) {
  event();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge)) << "nobody has answered so far";
  answer_now();
  sent();
  for (int i = 0; i < 3; ++i) {
    arrives();
    EXPECT_THAT(sent(), IsEmpty());
    EXPECT_FALSE(b.datapath.unfinished());
    answer_now();
    EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge, Opcode::kRcSendOnly)) << "in this order: see above";
    a.run();
    b.run(kPosting);
  }
}

TEST_P(AckOfAnEventThatIsAnswered, LeavesWhenTheProgramIsBackWithoutOne) {
  event();
  answer_now();
  arrives();
  sent();
  b.run(GetParam());
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge)) << "the last one has not been answered";
}

TEST_P(AckOfAnEventThatIsAnswered, LeavesAfterSomeTimeWithoutOne) {
  event();
  answer_now();
  arrives();
  sent();
  EXPECT_EQ(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime);
  b.now += AnswerHabit::kAnswerTime;
  b.run(kBackground);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

INSTANTIATE_TEST_SUITE_P(, AckOfAnEventThatIsAnswered, testing::Values(kAttending, kWaiting));

// --- that wait for an answer -----------------------------------------------------------------------------------------

// ib_write_lat: each host watches memory for the WRITE of the other one and answers with one.
class AckOfAWrite : public Pair {
 protected:
  void write(WrOpcode opcode = WrOpcode::kRdmaWrite) { a.post(asking, rdma(opcode, 1, 0, b.key), 4096, 8); }
  void answer() { b.post(answering, rdma(WrOpcode::kRdmaWrite, 2, 0, a.key), 4096, 8); }
  void arrives(Datapath::Caller caller = kBackground) {
    a.run();
    b.run(caller);
  }
  // One that `b` has answered in time; no ACK is owed any more.
  void answered(Duration after = {}) {
    write();
    arrives();
    b.now += after;
    answer();
    run();
    sent();
  }
  void wait_in_vain() {
    b.now += AnswerHabit::kAnswerTime;
    b.run();
  }
};

TEST_F(AckOfAWrite, DoesNotWaitUntilOneWasAnswered) {
  write();
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(AckOfAWrite, LeavesBehindTheAnswerThatTheLastOneLetsExpect) {
  for (const Datapath::Caller caller : {kBackground, kPolling}) {
    answered();
    write();
    arrives(caller);
    b.run(kPolling);
    b.run(kPolling);
    EXPECT_THAT(sent(), IsEmpty());
    EXPECT_FALSE(b.datapath.unfinished()) << "the background thread may sleep until the deadline";
    answer();
    b.run(kPosting);
    EXPECT_THAT(sent(), ElementsAre(Opcode::kRcWriteOnly, Opcode::kRcAcknowledge));
    run();
  }
}

TEST_F(AckOfAWrite, DoesNotWaitAfterALateAnswer) {
  answered(AnswerHabit::kAnswerTime + Duration(1));
  write();
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(AckOfAWrite, LeavesAfterSomeTimeWithoutAnAnswer) {
  answered();
  write();
  arrives();
  EXPECT_EQ(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime);
  b.now += AnswerHabit::kAnswerTime - Duration(1);
  b.run();
  EXPECT_THAT(sent(), IsEmpty());
  b.now += Duration(1);
  b.run();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// Their waits end in the order in which they began.
TEST_F(AckOfAWrite, EachLeavesInItsTime) {
  Station &asks = a.add(QpType::kRc), &answers = b.add(QpType::kRc);
  a.connect(asks, b.address, answers.qpn());
  b.connect(answers, a.address, asks.qpn());
  const auto write_to_second = [&] { a.post(asks, rdma(WrOpcode::kRdmaWrite, 1, 0, b.key), 4096, 8); };
  write_to_second();
  arrives();
  b.post(answers, rdma(WrOpcode::kRdmaWrite, 2, 0, a.key), 4096, 8);
  run();
  answered();
  write();
  arrives();
  b.now += AnswerHabit::kAnswerTime / 2;
  write_to_second();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  b.now += AnswerHabit::kAnswerTime / 2;
  b.run();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  EXPECT_EQ(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime / 2);
  b.now += AnswerHabit::kAnswerTime / 2;
  b.run();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(AckOfAWrite, DoesNotWaitSoonAgainAfterAWaitInVain) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  wait_in_vain();
  answer();
  run();
  sent();
  write();
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// What a completion tells of is looked for where it is: the peer's polling goes on.
TEST_F(AckOfAWrite, DoesNotWaitIfACompletionTellsOfTheMessage) {
  b.post_receive(answering, 1, 0, 64);
  b.post_receive(answering, 2, 0, 64);
  answered();
  write(WrOpcode::kRdmaWriteWithImmediate);
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  answered();
  a.post(asking, work(WrOpcode::kSend, 1), 4096, 8);
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// The peer does not wait for an answer to each.
TEST_F(AckOfAWrite, WaitsNoLongerWhenAnotherMessageComes) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  write();
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// The peer has asked again: its time is shorter than the wait.
TEST_F(AckOfAWrite, WaitsNoLongerWhenTheMessageComesAgain) {
  std::vector<Bytes> frames;
  a.end->record_sent(&frames);
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  const Bytes frame = frames.back();
  a.end->record_sent(nullptr);
  ASSERT_TRUE(b.end->inject_frame(frame));
  b.run();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

// The response is its ACK too. The wait was not in vain, so the next one is not left out.
TEST_F(AckOfAWrite, EndsItsWaitWithAResponse) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  a.post(asking, rdma(WrOpcode::kRdmaRead, 1, 0, b.key), 4096, 8);
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcReadResponseOnly));
  EXPECT_GT(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime);
  wait_in_vain();
  EXPECT_THAT(sent(), IsEmpty());
  run();
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(AckOfAWrite, DoesNotWaitInAnotherConnectionOfTheQp) {
  answered();
  transport::QpAttributes attributes;
  attributes.state = QpState::kReset;
  ASSERT_EQ(b.datapath.modify(*answering.qp, attributes, transport::kQpState, std::nullopt, b.now), 0);
  ASSERT_EQ(a.datapath.modify(*asking.qp, attributes, transport::kQpState, std::nullopt, a.now), 0);
  a.connect(asking, b.address, answering.qpn());
  b.connect(answering, a.address, asking.qpn());
  sent();
  write();
  arrives();
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(AckOfAWrite, LeavesBeforeTheProcessEnds) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  b.datapath.settle_acks(b.now);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  EXPECT_GT(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime);
}

TEST_F(AckOfAWrite, LeavesBeforeTheQpIsDestroyed) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  b.destroy(answering);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
}

TEST_F(AckOfAWrite, LeavesBeforeTheQpChangesItsState) {
  answered();
  write();
  arrives();
  EXPECT_THAT(sent(), IsEmpty());
  transport::QpAttributes attributes;
  attributes.state = QpState::kErr;
  EXPECT_EQ(b.datapath.modify(*answering.qp, attributes, transport::kQpState, std::nullopt, b.now), 0);
  EXPECT_THAT(sent(), ElementsAre(Opcode::kRcAcknowledge));
  EXPECT_GT(b.datapath.next_deadline(), b.now + AnswerHabit::kAnswerTime);
}

}  // namespace
}  // namespace uroce::engine::test
