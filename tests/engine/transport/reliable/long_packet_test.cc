// SPDX-License-Identifier: BSD-2-Clause
// Packets longer than the path MTU, as processes of one host send them to each other: what leaves, what is taken, and
// that all arrives once and in order, however packets are grouped and whichever of them are lost.
#include "engine/transport/common/long_packet.h"

#include <deque>
#include <random>

#include "tests/engine/transport/qp_pair.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::Each;
using testing::ElementsAre;
using wire::NakCode;
using wire::Opcode;

// --- what leaves ----------------------------------------------------------------------------------------------------

struct LongRequester : testing::Test {
  LongRequester() {
    host.to_rts();
    host.qp.allow_long(8 * kMtu);
  }
  std::vector<uint32_t> psns_of(const std::vector<io::TxPacket>& packets) {
    std::vector<uint32_t> psns;
    for (const io::TxPacket& packet : packets) psns.push_back(packet.psns);
    return psns;
  }
  static std::vector<Opcode> opcodes_of(const std::vector<io::TxPacket>& packets) {
    std::vector<Opcode> opcodes;
    for (const io::TxPacket& packet : packets) {
      opcodes.push_back(wire::Bth::parse(wire::BthView::at(packet.header.data())).opcode);
    }
    return opcodes;
  }

  ScriptedQp host;
  Buffer buffer = host.make_buffer(64 * kMtu);
};

TEST_F(LongRequester, AMessageLeavesInPiecesOfAsManyPsnsAsAllowed) {
  host.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 20 * kMtu - 3)});
  const auto sent = host.pull_waiting();
  EXPECT_THAT(psns_of(sent), ElementsAre(8, 8, 4));
  EXPECT_THAT(opcodes_of(sent), ElementsAre(Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast));
  EXPECT_EQ(sent[2].payload_size, 4 * kMtu - 3);
  EXPECT_EQ(sent[2].pad, 3);
  host.receive(ack(kSqPsn + 19));
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk)));
}

TEST_F(LongRequester, AMessageThatFitsIsOnePacket) {
  host.post(work(WrOpcode::kSendWithImmediate, 1), {buffer.sge(0, kMtu), buffer.sge(2 * kMtu, 3 * kMtu)});
  const auto sent = host.pull_waiting();
  EXPECT_THAT(psns_of(sent), ElementsAre(4));
  EXPECT_THAT(opcodes_of(sent), ElementsAre(Opcode::kRcSendOnlyImmediate));
  EXPECT_EQ(sent[0].fragment_count, 2);
}

TEST_F(LongRequester, AnAcknowledgementOfAPartLeavesTheRest) {
  host.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 8 * kMtu)});
  host.pull();
  host.receive(ack(kSqPsn + 2));
  host.receive(nak(NakCode::kPsnSequenceError, kSqPsn + 3));
  const auto again = host.pull_waiting();
  EXPECT_THAT(psns_of(again), ElementsAre(5));
  EXPECT_THAT(opcodes_of(again), ElementsAre(Opcode::kRcWriteLast));
  EXPECT_EQ(again[0].fragments[0].data, buffer.bytes.data() + 3 * kMtu);
}

TEST_F(LongRequester, NoneOnceTheyAreNotAllowed) {
  host.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 12 * kMtu)});
  EXPECT_THAT(psns_of(host.pull_waiting(1)), ElementsAre(8));
  host.qp.allow_long(0);
  EXPECT_THAT(psns_of(host.pull_waiting()), Each(1));
}

TEST_F(LongRequester, AProbeIsOfSinglePackets) {
  host.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 16 * kMtu)});
  EXPECT_THAT(psns_of(host.pull_waiting()), ElementsAre(8, 8));
  host.expire();
  const auto probe = host.pull_waiting();
  EXPECT_THAT(psns_of(probe), ElementsAre(1, 1));
  EXPECT_THAT(opcodes_of(probe), ElementsAre(Opcode::kRcWriteFirst, Opcode::kRcWriteLast));
}

TEST_F(LongRequester, TheWindowHoldsAsManyPsnsAsElse) {
  host.post(rdma(WrOpcode::kRdmaWrite, 1, kRemote, kRkey), {buffer.sge(0, 64 * kMtu)});
  host.post(rdma(WrOpcode::kRdmaWrite, 2, kRemote, kRkey), {buffer.sge(0, 64 * kMtu)});
  host.post(rdma(WrOpcode::kRdmaWrite, 3, kRemote, kRkey), {buffer.sge(0, 64 * kMtu)});
  uint32_t psns = 0;
  for (const uint32_t count : psns_of(host.pull_waiting())) psns += count;
  EXPECT_EQ(psns, Requester::kWindow);
}

TEST_F(LongRequester, ReadResponsesToo) {
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 11 * kMtu + 1));
  const auto sent = host.pull_waiting();
  EXPECT_THAT(psns_of(sent), ElementsAre(8, 4));
  EXPECT_THAT(opcodes_of(sent), ElementsAre(Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseLast));
}

// --- what is taken --------------------------------------------------------------------------------------------------

struct LongResponder : testing::Test {
  LongResponder() { host.to_rts(); }
  void receive(const PeerPacket& from_peer, uint32_t psns) {
    const Bytes bytes = from_peer.bytes();
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
    packet.psns = psns;
    host.qp.on_packet(packet, host.now);
  }
  PeerPacket write(Opcode opcode, uint32_t n, size_t size) {
    return request(opcode, kRqPsn + n, part(message, n * kMtu, size)).reth(buffer.iova, buffer.key, 8 * kMtu);
  }

  ScriptedQp host;
  Buffer buffer = host.make_buffer(8 * kMtu);
  const Bytes message = pattern(64 * kMtu, 66);
};

TEST_F(LongResponder, TakesOneInPlaceOfAsManyPackets) {
  receive(write(Opcode::kRcWriteFirst, 0, 3 * kMtu), 3);
  receive(write(Opcode::kRcWriteMiddle, 3, kMtu), 1);
  receive(write(Opcode::kRcWriteLast, 4, 4 * kMtu).ack_request(), 4);
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 7)));
  EXPECT_EQ(buffer.bytes, part(message, 0, 8 * kMtu));
}

// What its length says of the PSNs is not what it says itself: as a length that is wrong.
TEST_F(LongResponder, RefusesWhatDoesNotFitItsPsns) {
  struct {
    Opcode opcode;
    size_t size;
    uint32_t psns;
  } const kBad[] = {
      {Opcode::kRcWriteFirst, 3 * kMtu, 1},     {Opcode::kRcWriteFirst, 3 * kMtu, 2},
      {Opcode::kRcWriteFirst, 3 * kMtu, 4},     {Opcode::kRcWriteFirst, 3 * kMtu - 4, 3},
      {Opcode::kRcWriteFirst, 2 * kMtu, 65536}, {Opcode::kRcWriteOnly, 8 * kMtu, 7},
      {Opcode::kRcWriteOnly, 8 * kMtu, 9},      {Opcode::kRcWriteOnly, 0, 2},
      {Opcode::kRcWriteOnly, 8 * kMtu, 1},      {Opcode::kRcSendOnly, 8, 0xffff},
  };
  for (const auto& bad : kBad) {
    ScriptedQp other;
    other.to_rts();
    Buffer memory = other.make_buffer(8 * kMtu);
    const Bytes before = memory.bytes;
    const Bytes bytes =
        request(bad.opcode, kRqPsn, part(message, 0, bad.size)).reth(memory.iova, memory.key, 8 * kMtu).bytes();
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::kNone);
    packet.psns = bad.psns;
    other.qp.on_packet(packet, other.now);
    EXPECT_THAT(other.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn))) << bad.size << " " << bad.psns;
    EXPECT_EQ(memory.bytes, before);
  }
}

TEST_F(LongResponder, OfOneThatHasArrivedInPartTheRestIsTaken) {
  receive(write(Opcode::kRcWriteFirst, 0, 2 * kMtu), 2);
  buffer.bytes.assign(buffer.bytes.size(), 0);
  receive(write(Opcode::kRcWriteOnly, 0, 8 * kMtu).ack_request(), 8);
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 7)));
  EXPECT_EQ(part(buffer.bytes, 2 * kMtu, 6 * kMtu), part(message, 2 * kMtu, 6 * kMtu));
  EXPECT_EQ(part(buffer.bytes, 0, 2 * kMtu), Bytes(2 * kMtu, 0)) << "executed a second time";
}

TEST_F(LongResponder, OneThatHasArrivedIsADuplicate) {
  receive(write(Opcode::kRcWriteFirst, 0, 4 * kMtu), 4);
  receive(write(Opcode::kRcWriteMiddle, 4, 2 * kMtu), 2);
  buffer.bytes.assign(buffer.bytes.size(), 0);
  receive(write(Opcode::kRcWriteFirst, 0, 4 * kMtu).ack_request(), 4);
  receive(write(Opcode::kRcWriteMiddle, 1, 5 * kMtu).ack_request(), 5);
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 5)));
  EXPECT_EQ(host.count(Counter::kRxDuplicates), 2u);
  EXPECT_EQ(buffer.bytes, Bytes(8 * kMtu, 0));
}

// A part of it would be the next packet, but it is none that an honest peer could have made.
TEST_F(LongResponder, APartOfAnotherMessageIsRefused) {
  receive(write(Opcode::kRcWriteOnly, 0, 8 * kMtu), 8);
  receive(request(Opcode::kRcSendOnly, kRqPsn + 6, part(message, 0, 4 * kMtu)), 4);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn + 8)));
}

TEST_F(LongResponder, ASendThatIsTooLongIsRefused) {
  host.post_receive(1, {buffer.sge(0, 3 * kMtu)});
  receive(request(Opcode::kRcSendOnly, kRqPsn, part(message, 0, 4 * kMtu)), 4);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
}

TEST_F(LongResponder, AWriteBehindItsRegionIsRefused) {
  const PeerPacket beyond =
      request(Opcode::kRcWriteOnly, kRqPsn, part(message, 0, 9 * kMtu)).reth(buffer.iova, buffer.key, 9 * kMtu);
  const Bytes before = buffer.bytes;
  receive(beyond, 9);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
  EXPECT_EQ(buffer.bytes, before);
}

struct LongReader : LongResponder {
  LongReader() {
    host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffer.sge(0, 8 * kMtu)});
    host.pull();
  }
  PeerPacket response(Opcode opcode, uint32_t n, size_t size) {
    return read_response(opcode, kSqPsn + n, part(message, n * kMtu, size));
  }
};

TEST_F(LongReader, TakesLongResponses) {
  receive(response(Opcode::kRcReadResponseFirst, 0, 5 * kMtu), 5);
  receive(response(Opcode::kRcReadResponseLast, 5, 3 * kMtu), 3);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(buffer.bytes, part(message, 0, 8 * kMtu));
}

TEST_F(LongReader, OfOneThatHasArrivedInPartTheRestIsTaken) {
  receive(response(Opcode::kRcReadResponseFirst, 0, 3 * kMtu), 3);
  buffer.bytes.assign(buffer.bytes.size(), 0);
  receive(response(Opcode::kRcReadResponseOnly, 0, 8 * kMtu), 8);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_EQ(part(buffer.bytes, 3 * kMtu, 5 * kMtu), part(message, 3 * kMtu, 5 * kMtu));
  EXPECT_EQ(part(buffer.bytes, 0, 3 * kMtu), Bytes(3 * kMtu, 0));
}

TEST_F(LongReader, MoreThanWasAskedForIsAnError) {
  const Bytes before = buffer.bytes;
  receive(response(Opcode::kRcReadResponseOnly, 0, 9 * kMtu), 9);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kBadResponseError)));
  EXPECT_EQ(buffer.bytes, before);
}

TEST_F(LongReader, ALengthThatDoesNotFitItsPsnsIsAnError) {
  const Bytes before = buffer.bytes;
  receive(response(Opcode::kRcReadResponseFirst, 0, 4 * kMtu), 3);
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalLengthError)));
  EXPECT_EQ(buffer.bytes, before);
}

// --- all together, by seeds -----------------------------------------------------------------------------------------

// Memory of one side of a conversation, with a place for each message, and what is to be there in the end.
struct Side {
  static constexpr uint32_t kMost = 40 * kMtu, kMessages = 30;

  struct Area {
    Area(ScriptedQp& of, uint32_t seed)
        : buffer(of.make_buffer(kMessages * kMost, memory::kLocalWrite | kAllRemote, seed)), expected(buffer.bytes) {}
    // Message `i` brings the first bytes of `from`.
    void expect(uint32_t i, const Buffer& from, uint32_t length) {
      std::copy_n(from.bytes.begin(), length, expected.begin() + static_cast<ptrdiff_t>(i * kMost));
    }
    Buffer buffer;
    Bytes expected;
  };
  struct OnWay {
    Bytes ib;
    uint32_t psns;
  };

  Side(ScriptedQp& of, uint32_t seed)
      : host(of), source(of.make_buffer(kMost, memory::kLocalWrite | kAllRemote, seed)) {}

  ScriptedQp& host;
  Buffer source;
  Area written{host, 11}, read{host, 12}, received{host, 13};
  std::deque<OnWay> arriving;
  uint32_t posted = 0, receives_posted = 0;
  std::vector<queue::Cqe> completed, receives;
  std::vector<uint32_t> lengths;  // of the messages that are to be received
};

// Two QPs that send to each other in packets of changing lengths; some are lost, some come twice.
class LongPacketSeeds : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kMost = Side::kMost, kMessages = Side::kMessages;

  static QpAttributes attributes() {
    QpAttributes a = default_attributes();
    a.retry_count = a.rnr_retry = 7;
    return a;
  }

  uint32_t up_to(uint32_t most) { return std::uniform_int_distribution<uint32_t>(0, most)(random_); }
  bool one_in(uint32_t n) { return n != 0 && up_to(n - 1) == 0; }

  void post(Side& from, Side& to) {
    static constexpr std::array kOpcodes{WrOpcode::kRdmaWrite, WrOpcode::kSend, WrOpcode::kRdmaRead,
                                         WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWriteWithImmediate};
    const WrOpcode opcode = kOpcodes[up_to(kOpcodes.size() - 1)];
    const uint32_t length = one_in(3) ? up_to(3) : up_to(kMost), first = up_to(length), i = from.posted++;
    const std::vector<queue::Sge> sges{from.source.sge(0, first), from.source.sge(first, length - first)};
    switch (opcode) {
      case WrOpcode::kRdmaRead:
        from.host.post(rdma(opcode, i, to.source.iova, to.source.key), {from.read.buffer.sge(i * kMost, length)});
        return from.read.expect(i, to.source, length);
      case WrOpcode::kRdmaWriteWithImmediate:
        to.lengths.push_back(length);
        [[fallthrough]];
      case WrOpcode::kRdmaWrite:
        from.host.post(rdma(opcode, i, to.written.buffer.iova + i * kMost, to.written.buffer.key), sges);
        return to.written.expect(i, from.source, length);
      default:
        from.host.post(work(opcode, i), sges);
        to.received.expect(static_cast<uint32_t>(to.lengths.size()), from.source, length);
        return to.lengths.push_back(length);
    }
  }

  void post_receive(Side& side) {
    const uint32_t i = side.receives_posted++;
    side.host.post_receive(i, {side.received.buffer.sge(i * kMost, kMost)});
  }

  void send(Side& from, Side& to) {
    from.host.qp.allow_long(one_in(3) ? 0 : up_to(20) * kMtu);
    io::TxPacket packet;
    for (uint32_t left = 1 + up_to(10); left > 0 && from.host.qp.pull(packet, from.host.now); --left) put(packet, to);
    if (one_in(2) && from.host.qp.pull_ack(packet, from.host.now)) put(packet, to);
  }
  void put(const io::TxPacket& sent, Side& to) {
    Bytes ib(sent.header.begin(), sent.header.begin() + sent.header_size);
    for (uint8_t i = 0; i < sent.fragment_count; ++i) {
      ib.insert(ib.end(), sent.fragments[i].data, sent.fragments[i].data + sent.fragments[i].size);
    }
    ib.resize(ib.size() + sent.pad + wire::kIcrcSize);
    long_packets_ += sent.psns > 1;
    for (uint32_t copies = one_in(lost_) ? 0 : one_in(lost_) ? 2 : 1; copies > 0; --copies) {
      to.arriving.push_back({ib, sent.psns});
    }
  }
  void arrive(Side& at) {
    for (uint32_t left = up_to(10); left > 0 && !at.arriving.empty(); --left) {
      wire::Packet packet;
      ASSERT_EQ(wire::parse_packet(at.arriving.front().ib, packet), wire::ParseError::kNone);
      packet.psns = at.arriving.front().psns;
      at.host.qp.on_packet(packet, at.host.now);
      at.arriving.pop_front();
    }
    for (const queue::Cqe& cqe : at.host.sends()) at.completed.push_back(cqe);
    for (const queue::Cqe& cqe : at.host.receives()) at.receives.push_back(cqe);
  }
  static bool is_done(const Side& side) {
    return side.completed.size() == kMessages && side.receives.size() == side.lengths.size();
  }
  static bool is_idle(Side& side) {
    return side.arriving.empty() && !side.host.qp.wants_to_send(side.host.now) && !side.host.qp.ack_owed();
  }
  // To the next deadline of either.
  static void wait(Side& a, Side& b) {
    const Time next = std::min(a.host.qp.deadline(), b.host.qp.deadline());
    for (Side* const side : {&a, &b}) {
      side->host.now = next == kNever ? side->host.now + std::chrono::milliseconds(1) : std::max(next, side->host.now);
      if (side->host.qp.deadline() <= side->host.now) side->host.qp.on_timer(side->host.now);
    }
  }
  static void expect_all_there(const Side& side) {
    for (size_t i = 0; i < side.completed.size(); ++i) {
      ASSERT_THAT(side.completed[i], IsCompletion(i, kOk));
    }
    for (size_t i = 0; i < side.receives.size(); ++i) {
      ASSERT_THAT(side.receives[i], IsCompletion(i, kOk));
      ASSERT_EQ(side.receives[i].byte_length, side.lengths[i]);
    }
    EXPECT_EQ(side.written.buffer.bytes, side.written.expected);
    EXPECT_EQ(side.read.buffer.bytes, side.read.expected);
    EXPECT_EQ(side.received.buffer.bytes, side.received.expected);
  }

  std::mt19937 random_{GetParam()};
  const uint32_t lost_ = GetParam() % 4 == 0 ? 0 : 10 + up_to(60);  // one packet in so many; 0: none
  uint32_t long_packets_ = 0;
};

TEST_P(LongPacketSeeds, AllArrivesOnceAndInOrder) {
  SCOPED_TRACE(GetParam());
  QpPair pair(attributes());
  Side a(pair.a, 1), b(pair.b, 2);
  for (int step = 0; step < 100'000 && !(is_done(a) && is_done(b)); ++step) {
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      if (from->posted < kMessages && one_in(4)) post(*from, *to);
      if (from->receives_posted < to->posted + 1 && one_in(4)) post_receive(*from);
      if (one_in(2)) send(*from, *to);
      if (one_in(2)) arrive(*from);
    }
    if (is_idle(a) && is_idle(b)) wait(a, b);
  }
  ASSERT_EQ(pair.a.qp.state(), QpState::kRts);
  ASSERT_EQ(pair.b.qp.state(), QpState::kRts);
  ASSERT_TRUE(is_done(a) && is_done(b)) << "it hangs";
  expect_all_there(a);
  expect_all_there(b);
  EXPECT_GT(long_packets_, 10u);
  if (lost_ == 0) EXPECT_EQ(pair.a.count(Counter::kRxFatalNaks) + pair.b.count(Counter::kRxFatalNaks), 0u);
}

INSTANTIATE_TEST_SUITE_P(Any, LongPacketSeeds, testing::Range(0u, 200u));

}  // namespace
}  // namespace uroce::transport
