// SPDX-License-Identifier: BSD-2-Clause
// Hostile frames against a whole engine with traffic under way: what is not a RoCE packet, or not a whole one
// (faults.md 1 to 6). Each has its own named counter, no effect and no answer, and the traffic goes on. Tests are named
// after the fault; docs/faults.md is the index. What a packet may do that passes all of this is the transport's,
// tests/engine/transport/reliable/faults_test.cc.
#include <cstring>

#include "tests/engine/datapath/fault_rig.h"

namespace uroce::engine::test {
namespace {

using wire::Opcode;
using wire::OpcodeInfo;

constexpr size_t kEtherType = kIp - 2;

// --- 1: truncated at every byte --------------------------------------------------------------------------------------

TEST(Fault1, FrameCutAtEveryByte) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    for (const Opcode opcode : rc_opcodes()) {
      const Bytes whole = rig.frame(rig.plausible(opcode));
      for (size_t size = 0; size < whole.size(); ++size) rig.expect_malformed(std::span(whole).first(size));
    }
    rig.expect_traffic_works();
  }
}

// IP and UDP say the length that there is; the ICRC went with what was cut off.
TEST(Fault1, PacketCutAtEveryByte) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    for (const Opcode opcode : rc_opcodes()) {
      const OpcodeInfo& info = wire::opcode_info(opcode);
      SCOPED_TRACE(info.name);
      Bytes whole = rig.ib(rig.plausible(opcode));
      seal(rig.from_peer(), whole);
      const size_t pad = info.has_payload ? 2 : 0;
      for (size_t size = 0; size < whole.size(); ++size) {
        const bool complete = size >= info.header_size + pad + wire::kIcrcSize;
        rig.expect_dropped(frame_of(rig.from_peer(), std::span(whole).first(size)),
                           complete ? Counter::kDropBadIcrc : Counter::kDropParse);
      }
    }
    rig.expect_traffic_works();
  }
}

TEST(Fault1, HeadersCutAtEveryByteWithAnIcrcMadeForIt) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    for (const Opcode opcode : rc_opcodes()) {
      SCOPED_TRACE(wire::opcode_info(opcode).name);
      const Bytes whole = rig.ib(rig.plausible(opcode));
      for (size_t size = 0; size < wire::opcode_info(opcode).header_size; ++size) {
        Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
        cut.resize(size + wire::kIcrcSize);
        rig.expect_dropped(sealed_frame(rig.from_peer(), cut), Counter::kDropParse);
      }
    }
    rig.expect_traffic_works();
  }
}

// Cut in the payload, with an ICRC made for it, this is another well-formed packet: the transport's rules on lengths
// decide. Whatever they say, nothing is written but what the packet carries, where the SEND under way goes on.
TEST(Fault1, PayloadCutAtEveryByteWithAnIcrcMadeForIt) {
  constexpr size_t kPayload = 18;
  for (const Opcode opcode : rc_opcodes()) {
    const OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.has_payload) continue;
    SCOPED_TRACE(info.name);
    for (size_t size = 0; size < kPayload; ++size) {
      FaultRig rig;
      rig.begin_traffic();
      const Bytes before = rig.victim.bytes;
      Bytes cut = rig.ib(rig.plausible(opcode));
      cut.resize(info.header_size + size + wire::kIcrcSize);
      rig.victim.receive(sealed_frame(rig.from_peer(), cut));
      const uint8_t* inbox = rig.victim.at(FaultHost::kInbox + kMtu);
      const Bytes data = pattern(size, 77);
      for (size_t i = 0; i < before.size(); ++i) {
        const uint8_t* at = &rig.victim.bytes[i];
        const bool carried = at >= inbox && at < inbox + size && *at == data[static_cast<size_t>(at - inbox)];
        ASSERT_TRUE(*at == before[i] || carried) << "byte " << i;
      }
    }
  }
}

// --- 2: every opcode to every kind of QPN ----------------------------------------------------------------------------

// CNPs are not in here, and neither are the RC opcodes to our QP: those are the traffic.
TEST(Fault2, EveryOpcodeToEveryQpn) {
  FaultRig rig;
  rig.begin_traffic();
  const uint32_t ours = rig.victim.qp->transport->qpn().value();
  for (int code = 0; code < 256; ++code) {
    SCOPED_TRACE(code);
    const auto opcode = static_cast<Opcode>(code);
    const OpcodeInfo& info = wire::opcode_info(opcode);
    if (opcode == Opcode::kCnp) continue;
    for (const uint32_t qpn : {ours, 0u, 1u, 0xffffffu, ours ^ 1, ours ^ 0x800000}) {
      if (info.known && info.transport == wire::Transport::kRc && qpn == ours) continue;
      Bytes ib((info.known ? info.header_size : 44) + wire::kIcrcSize);
      wire::Bth bth{.opcode = opcode, .dest_qp = wire::Qpn(qpn), .psn = wire::Psn(kRqPsn + 1)};
      bth.emit(ib.data());
      rig.expect_dropped(sealed_frame(rig.from_peer(), ib), !info.known   ? Counter::kDropUnknownOpcode
                                                            : qpn == ours ? Counter::kDropWrongTransport
                                                                          : Counter::kDropUnknownQp);
    }
  }
  rig.expect_traffic_works();
}

// --- 3: IP options, fragments, VLAN, lengths -------------------------------------------------------------------------

struct FrameChange {
  const char* name;
  bool v6;
  void (*change)(Bytes& frame);
};

void add16(uint8_t* at, int by) {
  wire::store_be16(at, static_cast<uint16_t>(wire::load_be16(at) + by));
}

constexpr FrameChange kMalformations[] = {
    {"IPv4 options", false,
     [](Bytes& f) {
       f.insert(f.begin() + kIp + 20, {0, 0, 0, 0});  // end of options; leaves the checksum right
       f[kIp] = 0x46;
       add16(&f[kIp + 2], 4);
     }},
    {"IPv4 header length that takes UDP for options", false, [](Bytes& f) { f[kIp] = 0x47; }},
    {"IPv4 header length that takes the destination for UDP", false, [](Bytes& f) { f[kIp] = 0x44; }},
    {"first fragment", false, [](Bytes& f) { f[kIp + 6] |= 0x20; }},
    {"later fragment", false, [](Bytes& f) { f[kIp + 7] = 1; }},
    {"far fragment", false, [](Bytes& f) { f[kIp + 6] |= 0x10; }},
    {"reserved flag", false, [](Bytes& f) { f[kIp + 6] |= 0x80; }},
    {"IP shorter than UDP", false, [](Bytes& f) { add16(&f[kIp + 2], -4); }},
    {"IP longer than UDP", false, [](Bytes& f) { add16(&f[kIp + 2], 4), f.resize(f.size() + 4); }},
    {"IP shorter than its header", false, [](Bytes& f) { wire::store_be16(&f[kIp + 2], 19); }},
    {"IP length 0", false, [](Bytes& f) { wire::store_be16(&f[kIp + 2], 0); }},
    {"UDP shorter than IP", false, [](Bytes& f) { add16(&f[kIp + 20 + 4], -4); }},
    {"UDP longer than IP", false, [](Bytes& f) { add16(&f[kIp + 20 + 4], 4), f.resize(f.size() + 4); }},
    {"UDP shorter than its header", false,
     [](Bytes& f) { wire::store_be16(&f[kIp + 2], 27), wire::store_be16(&f[kIp + 20 + 4], 7); }},
    {"both longer than the frame", false, [](Bytes& f) { add16(&f[kIp + 2], 1), add16(&f[kIp + 20 + 4], 1); }},
    {"TCP", false, [](Bytes& f) { f[kIp + 9] = 6; }},
    {"another port", false, [](Bytes& f) { add16(&f[kIp + 20 + 2], 1); }},
    {"IPv6 in an IPv4 EtherType", false, [](Bytes& f) { f[kIp] = 0x65; }},
    {"ARP", false, [](Bytes& f) { wire::store_be16(&f[kEtherType], 0x0806); }},
    {"two VLAN tags", false,
     [](Bytes& f) {
       f.insert(f.begin() + kEtherType, {0x81, 0, 0, 1, 0x81, 0, 0, 2});
     }},
    {"802.1ad tag", false,
     [](Bytes& f) {
       f.insert(f.begin() + kEtherType, {0x88, 0xa8, 0, 1});
     }},
    {"fragment header announced in IPv6", true, [](Bytes& f) { f[kIp + 6] = 44; }},
    {"IPv6 fragment header", true,
     [](Bytes& f) {
       f.insert(f.begin() + kIp + 40, {17, 0, 0, 0, 0, 0, 0, 1});
       f[kIp + 6] = 44;
       add16(&f[kIp + 4], 8);
     }},
    {"IPv6 hop-by-hop options", true,
     [](Bytes& f) {
       f.insert(f.begin() + kIp + 40, {17, 0, 1, 4, 0, 0, 0, 0});
       f[kIp + 6] = 0;
       add16(&f[kIp + 4], 8);
     }},
    {"IPv6 shorter than UDP", true, [](Bytes& f) { add16(&f[kIp + 4], -4); }},
    {"IPv6 longer than UDP", true, [](Bytes& f) { add16(&f[kIp + 4], 4), f.resize(f.size() + 4); }},
    {"IPv6 length 0", true, [](Bytes& f) { wire::store_be16(&f[kIp + 4], 0); }},
    {"UDP shorter than IPv6", true, [](Bytes& f) { add16(&f[kIp + 40 + 4], -4); }},
    {"both longer than the IPv6 frame", true, [](Bytes& f) { add16(&f[kIp + 4], 1), add16(&f[kIp + 40 + 4], 1); }},
    {"IPv4-mapped source", true,
     [](Bytes& f) {
       std::memset(&f[kIp + 8], 0, 16);
       f[kIp + 8 + 10] = f[kIp + 8 + 11] = 0xff;
     }},
};

// Each is the peer's next packet, right but for this.
TEST(Fault3, MalformedFrames) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.begin_traffic();
    for (const FrameChange& malformation : kMalformations) {
      if (malformation.v6 != v6) continue;
      SCOPED_TRACE(malformation.name);
      Bytes frame = rig.peer.sent.front();
      malformation.change(frame);
      const bool ip4 = !v6 && wire::load_be16(&frame[kEtherType]) == 0x0800;
      if (ip4) fix_checksum(frame);
      rig.expect_malformed(frame);
    }
    rig.expect_traffic_works();
  }
}

TEST(Fault3, BadIpv4HeaderChecksum) {
  FaultRig rig;
  rig.begin_traffic();
  for (int bit = 0; bit < 16; ++bit) {
    Bytes frame = rig.peer.sent.front();
    add16(&frame[kIp + 10], 1 << bit);
    rig.expect_malformed(frame);
  }
  rig.expect_traffic_works();
}

// What passes, and is the same packet as without.
TEST(Fault3, OneVlanTagAndPaddingOfTheFramePass) {
  for (const bool v6 : {false, true}) {
    FaultRig rig(v6);
    rig.on_the_way = [](Bytes& frame) {
      frame.insert(frame.begin() + kEtherType, {0x81, 0x00, 0xe0, 0x2a});
      frame.insert(frame.end(), 46, 0xcc);
    };
    rig.begin_traffic();
    rig.expect_traffic_works();
  }
}

// --- 4, 5, 6: TVer and pad -------------------------------------------------------------------------------------------

TEST(Fault4, TransportHeaderVersionIsNotZero) {
  FaultRig rig;
  rig.begin_traffic();
  for (const Opcode opcode : rc_opcodes()) {
    for (uint8_t tver = 1; tver < 16; ++tver) {
      Bytes ib = rig.ib(rig.plausible(opcode));
      ib[1] |= tver;
      rig.expect_dropped(sealed_frame(rig.from_peer(), ib), Counter::kDropParse);
    }
  }
  rig.expect_traffic_works();
}

TEST(Fault5, PadIsLongerThanThePayload) {
  FaultRig rig;
  rig.begin_traffic();
  for (const Opcode opcode : rc_opcodes()) {
    const OpcodeInfo& info = wire::opcode_info(opcode);
    SCOPED_TRACE(info.name);
    for (uint8_t pad = 1; pad <= 3; ++pad) {
      for (size_t size = 0; size < pad; ++size) {
        Bytes ib = rig.ib(rig.plausible(opcode).payload({}).pad(pad));
        ib.resize(info.header_size + size + wire::kIcrcSize);
        rig.expect_dropped(sealed_frame(rig.from_peer(), ib), Counter::kDropParse);
      }
    }
  }
  rig.expect_traffic_works();
}

TEST(Fault5, PayloadWhereTheOpcodeHasNone) {
  FaultRig rig;
  rig.begin_traffic();
  for (const Opcode opcode : rc_opcodes()) {
    if (wire::opcode_info(opcode).has_payload) continue;
    for (const size_t size : {1u, 4u, 256u}) {
      rig.expect_dropped(rig.frame(rig.plausible(opcode).payload(pattern(size))), Counter::kDropParse);
    }
  }
  rig.expect_traffic_works();
}

// NAK invalid request, and the QP is in the error state (IBTA 9.7.4.1.6).
TEST(Fault6, PadOnFirstAndMiddleEndsTheConnection) {
  for (const Opcode opcode :
       {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle}) {
    SCOPED_TRACE(wire::opcode_info(opcode).name);
    for (uint8_t pad = 1; pad <= 3; ++pad) {
      for (const uint32_t size : {kMtu - pad, kMtu}) {
        FaultRig rig;
        const queue::Sge inbox = rig.victim.sge(FaultHost::kInbox, 1024);
        ASSERT_TRUE(rig.victim.qp->rq.post(1, {&inbox, 1}));
        const bool send = wire::opcode_info(opcode).operation == wire::Operation::kSend;
        uint32_t psn = kRqPsn;
        const auto packet = [&](Opcode what) {
          return PeerPacket(what, psn++).reth(rig.victim.address(FaultHost::kShared), rig.victim.key, 1024);
        };
        if (!wire::opcode_info(opcode).first) {
          const Opcode first = send ? Opcode::kRcSendFirst : Opcode::kRcWriteFirst;
          rig.victim.receive(rig.frame(packet(first).payload(pattern(kMtu, 50))));
        }
        ASSERT_EQ(rig.victim.qp->transport->state(), QpState::kRts);
        const Bytes memory = rig.victim.bytes;
        rig.victim.receive(rig.frame(packet(opcode).payload(pattern(size, 60)).pad(pad)));
        EXPECT_EQ(rig.victim.qp->transport->state(), QpState::kErr);
        EXPECT_TRUE(rig.victim.bytes == memory);
        ASSERT_EQ(rig.victim.sent.size(), 1u);
        io::RxPacket rx;
        wire::Packet reply;
        ASSERT_EQ(wire::parse_frame(rig.victim.sent[0], rx.envelope, rx.ib), wire::FrameError::kNone);
        ASSERT_EQ(wire::parse_packet(rx.ib, reply), wire::ParseError::kNone);
        EXPECT_EQ(reply.bth.opcode, Opcode::kRcAcknowledge);
        EXPECT_EQ(reply.bth.psn, wire::Psn(psn - 1));
        EXPECT_EQ(reply.aeth.syndrome, 0x61);
      }
    }
  }
}

}  // namespace
}  // namespace uroce::engine::test
