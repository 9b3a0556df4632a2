// SPDX-License-Identifier: BSD-2-Clause
// READ responses and atomics, and their replay when the peer asks again.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

constexpr auto kFirst = Opcode::kRcReadResponseFirst;
constexpr auto kMiddle = Opcode::kRcReadResponseMiddle;
constexpr auto kLast = Opcode::kRcReadResponseLast;
constexpr auto kOnly = Opcode::kRcReadResponseOnly;

// --- READ (IBTA 9.4.4; wire.md: all but the last exactly PMTU, AETH on all but Middle) -------------------------------

TEST(ResponderRead, ResponsesOfEveryLength) {
  for (const uint32_t length : {0u, 1u, 2u, 3u, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 3 * kMtu - 1, 3 * kMtu}) {
    SCOPED_TRACE(length);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(4 * kMtu);
    host.to_rts();
    host.receive(read_request(kRqPsn, buffer.iova + 3, buffer.key, length));
    const auto sent = host.drain();
    const uint32_t count = std::max(1u, (length + kMtu - 1) / kMtu);
    ASSERT_THAT(sent, SizeIs(count));
    for (uint32_t n = 0; n < count; ++n) {
      const bool first = n == 0, last = n + 1 == count;
      const Opcode opcode = first && last ? kOnly : first ? kFirst : last ? kLast : kMiddle;
      EXPECT_THAT(sent[n], IsReadResponse(opcode, kRqPsn + n,
                                          part(buffer.bytes, 3 + n * kMtu, std::min(kMtu, length - n * kMtu))));
      if (first || last) {
        EXPECT_THAT(sent[n], AllOf(HasAckSyndrome(), HasMsn(1)));
      }
    }
    // The next request has the PSN after the last response.
    host.receive(request(Opcode::kRcWriteOnly, kRqPsn + count).ack_request());
    EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + count)));
  }
}

TEST(ResponderRead, SeveralReadsAreAnsweredInOrder) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(1024);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 2 * kMtu));
  host.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn + 2).atomic(buffer.iova + 1016, buffer.key, 0));
  host.receive(read_request(kRqPsn + 3, buffer.iova, buffer.key, 8));
  EXPECT_THAT(host.drain(),
              ElementsAre(IsRequest(kFirst, kRqPsn), IsRequest(kLast, kRqPsn + 1),
                          IsRequest(Opcode::kRcAtomicAcknowledge, kRqPsn + 2), IsRequest(kOnly, kRqPsn + 3)));
}

// IBTA 9.7.4.1.4; faults.md 22.
TEST(ResponderRead, MoreThanMaxDestRdAtomicIsAnInvalidRequest) {
  for (const uint8_t depth : {0, 1, 4, 16}) {
    SCOPED_TRACE(int{depth});
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8);
    QpAttributes a = default_attributes();
    a.max_dest_rd_atomic = depth;
    host.to_rts(a);
    for (uint32_t n = 0; n < depth; ++n) {
      host.receive(n % 2 == 0 ? read_request(kRqPsn + n, buffer.iova, buffer.key, 8)
                              : PeerPacket(Opcode::kRcFetchAdd, kRqPsn + n).atomic(buffer.iova, buffer.key, 0));
    }
    ASSERT_EQ(host.qp.state(), QpState::kRts);
    host.receive(read_request(kRqPsn + depth, buffer.iova, buffer.key, 8));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    const auto sent = host.drain();
    ASSERT_THAT(sent, SizeIs(depth + 1u)) << "those that were accepted are answered";
    EXPECT_THAT(sent.back(), IsNak(NakCode::kInvalidRequest, kRqPsn + depth));
  }
}

TEST(ResponderRead, AnsweredReadsDoNotCountAgainstTheDepth) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  QpAttributes a = default_attributes();
  a.max_dest_rd_atomic = 1;
  host.to_rts(a);
  for (uint32_t n = 0; n < 40; ++n) {
    host.receive(read_request(kRqPsn + n, buffer.iova, buffer.key, 8));
    ASSERT_THAT(host.drain(), ElementsAre(IsRequest(kOnly, kRqPsn + n)));
  }
}

// faults.md 42: deregistered during the READ: NAK access in place of the response, no late access.
TEST(ResponderRead, RegionRemovedBetweenResponses) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 3 * kMtu));
  ASSERT_THAT(host.pull(1), SizeIs(1));
  host.mrs.remove(buffer.key);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn + 1)));
  EXPECT_EQ(host.qp.state(), QpState::kErr);
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kQpAccessError));
}

// The READ's fault is not the half-arrived SEND's: its receive is flushed like the others.
TEST(ResponderRead, RegionRemovedWhileASendIsArriving) {
  ScriptedQp host;
  const Buffer read = host.make_buffer(8);
  const Buffer buffer = host.make_buffer(2 * kMtu);
  host.to_rts();
  host.post_receive(1, {buffer.sge(0, 2 * kMtu)});
  host.receive(read_request(kRqPsn, read.iova, read.key, 8));
  host.receive(request(Opcode::kRcSendFirst, kRqPsn + 1, pattern(kMtu)));
  host.mrs.remove(read.key);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kFlushError)));
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kQpAccessError));
}

// --- replay of a READ (IBTA 9.7.5.1.4; wire.md "Duplicates") ---------------------------------------------------------

// A READ of five packets at kRqPsn that was answered.
class ResponderReplay : public testing::Test {
 protected:
  static constexpr uint32_t kLength = 4 * kMtu + 10;
  void SetUp() override {
    buffer_ = host_.make_buffer(kLength + 64);
    host_.to_rts();
    host_.receive(read_request(kRqPsn, buffer_.iova, buffer_.key, kLength));
  }
  PeerPacket ask(uint32_t n, uint32_t length) const {
    return read_request(kRqPsn + n, buffer_.iova + n * kMtu, buffer_.key, length);
  }
  auto response(Opcode opcode, uint32_t n, uint32_t size = kMtu) const {
    return IsReadResponse(opcode, kRqPsn + n, part(buffer_.bytes, n * kMtu, size));
  }

  ScriptedQp host_;
  Buffer buffer_;
};

TEST_F(ResponderReplay, InFull) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  std::reverse(buffer_.bytes.begin(), buffer_.bytes.end());  // executed again: what is in memory now
  host_.receive(ask(0, kLength));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kFirst, 0), response(kMiddle, 1), response(kMiddle, 2),
                                         response(kMiddle, 3), AllOf(response(kLast, 4, 10), HasMsn(1))));
}

// wire.md: a retried READ restarts with First or Only.
TEST_F(ResponderReplay, Tail) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  host_.receive(ask(2, kLength - 2 * kMtu));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kFirst, 2), response(kMiddle, 3), response(kLast, 4, 10)));
  host_.receive(ask(4, 10));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kOnly, 4, 10)));
}

TEST_F(ResponderReplay, MiddlePart) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  host_.receive(ask(1, 2 * kMtu));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kFirst, 1), response(kLast, 2)));
  // It does not narrow what is remembered (wire.md "rxe as a peer" tells of one that does).
  host_.receive(ask(0, kLength));
  EXPECT_THAT(host_.drain(), SizeIs(5));
}

// A part that does not end with a full packet: the last response is as long as was asked for.
TEST_F(ResponderReplay, PartWithAShortEnd) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  host_.receive(ask(1, kMtu + 20));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kFirst, 1), response(kLast, 2, 20)));
}

// faults.md "Security": re-execute duplicate READs only if remembered, and nothing but them.
TEST_F(ResponderReplay, OutsideOfTheOriginalIsDropped) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  uint64_t dropped = 0;
  const PeerPacket kOutside[] = {
      ask(0, kLength + 1),
      ask(1, kLength - kMtu + 1),
      ask(4, 11),
      ask(1, 0),
      ask(0, 0xffffffff),
      read_request(kRqPsn, buffer_.iova + 1, buffer_.key, 8),
      read_request(kRqPsn, buffer_.iova - 1, buffer_.key, 8),
      read_request(kRqPsn + 1, buffer_.iova, buffer_.key, 8),
      read_request(kRqPsn, buffer_.iova, buffer_.key + 1, kLength),
  };
  for (const PeerPacket& packet : kOutside) {
    host_.receive(packet);
    EXPECT_THAT(host_.drain(), IsEmpty());
    EXPECT_EQ(host_.count(Counter::kDropDuplicateUnknown), ++dropped);
  }
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
}

// Most duplicates are made by the network: what is on its way anyway is not sent twice.
TEST_F(ResponderReplay, DuplicateOfAReadThatIsBeingAnsweredIsIgnored) {
  host_.receive(ask(0, kLength));
  ASSERT_THAT(host_.pull(2), SizeIs(2));
  host_.receive(ask(2, kLength - 2 * kMtu));
  EXPECT_THAT(host_.drain(), ElementsAre(response(kMiddle, 2), response(kMiddle, 3), response(kLast, 4, 10)));
}

TEST_F(ResponderReplay, RetryOfWhatWasLostWhileTheRestIsBeingSent) {
  ASSERT_THAT(host_.pull(3), SizeIs(3));
  host_.receive(ask(1, kLength - kMtu));
  EXPECT_THAT(host_.drain(),
              ElementsAre(response(kFirst, 1), response(kMiddle, 2), response(kMiddle, 3), response(kLast, 4, 10)));
}

// A late copy of a READ that is long over: its region may be gone for good reason. No access, and no harm to the QP.
// The network made a copy of an earlier READ. Its answer waits until the READ in progress is done.
TEST_F(ResponderReplay, DuplicateOfAnEarlierReadDoesNotInterruptTheOneInProgress) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  host_.receive(read_request(kRqPsn + 5, buffer_.iova, buffer_.key, 3 * kMtu));
  ASSERT_THAT(host_.pull(1), SizeIs(1));
  host_.receive(ask(0, 8));
  EXPECT_THAT(host_.pull(),
              ElementsAre(AllOf(HasOpcode(kMiddle), HasPsn(kRqPsn + 6)), AllOf(HasOpcode(kLast), HasPsn(kRqPsn + 7)),
                          AllOf(HasOpcode(kOnly), HasPsn(kRqPsn))));
}

TEST_F(ResponderReplay, RegionRemovedMeanwhile) {
  ASSERT_THAT(host_.drain(), SizeIs(5));
  host_.receive(read_request(kRqPsn + 5, buffer_.iova, buffer_.key, 0));
  host_.mrs.remove(buffer_.key);
  host_.receive(ask(2, kLength - 2 * kMtu));
  EXPECT_THAT(host_.drain(), ElementsAre(IsRequest(kOnly, kRqPsn + 5))) << "what follows is answered";
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
  EXPECT_EQ(host_.count(Counter::kDropDuplicateUnknown), 1u);
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
}

// Duplicates are not new requests: a copy that the network delivers late must not make the next READ one too many.
TEST_F(ResponderReplay, DuplicateDoesNotCountAgainstTheDepth) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  QpAttributes a = default_attributes();
  a.max_dest_rd_atomic = 1;
  host.to_rts(a);
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 8));
  ASSERT_THAT(host.drain(), SizeIs(1));
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 8));      // a late copy
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));  // the peer has its answer and goes on
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  const auto sent = host.drain();
  ASSERT_FALSE(sent.empty());
  EXPECT_THAT(sent.back(), IsRequest(kOnly, kRqPsn + 1));
  // And the depth is what it was before.
  host.receive(read_request(kRqPsn + 2, buffer.iova, buffer.key, 8));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
  host.receive(read_request(kRqPsn + 3, buffer.iova, buffer.key, 8));
  EXPECT_THAT(host.drain(), ElementsAre(IsRequest(kOnly, kRqPsn + 2), IsNak(NakCode::kInvalidRequest, kRqPsn + 3)));
}

// IBTA 9.7.5.1.2: as many are remembered as the depth that was granted.
TEST_F(ResponderReplay, AsManyAreRememberedAsTheDepth) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(16 * 8);
  QpAttributes a = default_attributes();
  a.max_dest_rd_atomic = 16;
  host.to_rts(a);
  for (uint32_t n = 0; n < 17; ++n) {
    host.receive(read_request(kRqPsn + n, buffer.iova + n % 16 * 8, buffer.key, 8));
    host.drain();
  }
  for (uint32_t n = 1; n < 17; ++n) {
    host.receive(read_request(kRqPsn + n, buffer.iova + n % 16 * 8, buffer.key, 8));
    EXPECT_THAT(host.drain(), ElementsAre(IsReadResponse(kOnly, kRqPsn + n, part(buffer.bytes, n % 16 * 8, 8))));
  }
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 8));
  EXPECT_THAT(host.drain(), IsEmpty()) << "forgotten: dropped silently";
  EXPECT_EQ(host.count(Counter::kDropDuplicateUnknown), 1u);
}

// A depth that is raised in SQD, and one that is granted after a RESET: what waits for its answer is answered, and as
// many are remembered as the depth says.
TEST_F(ResponderReplay, DepthThatIsRaisedKeepsWhatIsRemembered) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  const auto read = [&](uint32_t n) { host.receive(read_request(kRqPsn + n, buffer.iova, buffer.key, 8)); };
  QpAttributes a = default_attributes();
  a.max_dest_rd_atomic = 2;
  host.to_rts(a);
  read(0);
  ASSERT_THAT(host.drain(), SizeIs(1));
  read(1);
  read(2);
  ASSERT_EQ(host.modify(QpState::kSqd, kQpState), 0);
  a.max_dest_rd_atomic = 4;
  ASSERT_EQ(host.modify(QpState::kSqd, kQpMaxDestRdAtomic, a), 0);
  read(3);
  read(4);
  EXPECT_THAT(host.drain(), ElementsAre(IsRequest(kOnly, kRqPsn + 1), IsRequest(kOnly, kRqPsn + 2),
                                        IsRequest(kOnly, kRqPsn + 3), IsRequest(kOnly, kRqPsn + 4)));
  read(1);
  EXPECT_THAT(host.drain(), ElementsAre(IsRequest(kOnly, kRqPsn + 1))) << "remembered since before";
}

TEST_F(ResponderReplay, DepthAfterResetIsTheNewOne) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  QpAttributes a = default_attributes();
  for (const uint8_t depth : {4, 1, 16, 0, 2}) {
    SCOPED_TRACE(int{depth});
    a.max_dest_rd_atomic = depth;
    host.to_rts(a);
    for (uint32_t n = 0; n < depth; ++n) host.receive(read_request(kRqPsn + n, buffer.iova, buffer.key, 8));
    EXPECT_EQ(host.qp.state(), QpState::kRts);
    host.receive(read_request(kRqPsn + depth, buffer.iova, buffer.key, 8));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_THAT(host.drain(), SizeIs(depth + 1u));
    ASSERT_EQ(host.modify(QpState::kReset, kQpState), 0);
    EXPECT_THAT(host.drain(), IsEmpty());
  }
}

// --- atomics (IBTA 9.4.5, 9.7.5.1.4: executed exactly once, the result is replayed) ----------------------------------

class ResponderAtomic : public testing::Test {
 protected:
  void SetUp() override {
    buffer_ = host_.make_buffer(16);
    set(1000);
    host_.to_rts();
  }
  void set(uint64_t value) { std::memcpy(buffer_.bytes.data(), &value, 8); }
  uint64_t word() const {
    uint64_t value;
    std::memcpy(&value, buffer_.bytes.data(), 8);
    return value;
  }
  PeerPacket swap(uint32_t psn, uint64_t compare, uint64_t value) const {
    return PeerPacket(Opcode::kRcCompareSwap, psn).atomic(buffer_.iova, buffer_.key, value, compare);
  }
  PeerPacket add(uint32_t psn, uint64_t value) const {
    return PeerPacket(Opcode::kRcFetchAdd, psn).atomic(buffer_.iova, buffer_.key, value);
  }
  ScriptedQp host_;
  Buffer buffer_;
};

TEST_F(ResponderAtomic, CompareAndSwapMatches) {
  host_.receive(swap(kRqPsn, 1000, 2000));
  EXPECT_THAT(host_.drain(), ElementsAre(AllOf(IsAtomicResponse(kRqPsn, 1000u), HasMsn(1))));
  EXPECT_EQ(word(), 2000u);
}

TEST_F(ResponderAtomic, CompareAndSwapDiffers) {
  host_.receive(swap(kRqPsn, 1001, 2000));
  EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 1000u)));
  EXPECT_EQ(word(), 1000u);
}

TEST_F(ResponderAtomic, FetchAndAddWrapsAround) {
  host_.receive(add(kRqPsn, UINT64_MAX));
  EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 1000u)));
  EXPECT_EQ(word(), 999u);
}

TEST_F(ResponderAtomic, DuplicatesReplayTheResultAndExecuteNothing) {
  host_.receive(add(kRqPsn, 1));
  host_.receive(swap(kRqPsn + 1, 1001, 77));
  host_.drain();
  set(5);
  for (int i = 0; i < 3; ++i) {
    host_.receive(add(kRqPsn, 1));
    EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 1000u)));
    host_.receive(swap(kRqPsn + 1, 1001, 77));
    EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn + 1, 1001u)));
  }
  EXPECT_EQ(word(), 5u);
}

TEST_F(ResponderAtomic, DuplicateBeforeTheAnswerIsAnsweredOnce) {
  host_.receive(add(kRqPsn, 1));
  host_.receive(add(kRqPsn, 1));
  EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 1000u)));
  EXPECT_EQ(word(), 1001u);
  // Nothing is left that an acknowledgement would have to wait for.
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn + 1).ack_request());
  EXPECT_THAT(host_.drain(), ElementsAre(IsAck(kRqPsn + 1)));
  EXPECT_FALSE(host_.qp.wants_to_send(host_.now));
}

// wire.md: unknown -> drop silently. A READ in the place of an atomic, or the reverse, is unknown.
TEST_F(ResponderAtomic, UnknownDuplicatesAreDropped) {
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn));
  host_.receive(add(kRqPsn + 1, 1));
  host_.receive(read_request(kRqPsn + 2, buffer_.iova, buffer_.key, 8));
  host_.drain();
  const uint64_t before = word();
  host_.receive(add(kRqPsn, 1));
  host_.receive(read_request(kRqPsn + 1, buffer_.iova, buffer_.key, 8));
  host_.receive(add(kRqPsn + 2, 1));
  host_.receive(add(kRqPsn - 1, 1));
  EXPECT_THAT(host_.drain(), IsEmpty());
  EXPECT_EQ(host_.count(Counter::kDropDuplicateUnknown), 4u);
  EXPECT_EQ(word(), before);
}

// IBTA 9.4.5.1: the address is a multiple of 8; faults.md 21.
TEST_F(ResponderAtomic, MisalignedIsAnInvalidRequest) {
  for (uint64_t off = 1; off < 8; ++off) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(16);
    const Bytes before = buffer.bytes;
    host.to_rts();
    host.receive(PeerPacket(off % 2 == 0 ? Opcode::kRcFetchAdd : Opcode::kRcCompareSwap, kRqPsn)
                     .atomic(buffer.iova + off, buffer.key, 1, 0));
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn)));
    EXPECT_EQ(buffer.bytes, before);
  }
}

// A region whose address in memory is aligned differently from its virtual address.
TEST_F(ResponderAtomic, RegionAtAnOddAddress) {
  ScriptedQp host;
  Bytes memory = pattern(32);
  const uint32_t key =
      host.mrs.add({.base = memory.data() + 3, .iova = kIova, .length = 16, .access = kAllRemote, .pd = kPd});
  uint64_t before;
  std::memcpy(&before, &memory[11], 8);
  host.to_rts();
  host.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(kIova + 8, key, 3));
  EXPECT_THAT(host.drain(), ElementsAre(IsAtomicResponse(kRqPsn, before)));
  uint64_t after;
  std::memcpy(&after, &memory[11], 8);
  EXPECT_EQ(after, before + 3);
}

// An atomic sees the WRITE before it (IBTA 9.5: requests are executed in order).
TEST_F(ResponderAtomic, OrderWithWritesIsKept) {
  host_.receive(add(kRqPsn, 1));
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn + 1, Bytes(8, 0)).reth(buffer_.iova, buffer_.key, 8));
  host_.receive(add(kRqPsn + 2, 4));
  EXPECT_THAT(host_.drain(), ElementsAre(IsAtomicResponse(kRqPsn, 1000u), IsAtomicResponse(kRqPsn + 2, 0u)));
  EXPECT_EQ(word(), 4u);
}

}  // namespace
}  // namespace uroce::transport
