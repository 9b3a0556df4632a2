// SPDX-License-Identifier: BSD-2-Clause
// The order of requests: expected, duplicate and early PSNs, opcode sequence, lengths and pads, and how a NAK leaves.
#include "engine/transport/reliable/responder.h"

#include <string>

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

// Every message the responder takes, as the opcodes of its packets.
struct Message {
  const char* name;
  std::vector<Opcode> opcodes;
};

void PrintTo(const Message& message, std::ostream* out) {
  *out << message.name;
}

const Message kMessages[] = {
    {"SendOnly", {Opcode::kRcSendOnly}},
    {"SendOnlyImmediate", {Opcode::kRcSendOnlyImmediate}},
    {"SendOnlyInvalidate", {Opcode::kRcSendOnlyInvalidate}},
    {"Send", {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast}},
    {"SendImmediate", {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImmediate}},
    {"SendInvalidate", {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate}},
    {"WriteOnly", {Opcode::kRcWriteOnly}},
    {"WriteOnlyImmediate", {Opcode::kRcWriteOnlyImmediate}},
    {"Write", {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast}},
    {"WriteImmediate", {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImmediate}},
    {"Read", {Opcode::kRcReadRequest}},
    {"CompareSwap", {Opcode::kRcCompareSwap}},
    {"FetchAdd", {Opcode::kRcFetchAdd}},
};

// A QP in RTS with a target buffer, a posted receive into it, and a region that may be invalidated.
class ResponderSequence : public testing::TestWithParam<std::tuple<Message, uint32_t>> {
 protected:
  void SetUp() override {
    buffer_ = host_.make_buffer(4 * kMtu);
    std::memset(buffer_.bytes.data(), 0, 8);  // what atomics work on
    window_.bytes = pattern(8);
    host_.add_window(window_);
    QpAttributes a = default_attributes();
    a.rq_psn = wire::Psn(first_psn());
    host_.to_rts(a);
    host_.post_receive(1, {buffer_.sge(0, 4 * kMtu)});
  }
  const Message& message() const { return std::get<0>(GetParam()); }
  uint32_t first_psn() const { return std::get<1>(GetParam()); }
  uint32_t psn(uint32_t n) const { return (first_psn() + n) & 0xffffff; }
  size_t packets() const { return message().opcodes.size(); }
  bool sends_or_writes() const { return wire::opcode_info(message().opcodes[0]).has_payload; }
  uint32_t length() const { return static_cast<uint32_t>(sends_or_writes() ? (packets() - 1) * kMtu + 10 : 8); }

  PeerPacket packet(size_t n, uint32_t at_psn) const {
    const wire::OpcodeInfo& info = wire::opcode_info(message().opcodes[n]);
    PeerPacket p(message().opcodes[n], at_psn);
    p.reth(buffer_.iova, buffer_.key, length()).atomic(buffer_.iova, buffer_.key, 1, 0).invalidate(window_.key);
    if (info.has_payload) p.payload(pattern(info.last ? 10 : kMtu, static_cast<uint32_t>(50 + n)));
    return p.ack_request();
  }
  void deliver_up_to(size_t end) {
    for (size_t n = 0; n < end; ++n) host_.receive(packet(n, psn(static_cast<uint32_t>(n))));
  }

  ScriptedQp host_;
  Buffer buffer_, window_;
};

INSTANTIATE_TEST_SUITE_P(EveryOpcode, ResponderSequence,
                         testing::Combine(testing::ValuesIn(kMessages),
                                          testing::Values(0u, kRqPsn, 0x7ffffeu, 0x7fffffu, 0xfffffeu, 0xffffffu)),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param).name) + "_" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

// faults.md 15: exact data from every starting PSN, with every opcode. MSN: 0 at first, one more per message.
TEST_P(ResponderSequence, InOrderIsExecutedAndAnsweredOnce) {
  Bytes expected = buffer_.bytes;
  deliver_up_to(packets());
  const auto sent = host_.drain();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0], AllOf(HasPsn(psn(static_cast<uint32_t>(packets() - 1))), HasMsn(1)));
  if (sends_or_writes()) {
    EXPECT_THAT(sent[0], HasOpcode(Opcode::kRcAcknowledge));
    size_t offset = 0;
    for (size_t n = 0; n < packets(); ++n) {
      const Bytes data = pattern(n + 1 == packets() ? 10 : kMtu, static_cast<uint32_t>(50 + n));
      std::copy(data.begin(), data.end(), expected.begin() + static_cast<ptrdiff_t>(offset));
      offset += data.size();
    }
  } else if (message().opcodes[0] == Opcode::kRcReadRequest) {
    EXPECT_THAT(sent[0], IsReadResponse(Opcode::kRcReadResponseOnly, psn(0), part(expected, 0, 8)));
  } else {
    EXPECT_THAT(sent[0], IsAtomicResponse(psn(0), 0u));
    expected[0] = 1;
  }
  EXPECT_EQ(buffer_.bytes, expected);
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
}

// faults.md 12, 13; IBTA 9.7.5.1.4: a duplicate is answered and never executed again.
TEST_P(ResponderSequence, DuplicateIsAnsweredAndNotExecuted) {
  deliver_up_to(packets());
  host_.drain();
  host_.receives();
  std::fill(buffer_.bytes.begin(), buffer_.bytes.end(), uint8_t{0xee});
  host_.post_receive(2, {buffer_.sge(0, kMtu)});
  for (size_t n = 0; n < packets(); ++n) {
    SCOPED_TRACE(n);
    host_.receive(packet(n, psn(static_cast<uint32_t>(n))));
    const auto sent = host_.drain();
    ASSERT_THAT(sent, SizeIs(1));
    EXPECT_THAT(sent[0], AllOf(HasPsn(psn(static_cast<uint32_t>(packets() - 1))), HasMsn(1)));
    if (sends_or_writes()) {
      EXPECT_THAT(sent[0], HasOpcode(Opcode::kRcAcknowledge));
    }
  }
  EXPECT_EQ(buffer_.bytes, Bytes(buffer_.bytes.size(), 0xee)) << "executed again";
  EXPECT_THAT(host_.receives(), IsEmpty());
  EXPECT_EQ(host_.qp.state(), QpState::kRts);
}

// faults.md 14; IBTA 9.7.5.2.8: one NAK with the expected PSN, then silence until that comes.
TEST_P(ResponderSequence, AheadIsReportedOnceAndNotExecuted) {
  const Bytes before = buffer_.bytes;
  for (size_t n = 0; n < packets(); ++n) {
    SCOPED_TRACE(n);
    host_.receive(packet(n, psn(static_cast<uint32_t>(n + 1))));
    host_.receive(packet(n, psn(0x7fffff)));
    const auto sent = host_.drain();
    if (n == 0) {
      EXPECT_THAT(sent, ElementsAre(AllOf(IsNak(NakCode::kPsnSequenceError, psn(0)), HasMsn(0))));
    } else {
      EXPECT_THAT(sent, IsEmpty()) << "one NAK per gap";
    }
  }
  EXPECT_EQ(buffer_.bytes, before);
  EXPECT_THAT(host_.receives(), IsEmpty());
  // What was missing arrives, and everything goes on; a new gap is a new NAK.
  const auto done = static_cast<uint32_t>(packets());
  deliver_up_to(done);
  EXPECT_THAT(host_.drain(), ElementsAre(HasMsn(1)));
  host_.receive(packet(0, psn(done + 1)));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kPsnSequenceError, psn(done))));
}

TEST(Responder, PsnsUpToHalfTheSpaceBehindAreDuplicatesAndUpToHalfAheadAreEarly) {
  ScriptedQp host;
  host.to_rts();
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn - 1));
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn - 1)));
  host.receive(request(Opcode::kRcWriteOnly, (kRqPsn - 0x800000) & 0xffffff));
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn - 1)));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn + 0x7fffff));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kPsnSequenceError, kRqPsn)));
}

// --- opcode sequence (IBTA 9.7.4.1.2; faults.md 16) ------------------------------------------------------------------

struct Violation {
  const char* name;
  std::vector<Opcode> before;
  Opcode opcode;
};

TEST(Responder, OpcodeSequenceViolationsAreInvalidRequests) {
  using enum Opcode;
  const Violation kViolations[] = {
      {"SEND Middle first", {}, kRcSendMiddle},
      {"SEND Last first", {}, kRcSendLast},
      {"SEND Last Immediate first", {}, kRcSendLastImmediate},
      {"SEND Last Invalidate first", {}, kRcSendLastInvalidate},
      {"WRITE Middle first", {}, kRcWriteMiddle},
      {"WRITE Last first", {}, kRcWriteLast},
      {"WRITE Last Immediate first", {}, kRcWriteLastImmediate},
      {"SEND First twice", {kRcSendFirst}, kRcSendFirst},
      {"SEND Only in SEND", {kRcSendFirst}, kRcSendOnly},
      {"WRITE Middle in SEND", {kRcSendFirst}, kRcWriteMiddle},
      {"WRITE Last in SEND", {kRcSendFirst}, kRcWriteLast},
      {"WRITE First in SEND", {kRcSendFirst}, kRcWriteFirst},
      {"READ in SEND", {kRcSendFirst, kRcSendMiddle}, kRcReadRequest},
      {"WRITE First twice", {kRcWriteFirst}, kRcWriteFirst},
      {"SEND Middle in WRITE", {kRcWriteFirst}, kRcSendMiddle},
      {"SEND Last in WRITE", {kRcWriteFirst}, kRcSendLast},
      {"SEND Only in WRITE", {kRcWriteFirst}, kRcSendOnly},
      {"READ in WRITE", {kRcWriteFirst}, kRcReadRequest},
      {"atomic in WRITE", {kRcWriteFirst, kRcWriteMiddle}, kRcFetchAdd},
      {"FLUSH in SEND", {kRcSendFirst}, kRcFlush},
      {"ATOMIC WRITE in WRITE", {kRcWriteFirst}, kRcAtomicWrite},
  };
  for (const Violation& violation : kViolations) {
    SCOPED_TRACE(violation.name);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8 * kMtu);
    host.to_rts();
    host.post_receive(1, {buffer.sge(0, 8 * kMtu)});
    uint32_t psn = kRqPsn;
    for (const Opcode opcode : violation.before) {
      host.receive(request(opcode, psn++, pattern(kMtu)).reth(buffer.iova, buffer.key, 8 * kMtu));
    }
    ASSERT_EQ(host.qp.state(), QpState::kRts);
    const Bytes before = buffer.bytes;
    const bool full = !wire::opcode_info(violation.opcode).last;
    PeerPacket bad(violation.opcode, psn);
    bad.reth(buffer.iova, buffer.key, 8).atomic(buffer.iova, buffer.key, 1);
    if (wire::opcode_info(violation.opcode).has_payload) bad.payload(pattern(full ? kMtu : 8, 66));
    host.receive(bad);
    EXPECT_EQ(host.qp.state(), QpState::kErr);
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, psn)));
    EXPECT_EQ(buffer.bytes, before);
    const bool in_send = !violation.before.empty() && violation.before[0] == kRcSendFirst;
    EXPECT_THAT(host.receives(),
                ElementsAre(IsCompletion(1, in_send ? WcStatus::kRemoteInvalidRequestError : WcStatus::kFlushError)));
    if (!in_send) {
      EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kQpRequestError));
    }
  }
}

// --- lengths and pads (IBTA 9.7.4.1.6; wire.md "Lengths"; faults.md 6, 17) -------------------------------------------

struct Length {
  const char* name;
  Opcode opcode;
  uint32_t size;
  uint8_t pad;
  bool legal;
};

TEST(Responder, LengthsAndPads) {
  using enum Opcode;
  constexpr Length kLengths[] = {
      {"SEND First PMTU", kRcSendFirst, kMtu, 0, true},
      {"SEND First short", kRcSendFirst, kMtu - 4, 0, false},
      {"SEND First padded", kRcSendFirst, kMtu, 3, false},
      {"SEND First padded to the PMTU", kRcSendFirst, kMtu - 1, 1, false},
      {"SEND First empty", kRcSendFirst, 0, 0, false},
      {"SEND First long", kRcSendFirst, kMtu + 4, 0, false},
      {"SEND Middle PMTU", kRcSendMiddle, kMtu, 0, true},
      {"SEND Middle short", kRcSendMiddle, 4, 0, false},
      {"SEND Middle padded", kRcSendMiddle, kMtu, 1, false},
      {"SEND Middle long", kRcSendMiddle, 2 * kMtu, 0, false},
      {"SEND Last 1", kRcSendLast, 1, 3, true},
      {"SEND Last PMTU", kRcSendLast, kMtu, 0, true},
      {"SEND Last empty", kRcSendLast, 0, 0, false},
      {"SEND Last long", kRcSendLast, kMtu + 1, 3, false},
      {"SEND Only empty", kRcSendOnly, 0, 0, true},
      {"SEND Only PMTU", kRcSendOnly, kMtu, 0, true},
      {"SEND Only long", kRcSendOnly, kMtu + 1, 3, false},
      {"WRITE First PMTU", kRcWriteFirst, kMtu, 0, true},
      {"WRITE First short", kRcWriteFirst, kMtu - 1, 1, false},
      {"WRITE First padded", kRcWriteFirst, kMtu, 2, false},
      {"WRITE Middle short", kRcWriteMiddle, kMtu - 1, 1, false},
      {"WRITE Middle padded", kRcWriteMiddle, kMtu, 2, false},
      {"WRITE Middle empty", kRcWriteMiddle, 0, 0, false},
  };
  for (const Length& length : kLengths) {
    SCOPED_TRACE(length.name);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(8 * kMtu);
    host.to_rts();
    host.post_receive(1, {buffer.sge(0, 8 * kMtu)});
    uint32_t psn = kRqPsn;
    const wire::OpcodeInfo& info = wire::opcode_info(length.opcode);
    if (!info.first) {
      const bool send = info.operation == wire::Operation::kSend;
      host.receive(
          request(send ? kRcSendFirst : kRcWriteFirst, psn++, pattern(kMtu)).reth(buffer.iova, buffer.key, 8 * kMtu));
    }
    const Bytes before = buffer.bytes;
    host.receive(request(length.opcode, psn, pattern(length.size, 66))
                     .pad(length.pad)
                     .reth(buffer.iova, buffer.key, 8 * kMtu)
                     .ack_request());
    if (length.legal) {
      EXPECT_EQ(host.qp.state(), QpState::kRts);
      EXPECT_THAT(host.drain(), ElementsAre(IsAck(psn)));
    } else {
      EXPECT_EQ(host.qp.state(), QpState::kErr);
      EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, psn)));
      EXPECT_EQ(buffer.bytes, before);
    }
  }
}

// --- how a NAK leaves ------------------------------------------------------------------------------------------------

// IBTA 9.7.5.1: responses leave in the order of their PSNs; a NAK is one, also when the QP is in ERR because of it.
TEST(Responder, NakLeavesAfterPendingResponsesAndInTheErrorState) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(2 * kMtu);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 2 * kMtu));
  host.receive(request(Opcode::kRcSendMiddle, kRqPsn + 2, pattern(kMtu)));
  EXPECT_EQ(host.qp.state(), QpState::kErr);
  EXPECT_TRUE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.drain(), ElementsAre(HasOpcode(Opcode::kRcReadResponseFirst), HasOpcode(Opcode::kRcReadResponseLast),
                                        AllOf(IsNak(NakCode::kInvalidRequest, kRqPsn + 2), HasMsn(1))));
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  EXPECT_THAT(host.drain(), IsEmpty());
}

TEST(Responder, PsnNakLeavesAfterPendingResponses) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 8));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn + 2));
  EXPECT_THAT(host.drain(),
              ElementsAre(HasOpcode(Opcode::kRcReadResponseOnly), IsNak(NakCode::kPsnSequenceError, kRqPsn + 1)));
}

TEST(Responder, AfterAFatalNakNothingIsExecuted) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  const Bytes before = buffer.bytes;
  host.to_rts();
  host.receive(request(Opcode::kRcSendMiddle, kRqPsn, pattern(kMtu)));
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn, pattern(8, 66)).reth(buffer.iova, buffer.key, 8));
  EXPECT_EQ(buffer.bytes, before);
  EXPECT_THAT(host.drain(), SizeIs(1));
}

// IBTA 10.3.1.2: the application's own move to ERR leaves nothing to be said.
TEST(Responder, ErrorStateSetFromOutsideSendsNothing) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn).ack_request());
  host.receive(read_request(kRqPsn + 1, buffer.iova, buffer.key, 8));
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  EXPECT_FALSE(host.qp.wants_to_send(host.now));
  EXPECT_FALSE(host.qp.ack_owed());
  EXPECT_THAT(host.drain(), IsEmpty());
}

// The receive that a half-arrived SEND holds is the first to be flushed.
TEST(Responder, FlushBeginsWithTheReceiveInUse) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  for (uint64_t id = 1; id <= 3; ++id) host.post_receive(id, {buffer.sge(0, 4 * kMtu)});
  host.receive(request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu)));
  ASSERT_EQ(host.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host.receives(),
              ElementsAre(IsCompletion(1, WcStatus::kFlushError), IsCompletion(2, WcStatus::kFlushError),
                          IsCompletion(3, WcStatus::kFlushError)));
}

}  // namespace
}  // namespace uroce::transport
