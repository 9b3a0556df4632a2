// SPDX-License-Identifier: BSD-2-Clause
// ATOMIC WRITE and FLUSH (IBTA annex A19) in both roles. They take one of the READ depth, and a READ response without
// data answers them.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/transport/qp_pair.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

constexpr uint32_t kFlushRights = memory::kFlushGlobal;
constexpr uint32_t kAll = kAllRemote | memory::kFlushGlobal | memory::kFlushPersistent;

queue::SendWqe flush_work(uint64_t wr_id, uint64_t va, uint32_t rkey, uint64_t length, uint64_t how = 1) {
  queue::SendWqe wqe = rdma(WrOpcode::kFlush, wr_id, va, rkey);
  wqe.operands.compare_add = length;
  wqe.operands.swap = how;
  return wqe;
}
auto IsBareResponse(uint32_t psn) {
  return AllOf(IsRequest(Opcode::kRcReadResponseOnly, psn, Bytes()), HasAckSyndrome());
}

// --- requester -------------------------------------------------------------------------------------------------------

class BareRequester : public testing::Test {
 protected:
  BareRequester() { host_.to_rts(); }
  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(2 * kMtu);
};

TEST_F(BareRequester, Packets) {
  host_.post(rdma(WrOpcode::kAtomicWrite, 1, 0x1000, 8), {buffer_.sge(4, 8)});
  host_.post(flush_work(2, 0x2000, 9, 0x12345, 2 | 1 << 4));
  const std::vector<SentPacket> sent = host_.pull();
  ASSERT_THAT(sent, ElementsAre(AllOf(IsRequest(Opcode::kRcAtomicWrite, kSqPsn, part(buffer_.bytes, 4, 8)),
                                      HasReth(0x1000, 8u, 8), AsksForAck()),
                                AllOf(IsRequest(Opcode::kRcFlush, kSqPsn + 1, Bytes()), HasReth(0x2000, 9u, 0x12345),
                                      AsksForAck())));
  EXPECT_EQ(sent[1].headers.feth, (wire::Feth{2, 1}));
}

TEST_F(BareRequester, InlineAtomicWrite) {
  host_.post_inline(rdma(WrOpcode::kAtomicWrite, 1, 0x1000, 8), pattern(8, 6));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcAtomicWrite, kSqPsn, pattern(8, 6))));
}

TEST_F(BareRequester, CompleteByTheirOwnResponseOnly) {
  host_.post(rdma(WrOpcode::kAtomicWrite, 1, 0x1000, 8), {buffer_.sge(0, 8)});
  host_.post(flush_work(2, 0x2000, 9, 8));
  host_.pull();
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kRxImpliedNaks), 1u) << "the response was lost";
  EXPECT_THAT(host_.pull(), SizeIs(2));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, {}));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + 1, {}));
  const std::vector<queue::Cqe> sends = host_.sends();
  ASSERT_THAT(sends, ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess)));
  EXPECT_EQ(sends[0].opcode, WcOpcode::kAtomicWrite);
  EXPECT_EQ(sends[1].opcode, WcOpcode::kFlush);
}

TEST_F(BareRequester, WrongResponsesEndTheQp) {
  const struct {
    PeerPacket packet;
    WcStatus status;
  } wrong[] = {{read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(8)), WcStatus::kLocalLengthError},
               {read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)), WcStatus::kBadResponseError},
               {read_response(Opcode::kRcReadResponseLast, kSqPsn, {}), WcStatus::kBadResponseError},
               {atomic_response(kSqPsn, 1), WcStatus::kBadResponseError}};
  for (const auto& [packet, status] : wrong) {
    for (const bool flush : {false, true}) {
      ScriptedQp host;
      host.to_rts();
      Buffer buffer = host.make_buffer(64);
      if (flush) {
        host.post(flush_work(1, 0x2000, 9, 8));
      } else {
        host.post(rdma(WrOpcode::kAtomicWrite, 1, 0x1000, 8), {buffer.sge(0, 8)});
      }
      host.pull();
      host.receive(packet);
      EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, status)));
      EXPECT_EQ(host.qp.state(), QpState::kErr);
    }
  }
}

TEST_F(BareRequester, TheyTakeOneOfTheReadDepth) {
  for (uint64_t i = 0; i < 3; ++i) host_.post(flush_work(i, 0x2000, 9, 8));
  host_.post(rdma(WrOpcode::kAtomicWrite, 3, 0x1000, 8), {buffer_.sge(0, 8)});
  host_.post(rdma(WrOpcode::kAtomicWrite, 4, 0x1000, 8), {buffer_.sge(0, 8)});
  EXPECT_THAT(host_.pull(), SizeIs(4));
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, {}));
  EXPECT_THAT(host_.pull(), ElementsAre(HasPsn(kSqPsn + 4)));
}

TEST_F(BareRequester, FenceWaitsForThem) {
  host_.post(flush_work(1, 0x2000, 9, 8));
  host_.post(work(WrOpcode::kSend, 2, queue::kSignaled | queue::kFence));
  EXPECT_THAT(host_.pull(), SizeIs(1));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, {}));
  EXPECT_THAT(host_.pull(), ElementsAre(HasOpcode(Opcode::kRcSendOnly)));
}

TEST_F(BareRequester, WrongLengthsAreLocalErrors) {
  for (const uint32_t length : {0u, 7u, 9u}) {
    ScriptedQp host;
    host.to_rts();
    Buffer buffer = host.make_buffer(64);
    host.post(rdma(WrOpcode::kAtomicWrite, 1, 0x1000, 8), {buffer.sge(0, length)});
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
  }
  host_.post(flush_work(1, 0x2000, 9, 8), {buffer_.sge(0, 1)});
  EXPECT_THAT(host_.pull(), IsEmpty());
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
}

TEST(BareRequesterDepth, WithoutDepthTheyAreLocalErrors) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.max_rd_atomic = 0;
  host.to_rts(a);
  host.post(flush_work(1, 0x2000, 9, 8));
  EXPECT_THAT(host.pull(), IsEmpty());
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalQpOperationError)));
}

// --- responder -------------------------------------------------------------------------------------------------------

class BareResponder : public testing::Test {
 protected:
  explicit BareResponder(uint32_t access = kAll) {
    QpAttributes a = default_attributes();
    a.access = access;
    host_.to_rtr(a);
  }
  static PeerPacket atomic_write(uint32_t psn, uint64_t va, uint32_t rkey, uint64_t value, uint32_t length = 8) {
    Bytes data(8);
    std::memcpy(data.data(), &value, 8);
    return request(Opcode::kRcAtomicWrite, psn, data).reth(va, rkey, length);
  }
  static PeerPacket flush(uint32_t psn, uint64_t va, uint32_t rkey, uint32_t length, uint8_t placement = 1,
                          uint8_t selectivity = 0) {
    return PeerPacket(Opcode::kRcFlush, psn).reth(va, rkey, length).flush(placement, selectivity);
  }
  void expect_nak(const PeerPacket& packet, NakCode code) {
    host_.receive(packet);
    EXPECT_THAT(host_.drain(), ElementsAre(IsNak(code, kRqPsn)));
    EXPECT_EQ(host_.qp.state(), QpState::kErr);
    host_.modify(QpState::kReset, kQpState);
    QpAttributes a = default_attributes();
    a.access = kAll;
    host_.to_rtr(a);
  }
  ScriptedQp host_;
  Buffer buffer_ = host_.make_buffer(kMtu, memory::kLocalWrite | kAllRemote | kFlushRights);
};

TEST_F(BareResponder, AtomicWriteIsExecutedOnce) {
  host_.receive(atomic_write(kRqPsn, kIova + 8, buffer_.key, 0x1122334455667788));
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsBareResponse(kRqPsn), HasMsn(1))));
  uint64_t value;
  std::memcpy(&value, &buffer_.bytes[8], 8);
  EXPECT_EQ(value, 0x1122334455667788u);
  EXPECT_EQ(part(buffer_.bytes, 0, 8), pattern(8, 3));
  EXPECT_EQ(part(buffer_.bytes, 16, 8), part(pattern(24, 3), 16, 8));
  std::memset(&buffer_.bytes[8], 0, 8);
  host_.receive(atomic_write(kRqPsn, kIova + 8, buffer_.key, 0x1122334455667788));
  EXPECT_THAT(host_.drain(), ElementsAre(IsBareResponse(kRqPsn))) << "answered again";
  EXPECT_EQ(part(buffer_.bytes, 8, 8), Bytes(8)) << "not executed again";
}

TEST_F(BareResponder, FlushIsAnsweredAgain) {
  for (int i = 0; i < 2; ++i) {
    host_.receive(flush(kRqPsn, kIova, buffer_.key, kMtu));
    EXPECT_THAT(host_.drain(), ElementsAre(IsBareResponse(kRqPsn)));
  }
  EXPECT_EQ(host_.count(Counter::kRxDuplicates), 1u);
}

// A duplicate of another kind than what was executed is somebody else's.
TEST_F(BareResponder, DuplicateOfAnotherKindIsDropped) {
  host_.receive(flush(kRqPsn, kIova, buffer_.key, 8));
  host_.drain();
  host_.receive(read_request(kRqPsn, kIova, buffer_.key, 8));
  host_.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(kIova, buffer_.key, 1));
  EXPECT_THAT(host_.drain(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kDropDuplicateUnknown), 2u);
}

TEST_F(BareResponder, ResponsesKeepTheOrderOfRequests) {
  host_.receive(read_request(kRqPsn, kIova, buffer_.key, 8));
  host_.receive(flush(kRqPsn + 1, kIova, buffer_.key, 8));
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn + 2).ack_request());
  host_.receive(atomic_write(kRqPsn + 3, kIova, buffer_.key, 1));
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(HasPsn(kRqPsn), HasPayloadSize(8u)), IsBareResponse(kRqPsn + 1),
                                         AllOf(IsBareResponse(kRqPsn + 3), HasMsn(4))));
}

TEST_F(BareResponder, MoreThanTheDepthIsAnInvalidRequest) {
  for (uint32_t i = 0; i < 4; ++i) host_.receive(flush(kRqPsn + i, kIova, buffer_.key, 8));
  host_.receive(flush(kRqPsn + 4, kIova, buffer_.key, 8));
  const std::vector<SentPacket> sent = host_.drain();
  ASSERT_THAT(sent, SizeIs(5));
  EXPECT_THAT(sent[4], IsNak(NakCode::kInvalidRequest, kRqPsn + 4));
}

TEST_F(BareResponder, MalformedOnesAreInvalidRequests) {
  expect_nak(atomic_write(kRqPsn, kIova + 4, buffer_.key, 1), NakCode::kInvalidRequest);
  expect_nak(atomic_write(kRqPsn, kIova, buffer_.key, 1, 4), NakCode::kInvalidRequest);
  expect_nak(atomic_write(kRqPsn, kIova, buffer_.key, 1, 16), NakCode::kInvalidRequest);
  expect_nak(request(Opcode::kRcAtomicWrite, kRqPsn, pattern(4)).reth(kIova, buffer_.key, 8), NakCode::kInvalidRequest);
  expect_nak(request(Opcode::kRcAtomicWrite, kRqPsn, pattern(7)).reth(kIova, buffer_.key, 8), NakCode::kInvalidRequest);
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8, 0), NakCode::kInvalidRequest);
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8, 1, 2), NakCode::kInvalidRequest);
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8, 1, 3), NakCode::kInvalidRequest);
  EXPECT_EQ(buffer_.bytes, pattern(kMtu, 3));
}

TEST_F(BareResponder, AccessViolations) {
  expect_nak(atomic_write(kRqPsn, kIova, buffer_.key + 1, 1), NakCode::kRemoteAccessError);
  expect_nak(atomic_write(kRqPsn, kIova + kMtu, buffer_.key, 1), NakCode::kRemoteAccessError);
  expect_nak(flush(kRqPsn, kIova, buffer_.key + 1, 8), NakCode::kRemoteAccessError);
  expect_nak(flush(kRqPsn, kIova, buffer_.key, kMtu + 1), NakCode::kRemoteAccessError);
  expect_nak(flush(kRqPsn, kIova - 1, buffer_.key, 2), NakCode::kRemoteAccessError);
  // The region is for global visibility only.
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8, 2), NakCode::kRemoteAccessError);
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8, 3), NakCode::kRemoteAccessError);
  Buffer plain{pattern(64), 0x9000};
  host_.add(plain, {.access = memory::kLocalWrite | memory::kRemoteRead});
  expect_nak(flush(kRqPsn, 0x9000, plain.key, 8), NakCode::kRemoteAccessError);
  expect_nak(flush(kRqPsn, 0x9000, plain.key, 8, 1, 1), NakCode::kRemoteAccessError);
  expect_nak(atomic_write(kRqPsn, 0x9000, plain.key, 1), NakCode::kRemoteAccessError);
  EXPECT_EQ(buffer_.bytes, pattern(kMtu, 3));
}

// Of a whole region the address and length do not count.
TEST_F(BareResponder, WholeRegionLooksAtItsKeyAlone) {
  host_.receive(flush(kRqPsn, 0, buffer_.key, 0xffffffff, 1, 1));
  EXPECT_THAT(host_.drain(), ElementsAre(IsBareResponse(kRqPsn)));
}

struct BareResponderWithoutRights : BareResponder {
  BareResponderWithoutRights() : BareResponder(memory::kRemoteRead | memory::kRemoteAtomic) {}
};

TEST_F(BareResponderWithoutRights, TheQpMustAllowAtomicWrites) {
  expect_nak(atomic_write(kRqPsn, kIova, buffer_.key, 1), NakCode::kRemoteAccessError);
}

TEST_F(BareResponderWithoutRights, TheQpMustAllowFlushes) {
  expect_nak(flush(kRqPsn, kIova, buffer_.key, 8), NakCode::kRemoteAccessError);
}

TEST_F(BareResponder, InsideAMessageTheyAreOutOfPlace) {
  Buffer large = [this] {
    Buffer buffer{pattern(2 * kMtu), 0xa000};
    host_.add(buffer, {.access = memory::kLocalWrite | memory::kRemoteWrite});
    return buffer;
  }();
  host_.receive(request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu)).reth(0xa000, large.key, kMtu + 1));
  host_.receive(flush(kRqPsn + 1, kIova, buffer_.key, 8));
  EXPECT_THAT(host_.drain(), Contains(IsNak(NakCode::kInvalidRequest, kRqPsn + 1)));
}

// --- both ------------------------------------------------------------------------------------------------------------

TEST(BarePair, WriteFlushAtomicWrite) {
  QpAttributes a = default_attributes();
  a.access = kAll;
  QpPair pair(a);
  Buffer source = pair.a.make_buffer(kMtu, memory::kLocalWrite, 7);
  Buffer target = pair.b.make_buffer(kMtu, memory::kLocalWrite | kAllRemote | kFlushRights);
  pair.a.post(rdma(WrOpcode::kRdmaWrite, 1, kIova + 8, target.key, 0), {source.sge(8, 100)});
  pair.a.post(flush_work(2, kIova + 8, target.key, 100));
  pair.a.post(rdma(WrOpcode::kAtomicWrite, 3, kIova, target.key), {source.sge(0, 8)});
  pair.run();
  EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(2, WcStatus::kSuccess), IsCompletion(3, WcStatus::kSuccess)));
  EXPECT_EQ(part(target.bytes, 0, 108), part(source.bytes, 0, 108));
}

}  // namespace
}  // namespace uroce::transport::test
