// SPDX-License-Identifier: BSD-2-Clause
// When the requester sends: acknowledgement requests, fence, READ depth, window, and work requests that fail before
// they are sent.
#include "engine/transport/reliable/requester.h"

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using wire::Opcode;

constexpr uint64_t kNearRemote = 0x1000;
constexpr uint8_t kUnsignaled = 0;

// --- AckReq (IBTA 9.7.5.1.2: at the requester's discretion, but what somebody waits for must be asked for) -----------

TEST(Requester, SignaledMessageAsksForAckOnItsLastPacketOnly) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  EXPECT_THAT(host.pull(), ElementsAre(AsksForAck(), Not(AsksForAck()), AsksForAck())) << "the QP's first, to be timed";
  host.receive(ack(kSqPsn + 2));
  host.post(work(WrOpcode::kSend, 2), {buffer.sge(0, 3 * kMtu)});
  EXPECT_THAT(host.pull(), ElementsAre(Not(AsksForAck()), Not(AsksForAck()), AsksForAck()));
}

TEST(Requester, EveryMessageIsSignaledWhenTheQueueSignalsAll) {
  ScriptedQp host(ScriptedQp::Config{.signal_all = true});
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1, kUnsignaled));
  host.post(work(WrOpcode::kSend, 2, kUnsignaled));
  EXPECT_THAT(host.pull(), ElementsAre(AsksForAck(), AsksForAck()));
  host.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
}

// Without it their slots would never become free.
TEST(Requester, LastOfUnsignaledMessagesAsksForAck) {
  ScriptedQp host;
  host.to_rts();
  for (uint64_t id = 1; id <= 3; ++id) host.post(work(WrOpcode::kSend, id, kUnsignaled));
  EXPECT_THAT(host.pull(), ElementsAre(AsksForAck(), Not(AsksForAck()), AsksForAck()));
}

TEST(Requester, LongMessageAsksForAckNowAndThen) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(100 * kMtu);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 100 * kMtu)});
  const auto sent = host.pull();
  ASSERT_THAT(sent, SizeIs(100));
  uint32_t without = 0;
  for (const SentPacket& packet : sent) {
    without = packet.headers.bth.ack_request ? 0 : without + 1;
    EXPECT_LT(without, Requester::kAckInterval);
  }
  EXPECT_THAT(sent.back(), AsksForAck());
}

// A window that fills up stalls unless its last packet is answered.
TEST(Requester, PacketThatFillsTheWindowAsksForAck) {
  ScriptedQp host;
  host.to_rts();
  // Offsets the interval so that it does not fall on the window's end by itself.
  for (uint64_t id = 0; id < 10; ++id)
    host.post(work(WrOpcode::kSend, id, id == 9 ? uint8_t{queue::kSignaled} : kUnsignaled));
  for (uint64_t id = 10; id < 200; ++id) host.post(work(WrOpcode::kSend, id, kUnsignaled));
  const auto sent = host.pull();
  ASSERT_THAT(sent, SizeIs(Requester::kWindow));
  EXPECT_THAT(sent.back(), AsksForAck());
}

// --- window ----------------------------------------------------------------------------------------------------------

TEST(Requester, KeepsAtMostAWindowOfPacketsInFlight) {
  ScriptedQp host;
  host.to_rts();
  for (uint64_t id = 0; id < 200; ++id) host.post(work(WrOpcode::kSend, id));
  EXPECT_THAT(host.pull(), SizeIs(Requester::kWindow));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(ack(kSqPsn + 9));
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  const auto more = host.pull();
  ASSERT_THAT(more, SizeIs(10));
  EXPECT_THAT(more[0], HasPsn(kSqPsn + Requester::kWindow));
}

// --- fence (IBTA 10.8.3.3: waits for prior READs and atomics) --------------------------------------------------------

TEST(Requester, FencedMessageWaitsForPriorReadsAndAtomics) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(16);
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, kNearRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kFetchAdd, 2, kNearRemote, kRkey), {buffer.sge(8, 8)});
  host.post(work(WrOpcode::kSend, 3, queue::kSignaled | queue::kFence));
  host.post(work(WrOpcode::kSend, 4));
  EXPECT_THAT(host.pull(), SizeIs(2));
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  EXPECT_THAT(host.pull(), IsEmpty()) << "the atomic is still outstanding";
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(atomic_response(kSqPsn + 1, 0));
  EXPECT_THAT(host.pull(),
              ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn + 2), IsRequest(Opcode::kRcSendOnly, kSqPsn + 3)));
}

TEST(Requester, FenceDoesNotWaitForSendsAndWrites) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.post(rdma(WrOpcode::kRdmaWrite, 2, kNearRemote, kRkey));
  host.post(work(WrOpcode::kSend, 3, queue::kFence));
  EXPECT_THAT(host.pull(), SizeIs(3));
}

TEST(Requester, WithoutFenceMessagesOvertakeReadsInFlight) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, kNearRemote, kRkey), {buffer.sge(0, 8)});
  host.post(work(WrOpcode::kSend, 2));
  EXPECT_THAT(host.pull(), SizeIs(2));
}

// --- READ depth (IBTA 11.2.4.2 max_rd_atomic) ------------------------------------------------------------------------

TEST(Requester, KeepsAtMostMaxRdAtomicReadsAndAtomicsOutstanding) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(64);
  QpAttributes a = default_attributes();
  a.max_rd_atomic = 2;
  host.to_rts(a);
  host.post(rdma(WrOpcode::kRdmaRead, 1, kNearRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kFetchAdd, 2, kNearRemote, kRkey), {buffer.sge(8, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 3, kNearRemote, kRkey), {buffer.sge(16, 8)});
  host.post(work(WrOpcode::kSend, 4));
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn), HasPsn(kSqPsn + 1)));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  EXPECT_THAT(host.pull(),
              ElementsAre(IsRequest(Opcode::kRcReadRequest, kSqPsn + 2), IsRequest(Opcode::kRcSendOnly, kSqPsn + 3)));
}

// A READ counts until its last response.
TEST(Requester, PartOfTheResponsesDoesNotFreeTheDepth) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  QpAttributes a = default_attributes();
  a.max_rd_atomic = 1;
  host.to_rts(a);
  host.post(rdma(WrOpcode::kRdmaRead, 1, kNearRemote, kRkey), {buffer.sge(0, 2 * kMtu)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, kNearRemote, kRkey), {buffer.sge(2 * kMtu, 8)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)));
  EXPECT_THAT(host.pull(), IsEmpty());
  host.receive(read_response(Opcode::kRcReadResponseLast, kSqPsn + 1, pattern(kMtu)));
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn + 2)));
}

// A READ that is sent again after a loss is the same READ.
TEST(Requester, ResentReadsDoNotCountTwice) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(16);
  QpAttributes a = default_attributes();
  a.max_rd_atomic = 2;
  host.to_rts(a);
  host.post(rdma(WrOpcode::kRdmaRead, 1, kNearRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, kNearRemote, kRkey), {buffer.sge(8, 8)});
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn), HasPsn(kSqPsn + 1)));
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)));
  host.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + 1, pattern(8)));
  host.post(rdma(WrOpcode::kRdmaRead, 3, kNearRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 4, kNearRemote, kRkey), {buffer.sge(8, 8)});
  EXPECT_THAT(host.pull(), SizeIs(2));
}

// A READ of 2^31-1 bytes at a path MTU of 256 takes half of all PSNs. It waits for what is outstanding, or the receiver
// could not tell new from old (wire.md "RC semantics": duplicates up to 2^23 behind).
TEST(Requester, NeverMoreThanHalfThePsnsOutstanding) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.post(rdma(WrOpcode::kRdmaRead, 2, kNearRemote, kRkey), {{kIova, 0x7fffffff, 1}});
  EXPECT_THAT(host.pull(), ElementsAre(HasPsn(kSqPsn)));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(ack(kSqPsn));
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn + 1, kNearRemote, 0x7fffffffu)));
}

// --- local errors (IBTA 10.8.2, 11.6.2; wire.md "Completion status") -------------------------------------------------

struct BadWork {
  const char* name;
  WcStatus status;
  queue::SendWqe wqe;
  std::vector<queue::Sge> sges;
};

std::vector<BadWork> bad_works(ScriptedQp& host, Buffer& buffer, Buffer& foreign) {
  buffer = host.make_buffer(64);
  foreign.bytes = pattern(64);
  host.add(foreign, {.pd = kPd + 1});
  const auto send = work(WrOpcode::kSend, 7, kUnsignaled);
  const auto read = rdma(WrOpcode::kRdmaRead, 7, kNearRemote, kRkey, kUnsignaled);
  auto inline_read = read;
  inline_read.flags = queue::kInline;
  inline_read.length = 8;
  return {
      {"unknown lkey", WcStatus::kLocalProtectionError, send, {{kIova, 4, buffer.key + 1}}},
      {"lkey 0", WcStatus::kLocalProtectionError, send, {{kIova, 4, 0}}},
      {"lkey of another PD", WcStatus::kLocalProtectionError, send, {foreign.sge(0, 4)}},
      {"one byte too long", WcStatus::kLocalProtectionError, send, {buffer.sge(1, 64)}},
      {"one byte before", WcStatus::kLocalProtectionError, send, {{kIova - 1, 4, buffer.key}}},
      {"end wraps around", WcStatus::kLocalProtectionError, send, {{UINT64_MAX - 1, 4, buffer.key}}},
      {"second SGE bad", WcStatus::kLocalProtectionError, send, {buffer.sge(0, 4), {kIova, 4, 0xdead}}},
      {"longer than 2^31", WcStatus::kLocalLengthError, send, {{kIova, 0x80000001u, 1}}},
      {"longer than 2^32", WcStatus::kLocalLengthError, send, {{kIova, 0x80000001u, 1}, {kIova, 0x80000001u, 1}}},
      {"inline READ", WcStatus::kLocalQpOperationError, inline_read, {}},
      {"atomic of 4 bytes", WcStatus::kLocalLengthError, rdma(WrOpcode::kFetchAdd, 7, 0, 1, 0), {buffer.sge(0, 4)}},
      {"atomic of 16 bytes", WcStatus::kLocalLengthError, rdma(WrOpcode::kFetchAdd, 7, 0, 1, 0), {buffer.sge(0, 16)}},
      {"FLUSH with a payload", WcStatus::kLocalLengthError, rdma(WrOpcode::kFlush, 7, 0, 1, 0), {buffer.sge(0, 4)}},
      {"ATOMIC WRITE of 4 bytes",
       WcStatus::kLocalLengthError,
       rdma(WrOpcode::kAtomicWrite, 7, 0, 1, 0),
       {buffer.sge(0, 4)}},
      {"no such opcode", WcStatus::kLocalQpOperationError, work(WrOpcode{200}, 7, 0), {}},
  };
}

TEST(Requester, LocalErrorCompletesInOrderAndFlushesTheRest) {
  ScriptedQp probe;
  Buffer unused1, unused2;
  const size_t cases = bad_works(probe, unused1, unused2).size();
  for (size_t i = 0; i < cases; ++i) {
    ScriptedQp host;
    Buffer buffer, foreign;
    const BadWork bad = bad_works(host, buffer, foreign)[i];
    SCOPED_TRACE(bad.name);
    host.to_rts();
    host.post(work(WrOpcode::kSend, 6));
    host.post(bad.wqe, bad.sges);
    host.post(work(WrOpcode::kSend, 8, kUnsignaled));
    EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn))) << "nothing of or after the bad one";
    EXPECT_THAT(host.sends(), IsEmpty()) << "before the one that precedes it";
    EXPECT_EQ(host.qp.state(), QpState::kRts);
    host.receive(ack(kSqPsn));
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(6, WcStatus::kSuccess), IsCompletion(7, bad.status),
                                          IsCompletion(8, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
  }
}

TEST(Requester, LocalErrorOfTheOldestWorkRequestCompletesAtOnce) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {{kIova, 4, 0xdead}});
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(host.qp.state(), QpState::kErr);
}

TEST(Requester, ReadAndAtomicWithoutDepthIsALocalError) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaRead, WrOpcode::kCompareSwap, WrOpcode::kFetchAdd}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8);
    QpAttributes a = default_attributes();
    a.max_rd_atomic = 0;
    host.to_rts(a);
    host.post(rdma(opcode, 1, kNearRemote, kRkey), {buffer.sge(0, 8)});
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
  }
}

// The checks hold for every packet: what was deregistered meanwhile is not read, also when packets are sent again.
TEST(Requester, MemoryDeregisteredInTheMiddleOfAMessage) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  ASSERT_THAT(host.pull(1), SizeIs(1));
  ASSERT_TRUE(host.mrs.remove(buffer.key));
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
}

// What precedes a bad work request is not its fault: when lost it is sent again, and completes with success.
TEST(Requester, WorkBeforeALocalErrorIsStillRetransmitted) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1));
  host.post(work(WrOpcode::kSend, 2), {{kIova, 4, 0xdead}});
  ASSERT_THAT(host.pull(), SizeIs(1));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.expire();
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn)));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  host.receive(ack(kSqPsn));
  EXPECT_THAT(host.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalProtectionError)));
}

// An unsignaled message asks for an acknowledgement when nothing follows that could; a bad one behind it does not
// follow.
TEST(Requester, UnsignaledWorkBeforeALocalErrorIsAcknowledgedInTheEnd) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1, kUnsignaled));
  host.post(work(WrOpcode::kSend, 2), {{kIova, 4, 0xdead}});
  // A peer like rxe: acknowledges only what asks for it, and every duplicate.
  bool seen = false;
  for (int round = 0; round < 100 && host.qp.state() == QpState::kRts; ++round) {
    for (const SentPacket& packet : host.pull()) {
      if (packet.headers.bth.ack_request || seen) host.receive(ack(packet.headers.bth.psn.value()));
      seen = true;
    }
    if (host.qp.deadline() != kNever) host.expire();
  }
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(2, WcStatus::kLocalProtectionError)));
}

}  // namespace
}  // namespace uroce::transport
