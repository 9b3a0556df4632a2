// SPDX-License-Identifier: BSD-2-Clause
// Peers as they are, as responders: what Linux Soft-RoCE (rxe) and ConnectX do on the wire that the specification would
// not make one expect (wire.md "rxe as a peer", "ConnectX and DCQCN"). Each test is named after the quirk and shows
// that we get along with it, without spending more of the retry budget than has to be.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

QpAttributes with_retries(uint8_t retry_count) {
  QpAttributes a = default_attributes();
  a.retry_count = retry_count;
  return a;
}

class QuirkyResponder : public testing::Test {
 protected:
  // Sends of one packet each, wr_id 1 to `count`, from kSqPsn on.
  void post_sends(uint32_t count) {
    for (uint64_t id = 1; id <= count; ++id) host_.post(work(WrOpcode::kSend, id));
  }
  // All complete with success, 1 to `count`, and nothing else.
  void expect_completed(uint64_t count) {
    const auto cqes = host_.sends();
    ASSERT_THAT(cqes, SizeIs(count));
    for (uint64_t i = 0; i < count; ++i) EXPECT_THAT(cqes[i], IsCompletion(i + 1, kOk));
  }

  ScriptedQp host_;
};

TEST_F(QuirkyResponder, CoalescesAcksOverManyMessages) {
  host_.to_rts(with_retries(0));
  post_sends(100);
  ASSERT_THAT(host_.pull(), SizeIs(100));
  host_.receive(ack(kSqPsn + 99));
  expect_completed(100);
  EXPECT_EQ(host_.qp.deadline(), kNever);
}

TEST_F(QuirkyResponder, AcknowledgesOnlyTheLastPacketOfAWindow) {
  host_.to_rts(with_retries(0));
  Buffer buffer = host_.make_buffer(256 * kMtu);
  host_.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 256 * kMtu)});
  ASSERT_THAT(host_.pull(), SizeIs(Requester::kWindow));
  host_.receive(ack(kSqPsn + 127));
  EXPECT_THAT(host_.sends(), IsEmpty());
  const auto rest = host_.pull();
  ASSERT_THAT(rest, SizeIs(256 - Requester::kWindow));
  EXPECT_THAT(rest.back(), AllOf(IsRequest(Opcode::kRcWriteLast, kSqPsn + 255), AsksForAck()));
  host_.receive(ack(kSqPsn + 255));
  expect_completed(1);
}

TEST_F(QuirkyResponder, AcknowledgesThePsnInTheMiddleOfAMessage) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(4 * kMtu);
  host_.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 2 * kMtu)});
  host_.post(work(WrOpcode::kSend, 2), {buffer.sge(0, 4 * kMtu)});
  ASSERT_THAT(host_.pull(), SizeIs(6));
  host_.receive(ack(kSqPsn + 3));  // the second packet of the second message
  expect_completed(1);
  // What it acknowledged is not sent again.
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 4));
  EXPECT_THAT(host_.pull(),
              ElementsAre(IsRequest(Opcode::kRcSendMiddle, kSqPsn + 4, part(buffer.bytes, 2 * kMtu, kMtu)),
                          IsRequest(Opcode::kRcSendLast, kSqPsn + 5, part(buffer.bytes, 3 * kMtu, kMtu))));
  host_.receive(ack(kSqPsn + 5));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk)));
}

// Credit code 31, whatever it has: nothing is held back for it.
TEST_F(QuirkyResponder, NeverCountsCredits) {
  host_.to_rts();
  post_sends(1);
  ASSERT_THAT(host_.pull(), SizeIs(1));
  host_.receive(PeerPacket(Opcode::kRcAcknowledge, kSqPsn).aeth(0x1f, 1));
  expect_completed(1);
  for (uint64_t id = 2; id <= 41; ++id) host_.post(work(WrOpcode::kSend, id));
  EXPECT_THAT(host_.pull(), SizeIs(40));
}

// ... and its MSN counts for nothing either.
TEST_F(QuirkyResponder, MsnIsWhateverItLikes) {
  host_.to_rts();
  post_sends(3);
  ASSERT_THAT(host_.pull(), SizeIs(3));
  for (uint32_t i = 0; i < 3; ++i) {
    host_.receive(PeerPacket(Opcode::kRcAcknowledge, kSqPsn + i).aeth(0x1f, 0xfffff0 - i));
  }
  expect_completed(3);
}

// rxe: the next later PSN gets a PSN NAK although the RNR NAK is still to be waited out.
TEST_F(QuirkyResponder, SendsAPsnNakBehindAnRnrNak) {
  host_.to_rts(with_retries(0));
  post_sends(3);
  ASSERT_THAT(host_.pull(), SizeIs(3));
  constexpr uint8_t kTimer = 12;  // 0.64 ms
  const Time until = host_.now + wire::rnr_delay(kTimer);
  host_.receive(rnr_nak(kSqPsn, kTimer));
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_THAT(host_.run_until(until - Duration(1)), IsEmpty());
  EXPECT_THAT(host_.run_until(until), SizeIs(3));
  host_.receive(ack(kSqPsn + 2));
  expect_completed(3);
}

// ... and when it comes late, behind the next attempt, as often as the peer is not ready. It got the packet each time.
TEST_F(QuirkyResponder, SendsAPsnNakBehindEveryRnrNak) {
  QpAttributes attributes = with_retries(1);
  attributes.rnr_retry = 7;  // for ever
  host_.to_rts(attributes);
  post_sends(3);
  ASSERT_THAT(host_.pull(), SizeIs(3));
  constexpr uint8_t kTimer = 1;  // 10 us
  for (int i = 0; i < 10; ++i) {
    host_.receive(rnr_nak(kSqPsn, kTimer));
    EXPECT_THAT(host_.run_until(host_.now + wire::rnr_delay(kTimer)), SizeIs(3));
    host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
    EXPECT_THAT(host_.pull(), SizeIs(3));
  }
  host_.receive(ack(kSqPsn + 2));
  expect_completed(3);
}

// rxe: a duplicate is answered with the PSN of the last SEND, WRITE or atomic that it has executed.
TEST_F(QuirkyResponder, AcknowledgesDuplicatesWithThePsnOfTheLastSend) {
  host_.to_rts(with_retries(0));
  post_sends(3);
  ASSERT_THAT(host_.pull(), SizeIs(3));
  host_.expire();  // the ACKs were lost
  ASSERT_THAT(host_.pull(), SizeIs(2));
  for (int i = 0; i < 2; ++i) host_.receive(ack(kSqPsn + 2));
  expect_completed(3);
  EXPECT_EQ(host_.count(Counter::kDropStaleResponse), 1u);
  EXPECT_THAT(host_.pull(), IsEmpty());
}

// ... which can be beyond a READ whose response was lost: an implied NAK, one retry, and the READ goes again.
TEST_F(QuirkyResponder, AcknowledgesADuplicateBeyondAReadThatIsNotAnswered) {
  host_.to_rts(with_retries(1));
  Buffer buffer = host_.make_buffer(2 * kMtu);
  const Bytes data = pattern(2 * kMtu, 99);
  host_.post(work(WrOpcode::kSend, 1));
  host_.post(rdma(WrOpcode::kRdmaRead, 2, kRemote, kRkey), {buffer.sge(0, 2 * kMtu)});
  host_.post(work(WrOpcode::kSend, 3));
  ASSERT_THAT(host_.pull(), SizeIs(3));
  host_.expire();  // all answers were lost
  ASSERT_THAT(host_.pull(), SizeIs(2));
  host_.receive(ack(kSqPsn + 3));  // answers the SEND that was sent again
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_THAT(host_.pull(),
              ElementsAre(IsReadRequest(kSqPsn + 1, kRemote, 2 * kMtu), IsRequest(Opcode::kRcSendOnly, kSqPsn + 3)));
  host_.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn + 1, part(data, 0, kMtu)));
  host_.receive(read_response(Opcode::kRcReadResponseLast, kSqPsn + 2, part(data, kMtu, kMtu)));
  host_.receive(ack(kSqPsn + 3));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk), IsCompletion(3, kOk)));
  EXPECT_EQ(buffer.bytes, data);
}

// ... and before every answer that it repeats: that the answer is missing is news once, and costs one retry.
TEST_F(QuirkyResponder, AcknowledgesDuplicatesInFrontOfTheAnswersThatItRepeats) {
  host_.to_rts(with_retries(1));
  Buffer buffer = host_.make_buffer(8);
  host_.post(work(WrOpcode::kSend, 1));
  queue::SendWqe atomic = rdma(WrOpcode::kFetchAdd, 2, kRemote, kRkey);
  atomic.length = 8;
  host_.post(atomic, {buffer.sge(0, 8)});
  host_.post(work(WrOpcode::kSend, 3));
  ASSERT_THAT(host_.pull(), SizeIs(3));
  for (int i = 0; i < 4; ++i) {
    host_.receive(ack(kSqPsn + 2));  // the atomic's answer is lost
    EXPECT_THAT(host_.sends(), SizeIs(i == 0 ? 1 : 0));
    host_.pull();
    host_.expire();
    host_.pull();
  }
  EXPECT_EQ(host_.count(Counter::kTimeouts), 0u);
  host_.receive(atomic_response(kSqPsn + 1, 5));
  host_.receive(ack(kSqPsn + 2));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk), IsCompletion(3, kOk)));
}

// The same of READs: the answer of the second one, again and again, while that of the first is lost.
TEST_F(QuirkyResponder, AnswersALaterReadAgainAndAgain) {
  host_.to_rts(with_retries(1));
  Buffer buffer = host_.make_buffer(2 * kMtu);
  const Bytes data = pattern(kMtu, 99);
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, kMtu)});
  host_.post(rdma(WrOpcode::kRdmaRead, 2, kRemote + kMtu, kRkey), {buffer.sge(kMtu, kMtu)});
  ASSERT_THAT(host_.pull(), SizeIs(2));
  for (int i = 0; i < 4; ++i) {
    host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + 1, data));
    host_.pull();
    host_.expire();
    host_.pull();
  }
  EXPECT_EQ(host_.count(Counter::kTimeouts), 0u);
  for (uint32_t n = 0; n < 2; ++n) host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn + n, data));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk)));
}

// rxe: a SEND with invalidate that fails is not answered, and its QP is dead from then on.
TEST_F(QuirkyResponder, DoesNotNakAFailedSendWithInvalidate) {
  const QpAttributes a = default_attributes();
  host_.to_rts(a);
  queue::SendWqe wqe = work(WrOpcode::kSendWithInvalidate, 1);
  wqe.immediate_or_rkey = kRkey;
  host_.post(wqe);
  host_.post(work(WrOpcode::kSend, 2));
  const Time start = host_.now;
  const Duration budget = (a.retry_count + 1) * 4 * LossRecovery::transport_timeout(a.timeout);
  host_.run_until(start + budget - Duration(1));
  EXPECT_THAT(host_.sends(), IsEmpty());
  host_.run_until(start + budget);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kRetryExceeded), IsCompletion(2, WcStatus::kFlushError)));
}

// rxe: the receive completes as an invalid request there; here it is one as ever, also in the middle of the message.
TEST_F(QuirkyResponder, CallsAReceiveOverrunAnInvalidRequest) {
  host_.to_rts();
  Buffer buffer = host_.make_buffer(3 * kMtu);
  host_.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  host_.post(work(WrOpcode::kSend, 2));
  ASSERT_THAT(host_.pull(), SizeIs(4));
  host_.receive(nak(NakCode::kInvalidRequest, kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kRemoteInvalidRequestError),
                                         IsCompletion(2, WcStatus::kFlushError)));
}

// rxe looks up the rkey of a READ that comes again, which nobody gave for zero bytes. Nothing is lost as long as the
// answer to the first one arrived.
TEST_F(QuirkyResponder, RefusesAReadOfZeroBytesThatComesAgain) {
  host_.to_rts(with_retries(0));
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey));
  host_.post(work(WrOpcode::kSend, 2));
  ASSERT_THAT(host_.pull(), SizeIs(2));
  host_.expire();  // a probe, while the answer is under way
  ASSERT_THAT(host_.pull(), SizeIs(2));
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, {}));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, kOk)));
  host_.receive(nak(NakCode::kRemoteAccessError, kSqPsn));
  host_.receive(ack(kSqPsn + 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(2, kOk)));
}

// rxe as the responder of one READ: a repeated request narrows what it remembers to what was asked for last. What
// begins before that is dropped without a word; what is answered begins with Middle or Last.
class NarrowingReader {
 public:
  NarrowingReader(Bytes data, uint32_t count) : data_(std::move(data)), count_(count) {}

  // The response numbers that a request is answered with. None: dropped.
  std::vector<uint32_t> answer(const SentPacket& request) {
    const uint32_t n = request.headers.bth.psn.value() - kSqPsn;
    if (n < start_) {
      ++dropped;
      return {};
    }
    replay_ = asked_;
    asked_ = true;
    start_ = n;
    std::vector<uint32_t> numbers;
    for (; n + numbers.size() < count_;) numbers.push_back(n + static_cast<uint32_t>(numbers.size()));
    return numbers;
  }
  PeerPacket response(uint32_t n) const {
    const bool first = n == 0 && !(replay_ && start_ != 0);
    const bool last = n + 1 == count_;
    const Opcode opcode = first && last ? Opcode::kRcReadResponseOnly
                          : first       ? Opcode::kRcReadResponseFirst
                          : last        ? Opcode::kRcReadResponseLast
                                        : Opcode::kRcReadResponseMiddle;
    return read_response(opcode, kSqPsn + n, part(data_, n * kMtu, std::min<size_t>(kMtu, data_.size() - n * kMtu)));
  }
  int dropped = 0;

 private:
  const Bytes data_;
  const uint32_t count_;
  uint32_t start_ = 0;
  bool asked_ = false, replay_ = false;
};

// Whatever of the first two answers is lost, no retry begins before one that the peer has seen already.
TEST_F(QuirkyResponder, NarrowsTheReadThatItRemembers) {
  constexpr uint32_t kCount = 4;
  constexpr uint32_t kSize = 3 * kMtu + 9;
  const Bytes data = pattern(kSize, 99);
  for (uint32_t lost = 0; lost < 1u << 2 * kCount; ++lost) {
    SCOPED_TRACE(lost);
    ScriptedQp host;
    host.to_rts(with_retries(2));
    Buffer buffer = host.make_buffer(kSize);
    host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, kSize)});
    NarrowingReader peer(data, kCount);
    for (uint32_t round = 0; round < 4; ++round) {
      auto requests = host.pull();
      if (requests.empty() && host.qp.deadline() != kNever) {
        host.expire();
        requests = host.pull();
      }
      for (const SentPacket& request : requests) {
        for (const uint32_t n : peer.answer(request)) {
          if (round >= 2 || !(lost >> (round * kCount + n) & 1)) host.receive(peer.response(n));
        }
      }
    }
    EXPECT_EQ(peer.dropped, 0);
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk)));
    EXPECT_EQ(buffer.bytes, data);
    EXPECT_EQ(host.count(Counter::kTimeouts), 0u);
  }
}

// The narrowest replay of all, and again one packet further.
TEST_F(QuirkyResponder, BeginsReadReplaysWithMiddleOrLast) {
  host_.to_rts(with_retries(1));
  constexpr uint32_t kSize = 4 * kMtu;
  Buffer buffer = host_.make_buffer(kSize);
  const Bytes data = pattern(kSize, 99);
  const auto respond = [&](Opcode opcode, uint32_t n) {
    host_.receive(read_response(opcode, kSqPsn + n, part(data, n * kMtu, kMtu)));
  };
  host_.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, kSize)});
  ASSERT_THAT(host_.pull(), SizeIs(1));
  respond(Opcode::kRcReadResponseFirst, 0);
  respond(Opcode::kRcReadResponseLast, 3);
  ASSERT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 1, kRemote + kMtu, 3 * kMtu)));
  respond(Opcode::kRcReadResponseMiddle, 1);  // progress gives the budget back
  respond(Opcode::kRcReadResponseLast, 3);
  ASSERT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 2, kRemote + 2 * kMtu, 2 * kMtu)));
  respond(Opcode::kRcReadResponseMiddle, 2);
  host_.expire();
  ASSERT_THAT(host_.pull(), ElementsAre(IsReadRequest(kSqPsn + 3, kRemote + 3 * kMtu, kMtu)));
  respond(Opcode::kRcReadResponseLast, 3);
  expect_completed(1);
  EXPECT_EQ(buffer.bytes, data);
}

}  // namespace
}  // namespace uroce::transport
