// SPDX-License-Identifier: BSD-2-Clause
// READ and atomic responses: data, implied NAKs, partial retries, and responses that break the rules.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;
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

// A READ of `length` bytes, sent at kSqPsn with wr_id 1, into `buffer_`.
class CompleterRead : public testing::Test {
 protected:
  void read(uint32_t length, const QpAttributes& a = default_attributes()) {
    buffer_ = host_.make_buffer(length);
    before_ = buffer_.bytes;
    data_ = pattern(length, 99);
    host_.to_rts(a);
    host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer_.sge(0, length)});
    ASSERT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn, kRemote, length)));
  }
  // Response number `n` with the data that belongs there.
  void respond(Opcode opcode, uint32_t n) {
    const auto offset = std::min(static_cast<size_t>(n) * kMtu, data_.size());
    host_.receive(
        read_response(opcode, kSqPsn + n, part(data_, offset, std::min<size_t>(kMtu, data_.size() - offset))));
  }

  ScriptedQp host_;
  Buffer buffer_;
  Bytes before_, data_;
};

TEST_F(CompleterRead, SingleResponse) {
  for (const uint32_t length : {0u, 1u, 5u, kMtu - 1, kMtu}) {
    SCOPED_TRACE(length);
    ScriptedQp host;
    Buffer buffer = host.make_buffer(kMtu + 8);
    Bytes expected = buffer.bytes;
    const Bytes data = pattern(length, 99);
    std::copy(data.begin(), data.end(), expected.begin());
    host.to_rts();
    host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, length)});
    ASSERT_THAT(host.pull(), SizeIs(1));
    host.receive(read_response(kOnly, kSqPsn, data));
    const auto cqes = host.sends();
    ASSERT_THAT(cqes, ElementsAre(IsCompletion(1, kOk)));
    EXPECT_EQ(cqes[0].opcode, WcOpcode::kRdmaRead);
    EXPECT_EQ(cqes[0].byte_length, length);
    EXPECT_EQ(buffer.bytes, expected);
    EXPECT_EQ(host.qp.deadline(), kNever);
  }
}

TEST_F(CompleterRead, FirstMiddleLast) {
  read(3 * kMtu + 7);
  respond(kFirst, 0);
  respond(kMiddle, 1);
  respond(kMiddle, 2);
  EXPECT_THAT(host_.sends(), IsEmpty());
  respond(kLast, 3);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer_.bytes, data_);
}

TEST_F(CompleterRead, ScattersAcrossSges) {
  Buffer buffer = host_.make_buffer(1024);
  Bytes expected = buffer.bytes;
  const Bytes data = pattern(300, 99);
  std::copy_n(data.begin(), 100, expected.begin() + 500);
  std::copy_n(data.begin() + 100, 50, expected.begin());
  std::copy_n(data.begin() + 150, 150, expected.begin() + 700);
  host_.to_rts();
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey),
             {buffer.sge(500, 100), buffer.sge(3, 0), buffer.sge(0, 50), buffer.sge(700, 150)});
  ASSERT_THAT(host_.pull(), SizeIs(1));
  host_.receive(read_response(kFirst, kSqPsn, part(data, 0, kMtu)));
  host_.receive(read_response(kLast, kSqPsn + 1, part(data, kMtu, 44)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer.bytes, expected);
}

// wire.md "rxe as a peer": a replay from mid-range begins with Middle (no AETH) or Last: accept it.
TEST_F(CompleterRead, ReplayThatBeginsWithMiddleOrLast) {
  read(3 * kMtu);
  respond(kFirst, 0);
  host_.receive(read_response(kLast, kSqPsn + 2, part(data_, 2 * kMtu, kMtu)));  // 1 was lost
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 1, kRemote + kMtu, 2 * kMtu)));
  respond(kMiddle, 1);
  respond(kLast, 2);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer_.bytes, data_);
}

// wire.md: a retried READ restarts with First or Only.
TEST_F(CompleterRead, ReplayThatBeginsWithFirstOrOnly) {
  read(3 * kMtu);
  respond(kFirst, 0);
  respond(kLast, 2);
  ASSERT_THAT(host_.pull(), SizeIs(1));
  respond(kFirst, 1);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 2));
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 2, kRemote + 2 * kMtu, kMtu)));
  respond(kOnly, 2);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer_.bytes, data_);
}

// IBTA 9.7.5.1.1: a response ahead of sequence is an implied NAK: one retry, that asks for the rest.
TEST_F(CompleterRead, GapInResponsesIsRetriedOnceAndNothingAheadIsWritten) {
  read(5 * kMtu);
  respond(kFirst, 0);
  respond(kMiddle, 2);
  respond(kMiddle, 3);
  respond(kLast, 4);
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 1, kRemote + kMtu, 4 * kMtu)));
  EXPECT_EQ(part(buffer_.bytes, kMtu, 4 * kMtu), part(before_, kMtu, 4 * kMtu));
  EXPECT_THAT(host_.sends(), IsEmpty());
  for (uint32_t n = 1; n < 4; ++n) respond(n == 1 ? kFirst : kMiddle, n);
  respond(kLast, 4);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer_.bytes, data_);
}

// wire.md: retry_cnt counts implied NAKs.
TEST_F(CompleterRead, ImpliedNakWithoutRetryBudgetEndsTheQp) {
  QpAttributes a = default_attributes();
  a.retry_count = 0;
  read(2 * kMtu, a);
  respond(kLast, 1);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded)));
}

TEST_F(CompleterRead, DuplicateResponsesAreIgnored) {
  read(2 * kMtu);
  respond(kFirst, 0);
  const Bytes other = pattern(kMtu, 5);
  host_.receive(read_response(kFirst, kSqPsn, other));
  EXPECT_EQ(part(buffer_.bytes, 0, kMtu), part(data_, 0, kMtu)) << "written twice";
  respond(kLast, 1);
  host_.receive(read_response(kLast, kSqPsn + 1, other));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer_.bytes, data_);
  EXPECT_EQ(host_.count(Counter::kDropStaleResponse), 2u);
}

// --- responses that break the rules (faults.md 28: never past the SGE) -----------------------------------------------

struct BadResponse {
  const char* name;
  uint32_t read_length;
  Opcode opcode;
  uint32_t size;
  WcStatus status;
};

TEST_F(CompleterRead, WrongSizeOrOpcodeEndsTheQpAndTouchesNothing) {
  constexpr BadResponse kCases[] = {
      {"Only too long", 8, kOnly, 9, WcStatus::kLocalLengthError},
      {"Only too short", 8, kOnly, 7, WcStatus::kLocalLengthError},
      {"Only empty", 8, kOnly, 0, WcStatus::kLocalLengthError},
      {"Only a PMTU long", 8, kOnly, kMtu, WcStatus::kLocalLengthError},
      {"Only longer than the PMTU", 8, kOnly, 4096, WcStatus::kLocalLengthError},
      {"First short", 2 * kMtu, kFirst, kMtu - 1, WcStatus::kLocalLengthError},
      {"First long", 2 * kMtu, kFirst, kMtu + 1, WcStatus::kLocalLengthError},
      {"First of two packets where one is due", kMtu, kFirst, kMtu, WcStatus::kBadResponseError},
      {"Only where two packets are due", 2 * kMtu, kOnly, kMtu, WcStatus::kBadResponseError},
      {"Last where two packets are due", 2 * kMtu, kLast, kMtu, WcStatus::kBadResponseError},
  };
  for (const BadResponse& bad : kCases) {
    SCOPED_TRACE(bad.name);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(bad.read_length);
    const Bytes before = buffer.bytes;
    host.to_rts();
    host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey, 0), {buffer.sge(0, bad.read_length)});
    host.post(work(WrOpcode::kSend, 2));
    ASSERT_THAT(host.pull(), SizeIs(2));
    host.receive(read_response(bad.opcode, kSqPsn, pattern(bad.size, 77)));
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, bad.status), IsCompletion(2, WcStatus::kFlushError)));
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_EQ(buffer.bytes, before);
  }
}

TEST_F(CompleterRead, MiddleWhereTheLastIsDue) {
  read(2 * kMtu);
  respond(kFirst, 0);
  respond(kMiddle, 1);
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kBadResponseError)));
}

TEST_F(CompleterRead, ResponseToASendIsDropped) {
  host_.to_rts();
  host_.post(work(WrOpcode::kSend, 1));
  ASSERT_THAT(host_.pull(), SizeIs(1));
  host_.receive(read_response(kOnly, kSqPsn, pattern(8)));
  EXPECT_EQ(host_.count(Counter::kDropUnsolicitedResponse), 1u);
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
}

TEST_F(CompleterRead, AtomicResponseToAReadIsABadResponse) {
  read(8);
  host_.receive(atomic_response(kSqPsn, 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kBadResponseError)));
  EXPECT_EQ(buffer_.bytes, before_);
}

// A syndrome that is not an ACK in a READ response means nothing (faults.md 27).
TEST_F(CompleterRead, ResponseWithAnotherSyndromeThanAckIsDropped) {
  read(8);
  for (const uint8_t syndrome : {0x20, 0x40, 0x60, 0x62, 0x80, 0xff}) {
    host_.receive(PeerPacket(kOnly, kSqPsn).aeth(syndrome).payload(data_));
  }
  EXPECT_EQ(host_.count(Counter::kDropReservedSyndrome), 6u);
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_EQ(buffer_.bytes, before_);
}

// IBTA 10.6.3.1: a READ writes to local memory.
TEST_F(CompleterRead, LocalMemoryThatDoesNotAllowWriting) {
  Buffer buffer = host_.make_buffer(8, memory::kLocalRead);
  const Bytes before = buffer.bytes;
  host_.to_rts();
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, 8)});
  host_.pull();
  host_.receive(read_response(kOnly, kSqPsn, pattern(8, 99)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(buffer.bytes, before);
}

TEST_F(CompleterRead, LocalMemoryThatEndsTooEarlyIsNotWrittenPast) {
  Buffer buffer = host_.make_buffer(kMtu + 4);
  host_.to_rts();
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, kMtu + 8)});
  host_.pull();
  host_.receive(read_response(kFirst, kSqPsn, pattern(kMtu)));
  host_.receive(read_response(kLast, kSqPsn + 1, pattern(8)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
}

// --- order among kinds (wire.md: READ and atomics complete only by their own response) -------------------------------

class CompleterMix : public testing::Test {
 protected:
  // SEND at kSqPsn, READ of two packets, FETCH_ADD, SEND.
  void SetUp() override {
    buffer_ = host_.make_buffer(4 * kMtu);
    host_.to_rts();
    host_.post(work(WrOpcode::kSend, 1));
    host_.post(rdma(WrOpcode::kRdmaRead, 2, kRemote, kRkey), {buffer_.sge(0, 2 * kMtu)});
    host_.post(rdma(WrOpcode::kFetchAdd, 3, kRemote, kRkey), {buffer_.sge(3 * kMtu, 8)});
    host_.post(work(WrOpcode::kSend, 4));
    ASSERT_THAT(host_.pull(), SizeIs(4));
  }
  const uint32_t read_ = kSqPsn + 1, atomic_ = kSqPsn + 3, last_ = kSqPsn + 4;
  ScriptedQp host_;
  Buffer buffer_;
};

TEST_F(CompleterMix, ReadResponseAcknowledgesTheSendsBeforeIt) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
}

TEST_F(CompleterMix, EverythingInOrder) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(read_response(kLast, read_ + 1, pattern(kMtu)));
  host_.receive(atomic_response(atomic_, 0x1122334455667788));
  host_.receive(ack(last_));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk), IsCompletion(3, kOk), IsCompletion(4, kOk)));
  uint64_t original;
  std::memcpy(&original, &buffer_.bytes[3 * kMtu], sizeof(original));
  EXPECT_EQ(original, 0x1122334455667788u) << "host byte order, as verbs defines it";
}

// IBTA 9.7.5.1.1: a later ACK shows that the response was lost. The READ does not complete by it.
TEST_F(CompleterMix, LaterAckIsAnImpliedNakOfARead) {
  host_.receive(ack(last_));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(host_.count(Counter::kRxImpliedNaks), 1u);
  EXPECT_THAT(host_.pull(), ElementsAre(IsReadRequest(read_, kRemote, 2 * kMtu), HasPsn(atomic_), HasPsn(last_)));
}

TEST_F(CompleterMix, LaterAtomicResponseIsAnImpliedNakOfARead) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(atomic_response(atomic_, 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_THAT(host_.pull(),
              ElementsAre(IsReadRequest(read_ + 1, kRemote + kMtu, kMtu), HasPsn(atomic_), HasPsn(last_)));
}

TEST_F(CompleterMix, LaterAckIsAnImpliedNakOfAnAtomic) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(read_response(kLast, read_ + 1, pattern(kMtu)));
  host_.receive(ack(last_));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk)));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcFetchAdd, atomic_), HasPsn(last_)));
  host_.receive(atomic_response(atomic_, 5));
  host_.receive(ack(last_));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(3, kOk), IsCompletion(4, kOk)));
}

// Two READs: responses of the second show that those of the first were lost, and are not taken for them.
TEST(CompleterReads, LaterReadResponseIsAnImpliedNakOfTheEarlierRead) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(16);
  const Bytes before = buffer.bytes;
  host.to_rts();
  host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, kRemote + 8, kRkey), {buffer.sge(8, 8)});
  ASSERT_THAT(host.pull(), SizeIs(2));
  host.receive(read_response(kOnly, kSqPsn + 1, pattern(8, 77)));
  EXPECT_THAT(host.sends(), IsEmpty());
  EXPECT_EQ(buffer.bytes, before);
  EXPECT_THAT(host.pull(), ElementsAre(IsReadRequest(kSqPsn, kRemote, 8), IsReadRequest(kSqPsn + 1, kRemote + 8, 8)));
}

// An ACK with a READ's own PSN is no response.
TEST_F(CompleterMix, AckDoesNotCompleteAReadOrAtomic) {
  host_.receive(ack(read_ + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  ASSERT_THAT(host_.pull(), SizeIs(3));
}

TEST_F(CompleterMix, FatalNakOfTheReadEndsIt) {
  host_.receive(nak(NakCode::kRemoteAccessError, read_));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, kOk), IsCompletion(2, WcStatus::kRemoteAccessError),
                          IsCompletion(3, WcStatus::kFlushError), IsCompletion(4, WcStatus::kFlushError)));
}

// The peer's memory went away between two responses.
TEST_F(CompleterMix, FatalNakInsideAReadEndsIt) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(nak(NakCode::kRemoteAccessError, read_ + 1));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, kOk), IsCompletion(2, WcStatus::kRemoteAccessError),
                          IsCompletion(3, WcStatus::kFlushError), IsCompletion(4, WcStatus::kFlushError)));
}

// ... and the response before it was lost. The peer's QP has failed: nobody would answer a retry.
TEST_F(CompleterMix, FatalNakInsideAReadEndsItAlsoWhenAResponseIsMissing) {
  host_.receive(nak(NakCode::kRemoteAccessError, read_ + 1));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, kOk), IsCompletion(2, WcStatus::kRemoteAccessError),
                          IsCompletion(3, WcStatus::kFlushError), IsCompletion(4, WcStatus::kFlushError)));
}

// ... or has arrived meanwhile: an early retransmission made the peer begin anew.
TEST_F(CompleterMix, FatalNakInsideAReadEndsItAlsoWhenItsResponseCameBefore) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(nak(NakCode::kRemoteAccessError, read_));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, kOk), IsCompletion(2, WcStatus::kRemoteAccessError),
                          IsCompletion(3, WcStatus::kFlushError), IsCompletion(4, WcStatus::kFlushError)));
}

TEST_F(CompleterMix, AtomicResponseCompletionSaysWhatAndHowMuch) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(read_response(kLast, read_ + 1, pattern(kMtu)));
  host_.sends();
  host_.receive(atomic_response(atomic_, 5));
  const auto cqes = host_.sends();
  ASSERT_THAT(cqes, SizeIs(1));
  EXPECT_EQ(cqes[0].opcode, WcOpcode::kFetchAdd);
  EXPECT_EQ(cqes[0].byte_length, 8u);
}

// Exactly once: the duplicate of an atomic's response is of the past.
TEST_F(CompleterMix, DuplicateAtomicResponseIsIgnored) {
  host_.receive(read_response(kFirst, read_, pattern(kMtu)));
  host_.receive(read_response(kLast, read_ + 1, pattern(kMtu)));
  host_.receive(atomic_response(atomic_, 5));
  host_.sends();
  host_.receive(atomic_response(atomic_, 6));
  EXPECT_THAT(host_.sends(), IsEmpty());
  uint64_t original;
  std::memcpy(&original, &buffer_.bytes[3 * kMtu], sizeof(original));
  EXPECT_EQ(original, 5u);
}

}  // namespace
}  // namespace uroce::transport
