// SPDX-License-Identifier: BSD-2-Clause
// Faults 25 to 29 of faults.md where the other tests of the completer leave something out: responses that nobody asked
// for, that break the rules, or that come a million times. Tests are named after the fault; docs/faults.md names the
// others.
#include <string>

#include "engine/transport/reliable/loss_recovery.h"
#include "tests/engine/transport/qp_pair.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AnyOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

constexpr Opcode kReadResponses[] = {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                                     Opcode::kRcReadResponseLast, Opcode::kRcReadResponseOnly};

// Every kind of response to `psn`.
std::vector<PeerPacket> responses(uint32_t psn) {
  psn &= wire::kMask24;
  std::vector<PeerPacket> all = {ack(psn), rnr_nak(psn, 1), atomic_response(psn, 5)};
  for (uint8_t code = 0; code <= 4; ++code) all.push_back(nak(static_cast<NakCode>(code), psn));
  for (const Opcode opcode : kReadResponses) all.push_back(read_response(opcode, psn, pattern(kMtu, 77)));
  return all;
}

// --- 25, 26: PSNs of the past and of the future ----------------------------------------------------------------------

// A SEND, a READ of two packets, an atomic and a SEND under way, which nothing that a test sends may complete.
class UnderWay {
 public:
  explicit UnderWay(uint32_t first_psn) : psn(first_psn), buffer(host.make_buffer(2 * kMtu + 8)), before(buffer.bytes) {
    QpAttributes a = default_attributes();
    a.sq_psn = wire::Psn(psn);
    host.to_rts(a);
    host.post(work(WrOpcode::kSend, 1));
    host.post(sized(rdma(WrOpcode::kRdmaRead, 2, kRemote, kRkey), 2 * kMtu), {buffer.sge(0, 2 * kMtu)});
    host.post(sized(rdma(WrOpcode::kFetchAdd, 3, kRemote, kRkey), 8), {buffer.sge(2 * kMtu, 8)});
    host.post(work(WrOpcode::kSend, 4));
    EXPECT_THAT(host.pull(), SizeIs(4));
    deadline = host.qp.deadline();
  }
  // No effect, and counted once as the one or the other.
  void expect_ignored(const PeerPacket& packet, std::initializer_list<Counter> counters) {
    const auto count = [&] {
      uint64_t sum = 0;
      for (const Counter counter : counters) sum += host.count(counter);
      return sum;
    };
    const uint64_t counted = count();
    host.receive(packet);
    EXPECT_EQ(count(), counted + 1);
    EXPECT_THAT(host.sends(), IsEmpty());
    EXPECT_THAT(host.pull(), IsEmpty());
    EXPECT_EQ(host.qp.state(), QpState::kRts);
    EXPECT_EQ(host.qp.deadline(), deadline);
    EXPECT_TRUE(buffer.bytes == before);
  }
  void expect_completes() {
    const auto at = [&](uint32_t n) { return (psn + n) & wire::kMask24; };
    host.receive(read_response(Opcode::kRcReadResponseFirst, at(1), pattern(kMtu)));
    host.receive(read_response(Opcode::kRcReadResponseLast, at(2), pattern(kMtu)));
    host.receive(atomic_response(at(3), 1));
    host.receive(ack(at(4)));
    EXPECT_THAT(host.sends(),
                ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk), IsCompletion(3, kOk), IsCompletion(4, kOk)));
  }

  static constexpr uint32_t kPsns = 5;  // that are under way
  ScriptedQp host;
  uint32_t psn;
  Buffer buffer;
  Bytes before;
  Time deadline;
};

constexpr uint32_t kFirstPsns[] = {0, 100, 0x7ffffe, 0x800000, 0xfffffd};

TEST(Fault25, StaleResponsesOfEveryKindAtEveryDistance) {
  for (const uint32_t first : kFirstPsns) {
    UnderWay qp(first);
    for (const uint32_t behind : {1u, 2u, 5u, 127u, 128u, 0x1000u, 0x400000u, 0x7ffffeu, 0x7fffffu}) {
      SCOPED_TRACE(behind);
      for (const PeerPacket& packet : responses(first - behind)) {
        qp.expect_ignored(packet, {Counter::kDropStaleResponse});
      }
    }
    qp.expect_completes();
  }
}

TEST(Fault26, ResponsesToUnsentPsnsOfEveryKindAtEveryDistance) {
  for (const uint32_t first : kFirstPsns) {
    UnderWay qp(first);
    for (const uint32_t ahead : {0u, 1u, 2u, 123u, 128u, 0x1000u, 0x400000u, 0x7ffff9u, 0x7ffffau}) {
      SCOPED_TRACE(ahead);
      for (const PeerPacket& packet : responses(first + UnderWay::kPsns + ahead)) {
        qp.expect_ignored(packet, {Counter::kDropUnsentPsn});
      }
    }
    qp.expect_completes();
  }
}

// Half the PSN space away it is as much of the past as of the future. It completes nothing either way.
TEST(Fault26, HalfThePsnSpaceAway) {
  for (const uint32_t first : kFirstPsns) {
    UnderWay qp(first);
    for (const uint32_t away : {0x7fffffu, 0x800000u, 0x800001u}) {
      for (const PeerPacket& packet : responses(first + away)) {
        qp.expect_ignored(packet, {Counter::kDropStaleResponse, Counter::kDropUnsentPsn});
      }
    }
    qp.expect_completes();
  }
}

// --- 27: reserved syndromes ------------------------------------------------------------------------------------------

// In a READ or atomic response only an ACK means anything: whatever its credits, it completes.
TEST(Fault27, EverySyndromeInReadAndAtomicResponses) {
  for (int value = 0; value < 256; ++value) {
    SCOPED_TRACE(value);
    const auto syndrome = static_cast<uint8_t>(value);
    const bool is_ack = syndrome < 0x20;
    UnderWay qp(kSqPsn);
    const struct {
      PeerPacket bad, good;
    } kInOrder[] = {
        {read_response(Opcode::kRcReadResponseFirst, kSqPsn + 1, pattern(kMtu, 77)).aeth(syndrome),
         read_response(Opcode::kRcReadResponseFirst, kSqPsn + 1, pattern(kMtu, 77))},
        {read_response(Opcode::kRcReadResponseLast, kSqPsn + 2, pattern(kMtu, 78)).aeth(syndrome),
         read_response(Opcode::kRcReadResponseLast, kSqPsn + 2, pattern(kMtu, 78))},
        {atomic_response(kSqPsn + 3, 5).aeth(syndrome), atomic_response(kSqPsn + 3, 5)},
    };
    qp.host.receive(ack(kSqPsn));
    std::vector<uint64_t> completed;
    const auto collect = [&] {
      for (const queue::Cqe& cqe : qp.host.sends()) {
        EXPECT_EQ(cqe.status, kOk);
        completed.push_back(cqe.wr_id);
      }
    };
    collect();
    for (const auto& [bad, good] : kInOrder) {
      if (!is_ack) {
        qp.before = qp.buffer.bytes;
        qp.deadline = qp.host.qp.deadline();
        qp.expect_ignored(bad, {Counter::kDropReservedSyndrome});
      }
      qp.host.receive(is_ack ? bad : good);
      collect();
    }
    EXPECT_THAT(completed, ElementsAre(1, 2, 3));
  }
}

TEST(Fault27, ReservedSyndromesOfAcksAtEveryPsnUnderWay) {
  UnderWay qp(kSqPsn);
  for (int syndrome = 0x40; syndrome < 256; ++syndrome) {
    if (syndrome >= 0x60 && syndrome <= 0x64) continue;
    for (uint32_t n = 0; n < UnderWay::kPsns; ++n) {
      qp.expect_ignored(ack(kSqPsn + n).aeth(static_cast<uint8_t>(syndrome), 1), {Counter::kDropReservedSyndrome});
    }
  }
  qp.expect_completes();
}

// --- 28: READ responses ----------------------------------------------------------------------------------------------

// Every opcode, many sizes, at every PSN of a READ and around it. The SGE lies in the middle of a region, and nothing
// outside of it changes; inside only by the one response that is right.
TEST(Fault28, NeverAByteOutsideOfTheSge) {
  for (const uint32_t length : {1u, 8u, kMtu - 1, kMtu, kMtu + 7, 3 * kMtu}) {
    const uint32_t count = packet_count(length, kMtu);
    for (const Opcode opcode : kReadResponses) {
      for (const uint32_t size : {0u, 1u, 7u, 8u, 9u, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 4096u}) {
        for (uint32_t n = 0; n <= count + 1; ++n) {
          SCOPED_TRACE(std::string(wire::opcode_info(opcode).name) + " size " + std::to_string(size) + " number " +
                       std::to_string(n) + " of a READ of " + std::to_string(length));
          ScriptedQp host;
          const Buffer buffer = host.make_buffer(4096 + length + 4096);
          host.to_rts();
          host.post(sized(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), length), {buffer.sge(4096, length)});
          host.post(work(WrOpcode::kSend, 2));
          ASSERT_THAT(host.pull(), SizeIs(2));
          Bytes expected = buffer.bytes;
          host.receive(read_response(opcode, kSqPsn + n, pattern(size, 77)));
          const bool last = count == 1;
          const bool right = n == 0 && wire::opcode_info(opcode).last == last && size == (last ? length : kMtu);
          if (right) std::copy_n(pattern(size, 77).begin(), size, expected.begin() + 4096);
          ASSERT_TRUE(buffer.bytes == expected);
          if (right) {
            EXPECT_EQ(host.qp.state(), QpState::kRts);
          } else if (n == 0) {  // where it is due, and wrong
            EXPECT_THAT(host.sends(), ElementsAre(AnyOf(IsCompletion(1, WcStatus::kLocalLengthError),
                                                        IsCompletion(1, WcStatus::kBadResponseError)),
                                                  IsCompletion(2, WcStatus::kFlushError)));
          } else {
            EXPECT_THAT(host.sends(), IsEmpty());
            EXPECT_EQ(host.qp.state(), QpState::kRts);
          }
        }
      }
    }
  }
}

// The same for the last response, after those before it were right.
TEST(Fault28, LastResponseOfTheWrongSize) {
  for (const uint32_t size : {0u, 6u, 7u, 8u, kMtu, kMtu + 1, 4096u}) {
    for (const Opcode opcode : kReadResponses) {
      SCOPED_TRACE(std::string(wire::opcode_info(opcode).name) + " " + std::to_string(size));
      ScriptedQp host;
      constexpr uint32_t kLength = 2 * kMtu + 7;
      const Buffer buffer = host.make_buffer(4096 + kLength + 4096);
      host.to_rts();
      host.post(sized(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), kLength), {buffer.sge(4096, kLength)});
      ASSERT_THAT(host.pull(), SizeIs(1));
      host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu, 1)));
      host.receive(read_response(Opcode::kRcReadResponseMiddle, kSqPsn + 1, pattern(kMtu, 2)));
      Bytes expected = buffer.bytes;
      host.receive(read_response(opcode, kSqPsn + 2, pattern(size, 77)));
      const bool right = wire::opcode_info(opcode).last && size == 7;
      if (right) std::copy_n(pattern(size, 77).begin(), size, expected.begin() + 4096 + 2 * kMtu);
      EXPECT_TRUE(buffer.bytes == expected);
      EXPECT_THAT(host.sends(),
                  ElementsAre(right                            ? IsCompletion(1, kOk)
                              : wire::opcode_info(opcode).last ? IsCompletion(1, WcStatus::kLocalLengthError)
                                                               : IsCompletion(1, WcStatus::kBadResponseError)));
    }
  }
}

TEST(Fault28, ResponseThatNobodyWaitsFor) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kRdmaWrite}) {
    for (const Opcode response : kReadResponses) {
      ScriptedQp host;
      const Buffer buffer = host.make_buffer(3 * kMtu);
      const Bytes before = buffer.bytes;
      host.to_rts();
      host.post(sized(rdma(opcode, 1, kRemote, kRkey), 3 * kMtu), {buffer.sge(0, 3 * kMtu)});
      ASSERT_THAT(host.pull(), SizeIs(3));
      for (uint32_t n = 0; n < 3; ++n) {
        host.receive(read_response(response, kSqPsn + n, pattern(kMtu, 77)));
        EXPECT_EQ(host.count(Counter::kDropUnsolicitedResponse), n + 1);
      }
      EXPECT_EQ(buffer.bytes, before);
      EXPECT_THAT(host.sends(), IsEmpty());
      host.receive(ack(kSqPsn + 2));
      EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk)));
    }
  }
}

// One kind of answer in place of the other, and an atomic's result where none is due.
TEST(Fault28, ReadResponseToAnAtomicAndAtomicResponseToASend) {
  for (const Opcode response : kReadResponses) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8);
    const Bytes before = buffer.bytes;
    host.to_rts();
    host.post(sized(rdma(WrOpcode::kFetchAdd, 1, kRemote, kRkey), 8), {buffer.sge(0, 8)});
    ASSERT_THAT(host.pull(), SizeIs(1));
    host.receive(read_response(response, kSqPsn, pattern(8, 77)));
    EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kBadResponseError)));
    EXPECT_EQ(buffer.bytes, before);
  }
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  const Bytes before = buffer.bytes;
  host.to_rts();
  host.post(sized(work(WrOpcode::kSend, 1), 8), {buffer.sge(0, 8)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  host.receive(atomic_response(kSqPsn, 5));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kBadResponseError)));
  EXPECT_EQ(buffer.bytes, before);
}

// --- 29: a million NAKs ----------------------------------------------------------------------------------------------

constexpr uint32_t kMillion = 1'000'000;
constexpr uint32_t kMessages = 100;

// One packet, parsed once, delivered over and over; counts what the QP sends meanwhile.
class Flood {
 public:
  explicit Flood(const QpAttributes& a = default_attributes()) {
    host.to_rts(a);
    for (uint32_t i = 0; i < kMessages; ++i) host.post(work(WrOpcode::kSend, i));
    EXPECT_THAT(host.pull(), SizeIs(kMessages));
  }
  void deliver(const PeerPacket& packet, uint32_t times, Duration apart = {}) {
    const Bytes bytes = packet.bytes();
    wire::Packet parsed;
    ASSERT_EQ(wire::parse_packet(bytes, parsed), wire::ParseError::kNone);
    for (uint32_t i = 0; i < times && host.qp.state() == QpState::kRts; ++i) {
      host.qp.on_packet(parsed, host.now);
      host.advance(apart);
      if (host.qp.deadline() <= host.now) host.qp.on_timer(host.now);
      io::TxPacket out;
      while (host.qp.pull(out, host.now)) ++sent;
    }
  }

  ScriptedQp host;
  uint64_t sent = 0;  // packets, after those of the beginning
};

TEST(Fault29, AMillionPsnNaksAtOnceGoBackOnce) {
  Flood flood;
  flood.deliver(nak(NakCode::kPsnSequenceError, kSqPsn), kMillion);
  EXPECT_EQ(flood.sent, kMessages);
  EXPECT_EQ(flood.host.count(Counter::kTxRetransmissions), kMessages);
  flood.host.receive(ack(kSqPsn + kMessages - 1));
  EXPECT_THAT(flood.host.sends(), SizeIs(kMessages)) << "and it is still alive";
}

// While the time goes on: a NAK may go back again after every expiry, until the retry budget is spent. Probes spend
// nothing, but they are few.
TEST(Fault29, AMillionPsnNaksOverTimeAreBoundedByTheRetryBudget) {
  const QpAttributes a = default_attributes();
  Flood flood(a);
  flood.deliver(nak(NakCode::kPsnSequenceError, kSqPsn), kMillion, std::chrono::microseconds(1));
  EXPECT_LE(flood.sent, (a.retry_count + flood.host.count(Counter::kProbes)) * kMessages);
  // Fast ones, and those whose waits double until the timer expires.
  EXPECT_LE(flood.host.count(Counter::kProbes), (a.retry_count + 1u) * (LossRecovery::kMaxProbes + 4));
  EXPECT_EQ(flood.host.qp.state(), QpState::kErr);
  const auto cqes = flood.host.sends();
  ASSERT_THAT(cqes, SizeIs(kMessages));
  EXPECT_THAT(cqes[0], IsCompletion(0, WcStatus::kRetryExceeded));
}

// Without a limit on RNR retries the delay that the NAK asks for is the limit on the rate.
TEST(Fault29, AMillionRnrNaksGoBackOncePerDelay) {
  QpAttributes a = default_attributes();
  a.rnr_retry = 7;
  Flood flood(a);
  constexpr uint8_t kTimer = 14;  // 1 ms
  flood.deliver(rnr_nak(kSqPsn, kTimer), kMillion, std::chrono::microseconds(1));
  EXPECT_EQ(flood.host.qp.state(), QpState::kRts);
  const Duration delay = wire::rnr_delay(kTimer);
  const auto delays = static_cast<uint64_t>(std::chrono::microseconds(kMillion) / delay);
  EXPECT_LE(flood.sent, (delays + 1) * kMessages);
  EXPECT_GT(flood.sent, 0u);
}

// Responses behind a lost one are NAKs too.
TEST(Fault29, AMillionImpliedNaksAskForTheReadOnce) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  host.to_rts();
  host.post(sized(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), 3 * kMtu), {buffer.sge(0, 3 * kMtu)});
  ASSERT_THAT(host.pull(), SizeIs(1));
  const Bytes bytes = read_response(Opcode::kRcReadResponseLast, kSqPsn + 2, pattern(kMtu)).bytes();
  wire::Packet parsed;
  ASSERT_EQ(wire::parse_packet(bytes, parsed), wire::ParseError::kNone);
  size_t sent = 0;
  for (uint32_t i = 0; i < kMillion; ++i) {
    host.qp.on_packet(parsed, host.now);
    io::TxPacket out;
    while (host.qp.pull(out, host.now)) ++sent;
  }
  EXPECT_EQ(sent, 1u);
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

}  // namespace
}  // namespace uroce::transport
