// SPDX-License-Identifier: BSD-2-Clause
// What the requester puts into packets: opcodes, headers, payload and pad for every kind of work request and length.
#include <array>

#include "tests/engine/transport/scripted_qp.h"
#include "wire/bytes.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using wire::Opcode;

constexpr uint64_t kWideRemote = 0x1122'3344'5566'7788;
constexpr uint32_t kImmediate = 0x01020304;

// --- packetisation of SEND and WRITE (IBTA 9.7.2, 9.2.1; wire.md "Headers") ------------------------------------------

struct Kind {
  const char* name;
  WrOpcode work;
  Opcode first, middle, last, only;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

constexpr Kind kKinds[] = {
    {"Send", WrOpcode::kSend, Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly},
    {"SendWithImmediate", WrOpcode::kSendWithImmediate, Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
     Opcode::kRcSendLastImmediate, Opcode::kRcSendOnlyImmediate},
    {"SendWithInvalidate", WrOpcode::kSendWithInvalidate, Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
     Opcode::kRcSendLastInvalidate, Opcode::kRcSendOnlyInvalidate},
    {"Write", WrOpcode::kRdmaWrite, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast,
     Opcode::kRcWriteOnly},
    {"WriteWithImmediate", WrOpcode::kRdmaWriteWithImmediate, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle,
     Opcode::kRcWriteLastImmediate, Opcode::kRcWriteOnlyImmediate},
};

class Packetisation : public testing::TestWithParam<std::tuple<Kind, uint32_t, uint32_t>> {};

TEST_P(Packetisation, OpcodesHeadersPayloadAndPad) {
  const auto& [kind, length, mtu] = GetParam();
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(std::max(length, 1u));
  QpAttributes a = default_attributes();
  a.path_mtu = mtu;
  host.to_rts(a);
  queue::SendWqe wqe = rdma(kind.work, 1, kWideRemote, kRkey);
  wqe.immediate_or_rkey = kImmediate;
  host.post(wqe, {buffer.sge(0, length)});
  const std::vector<SentPacket> sent = host.pull();

  const uint32_t count = std::max(1u, (length + mtu - 1) / mtu);
  ASSERT_THAT(sent, SizeIs(count));
  const bool write = kind.first == Opcode::kRcWriteFirst;
  for (uint32_t n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    const bool first = n == 0, last = n + 1 == count;
    const Opcode opcode = first && last ? kind.only : first ? kind.first : last ? kind.last : kind.middle;
    const uint32_t offset = n * mtu;
    EXPECT_THAT(sent[n], IsRequest(opcode, kSqPsn + n, part(buffer.bytes, offset, std::min(mtu, length - offset))));
    if (write && first) {
      EXPECT_THAT(sent[n], HasReth(kWideRemote, kRkey, length)) << "RETH holds the whole message";
    }
    if (last && (kind.work == WrOpcode::kSendWithImmediate || kind.work == WrOpcode::kRdmaWriteWithImmediate)) {
      EXPECT_THAT(sent[n], HasImmediate(kImmediate));
    }
    if (last && kind.work == WrOpcode::kSendWithInvalidate) {
      EXPECT_THAT(sent[n], HasIeth(kImmediate));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths256, Packetisation,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Values(0, 1, 2, 3, 255, 256, 257, 768),
                                          testing::Values(256)));
INSTANTIATE_TEST_SUITE_P(Lengths1024, Packetisation,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Values(0, 1023, 1024, 1025, 3072),
                                          testing::Values(1024)));
INSTANTIATE_TEST_SUITE_P(Lengths4096, Packetisation,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Values(4095, 4096, 4097, 12288),
                                          testing::Values(4096)));

// Byte for byte (wire.md "Headers"): opcode, SE|M|pad, P_Key, reserved, destination QP, A|reserved, PSN; RETH; ImmDt.
TEST(RequesterPackets, WriteOnlyWithImmediateByteForByte) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(5);
  host.to_rts();
  queue::SendWqe wqe =
      rdma(WrOpcode::kRdmaWriteWithImmediate, 1, kWideRemote, kRkey, queue::kSignaled | queue::kSolicited);
  wire::store_be32(reinterpret_cast<uint8_t*>(&wqe.immediate_or_rkey), 0xdeadbeef);
  host.post(wqe, {buffer.sge(0, 5)});
  io::TxPacket out;
  ASSERT_TRUE(host.qp.pull(out, host.now));
  const Bytes header(out.header.begin(), out.header.begin() + out.header_size);
  EXPECT_EQ(header, (Bytes{0x0b, 0xf0, 0xff, 0xff, 0x00, 0x00, 0x02, 0x02, 0x80, 0x00, 0x00, 100,   //
                           0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xa1, 0xb2, 0xc3, 0xd4,  //
                           0x00, 0x00, 0x00, 0x05, 0xde, 0xad, 0xbe, 0xef}));
  EXPECT_EQ(out.pad, 3);
  ASSERT_EQ(out.fragment_count, 1);
  EXPECT_EQ(out.fragments[0].data, buffer.bytes.data()) << "payload is gathered in place, not copied";
}

// --- READ and atomics ------------------------------------------------------------------------------------------------

// IBTA 9.7.2: a READ is one request packet, and consumes a PSN for each response: max(1, ceil(length / PMTU)).
TEST(RequesterPackets, ReadConsumesOnePsnPerResponse) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 7> kCases = {
      {{0, 1}, {1, 1}, {kMtu - 1, 1}, {kMtu, 1}, {kMtu + 1, 2}, {3 * kMtu, 3}, {3 * kMtu + 1, 4}}};
  for (const auto& [length, psns] : kCases) {
    SCOPED_TRACE(length);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(1024);
    host.to_rts();
    host.post(rdma(WrOpcode::kRdmaRead, 1, kWideRemote, kRkey), {buffer.sge(0, length)});
    host.post(work(WrOpcode::kSend, 2));
    EXPECT_THAT(host.pull(), ElementsAre(AllOf(IsRequest(Opcode::kRcReadRequest, kSqPsn, Bytes{}),
                                               HasReth(kWideRemote, kRkey, length), AsksForAck(), Not(IsSolicited())),
                                         IsRequest(Opcode::kRcSendOnly, kSqPsn + psns)));
  }
}

// IBTA 9.4.5: 28 bytes of AtomicETH, no payload; one PSN.
TEST(RequesterPackets, CompareAndSwap) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  queue::SendWqe wqe = rdma(WrOpcode::kCompareSwap, 1, 0x1000, kRkey);
  wqe.operands.compare_add = 111;
  wqe.operands.swap = 222;
  host.post(wqe, {buffer.sge(0, 8)});
  host.post(work(WrOpcode::kSend, 2));
  const auto sent = host.pull();
  ASSERT_THAT(sent, ElementsAre(AllOf(IsRequest(Opcode::kRcCompareSwap, kSqPsn, Bytes{}), AsksForAck()),
                                IsRequest(Opcode::kRcSendOnly, kSqPsn + 1)));
  EXPECT_EQ(sent[0].headers.atomic_eth,
            (wire::AtomicEth{.va = 0x1000, .rkey = kRkey, .swap_add = 222, .compare = 111}));
}

TEST(RequesterPackets, FetchAndAdd) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  queue::SendWqe wqe = rdma(WrOpcode::kFetchAdd, 1, 0x1000, kRkey);
  wqe.operands.compare_add = 111;
  host.post(wqe, {buffer.sge(0, 8)});
  const auto sent = host.pull();
  ASSERT_THAT(sent, ElementsAre(IsRequest(Opcode::kRcFetchAdd, kSqPsn, Bytes{})));
  EXPECT_EQ(sent[0].headers.atomic_eth.swap_add, 111u);
  EXPECT_EQ(sent[0].headers.atomic_eth.va, 0x1000u);
}

// --- gathering -------------------------------------------------------------------------------------------------------

TEST(RequesterPackets, GathersAcrossSgesIncludingEmptyOnes) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(2000);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1),
            {buffer.sge(1000, 100), buffer.sge(7, 0), buffer.sge(0, 200), buffer.sge(500, 3)});
  Bytes message = part(buffer.bytes, 1000, 100);
  for (const auto& more : {part(buffer.bytes, 0, 200), part(buffer.bytes, 500, 3)}) {
    message.insert(message.end(), more.begin(), more.end());
  }
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendFirst, kSqPsn, part(message, 0, kMtu)),
                                       IsRequest(Opcode::kRcSendLast, kSqPsn + 1, part(message, kMtu, 303 - kMtu))));
}

TEST(RequesterPackets, SgesThatEndOnPacketBoundaries) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(2 * kMtu);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, kMtu), buffer.sge(kMtu, kMtu)});
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendFirst, kSqPsn, part(buffer.bytes, 0, kMtu)),
                                       IsRequest(Opcode::kRcSendLast, kSqPsn + 1, part(buffer.bytes, kMtu, kMtu))));
}

// Sending needs no permission but a key of the same protection domain (IBTA 10.6.3.1: local read is always allowed).
TEST(RequesterPackets, SendsFromMemoryWithoutAnyAccessFlag) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(4, memory::kLocalRead);
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 4)});
  EXPECT_THAT(host.pull(), ElementsAre(HasPayload(buffer.bytes)));
}

// Zero bytes need no valid key (IBTA C9-88).
TEST(RequesterPackets, ZeroLengthSgeWithABadKey) {
  ScriptedQp host;
  host.to_rts();
  host.post(work(WrOpcode::kSend, 1), {{0xdead, 0, 0xdead}});
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn, Bytes{})));
}

TEST(RequesterPackets, InlineDataNeedsNoKeyAndMayBeResent) {
  ScriptedQp host;
  host.to_rts();
  const Bytes data = pattern(77);
  host.post_inline(rdma(WrOpcode::kRdmaWrite, 1, kWideRemote, kRkey), data);
  const auto expected = AllOf(IsRequest(Opcode::kRcWriteOnly, kSqPsn, data), HasReth(kWideRemote, kRkey, 77));
  EXPECT_THAT(host.pull(), ElementsAre(expected));
  host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_THAT(host.pull(), ElementsAre(expected));
}

TEST(RequesterPackets, InlineDataOfSeveralPackets) {
  ScriptedQp host(ScriptedQp::Config{.max_inline = 600});
  host.to_rts();
  const Bytes data = pattern(600);
  host.post_inline(work(WrOpcode::kSend, 1), data);
  EXPECT_THAT(host.pull(), ElementsAre(IsRequest(Opcode::kRcSendFirst, kSqPsn, part(data, 0, 256)),
                                       IsRequest(Opcode::kRcSendMiddle, kSqPsn + 1, part(data, 256, 256)),
                                       IsRequest(Opcode::kRcSendLast, kSqPsn + 2, part(data, 512, 88))));
}

// --- solicited (IBTA 9.2.3; wire.md "Solicited events") --------------------------------------------------------------

TEST(RequesterPackets, SolicitedIsOnTheLastPacketOfWhatCompletesAReceive) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(3 * kMtu);
    host.to_rts();
    host.post(rdma(kind.work, 1, kWideRemote, kRkey, queue::kSolicited), {buffer.sge(0, 3 * kMtu)});
    host.post(rdma(kind.work, 2, kWideRemote, kRkey, 0), {buffer.sge(0, 1)});
    const auto sent = host.pull();
    ASSERT_THAT(sent, SizeIs(4));
    const bool expected = kind.work != WrOpcode::kRdmaWrite;
    EXPECT_FALSE(sent[0].headers.bth.solicited);
    EXPECT_FALSE(sent[1].headers.bth.solicited);
    EXPECT_EQ(sent[2].headers.bth.solicited, expected);
    EXPECT_FALSE(sent[3].headers.bth.solicited) << "not asked for";
  }
}

TEST(RequesterPackets, ReadsAndAtomicsAreNeverSolicited) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8);
  host.to_rts();
  for (const WrOpcode opcode : {WrOpcode::kRdmaRead, WrOpcode::kCompareSwap, WrOpcode::kFetchAdd}) {
    host.post(rdma(opcode, 1, kWideRemote, kRkey, queue::kSolicited), {buffer.sge(0, 8)});
  }
  EXPECT_THAT(host.pull(), ElementsAre(Not(IsSolicited()), Not(IsSolicited()), Not(IsSolicited())));
}

// --- PSN wrap (faults.md 15) -----------------------------------------------------------------------------------------

class FirstPsn : public testing::TestWithParam<uint32_t> {};

TEST_P(FirstPsn, EveryKindOfMessageCrossesIt) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(3 * kMtu);
  QpAttributes a = default_attributes();
  a.sq_psn = wire::Psn(GetParam());
  host.to_rts(a);
  host.post(work(WrOpcode::kSend, 1), {buffer.sge(0, 3 * kMtu)});
  host.post(rdma(WrOpcode::kRdmaRead, 2, kWideRemote, kRkey), {buffer.sge(0, 3 * kMtu)});
  host.post(rdma(WrOpcode::kFetchAdd, 3, kWideRemote, kRkey), {buffer.sge(0, 8)});
  host.post(rdma(WrOpcode::kRdmaWrite, 4, kWideRemote, kRkey), {buffer.sge(0, 2 * kMtu)});
  const auto at = [](uint32_t n) { return (GetParam() + n) & 0xffffff; };
  const auto expected = ElementsAre(IsRequest(Opcode::kRcSendFirst, at(0)), IsRequest(Opcode::kRcSendMiddle, at(1)),
                                    IsRequest(Opcode::kRcSendLast, at(2)), IsRequest(Opcode::kRcReadRequest, at(3)),
                                    IsRequest(Opcode::kRcFetchAdd, at(6)), IsRequest(Opcode::kRcWriteFirst, at(7)),
                                    IsRequest(Opcode::kRcWriteLast, at(8)));
  EXPECT_THAT(host.pull(), expected);
  host.receive(nak(wire::NakCode::kPsnSequenceError, at(0)));
  EXPECT_THAT(host.pull(), expected) << "when resent";
  host.receive(read_response(Opcode::kRcReadResponseFirst, at(3), pattern(kMtu, 1)));
  host.receive(read_response(Opcode::kRcReadResponseMiddle, at(4), pattern(kMtu, 2)));
  host.receive(read_response(Opcode::kRcReadResponseLast, at(5), pattern(kMtu, 3)));
  host.receive(atomic_response(at(6), 1));
  host.receive(ack(at(8)));
  using queue::WcStatus;
  EXPECT_THAT(host.sends(), ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kSuccess),
                                        IsCompletion(3, WcStatus::kSuccess), IsCompletion(4, WcStatus::kSuccess)));
  EXPECT_EQ(host.qp.deadline(), kNever);
}

INSTANTIATE_TEST_SUITE_P(Wrap, FirstPsn,
                         testing::Values(0u, 0x7ffffcu, 0x7fffffu, 0x800000u, 0xfffff7u, 0xfffffau, 0xfffffcu,
                                         0xfffffeu, 0xffffffu));

}  // namespace
}  // namespace uroce::transport
