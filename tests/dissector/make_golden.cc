// SPDX-License-Identifier: BSD-2-Clause
// The golden captures: small, each about one thing, written down packet by packet. golden_test.py compares what tshark
// says about them with the text in expected/. Usage: make_golden DIRECTORY
#include <algorithm>
#include <cstdio>

#include "tests/dissector/script.h"
#include "wire/cm_message.h"
#include "wire/cma_header.h"
#include "wire/mad.h"

namespace uroce::golden {
namespace {

using wire::Aeth;
using wire::Msn;
using wire::NakCode;

constexpr Connection kConnection{0x101, 0x202};
constexpr uint32_t kMtu = 256;

Aeth ack(uint32_t msn, uint8_t credits = wire::kNoCreditsCode) {
  return Aeth::make_ack(credits, Msn(msn));
}
Aeth nak(NakCode code, uint32_t msn) {
  return Aeth::make_nak(code, Msn(msn));
}

Packet request(Opcode opcode, uint32_t psn, uint32_t size = 0, uint32_t dma = 0) {
  return {.opcode = opcode, .psn = psn, .size = size, .dma = dma};
}
Packet acknowledge(uint32_t psn, Aeth aeth) {
  return {.opcode = Opcode::kRcAcknowledge, .psn = psn, .aeth = aeth};
}
Packet response(Opcode opcode, uint32_t psn, uint32_t size, uint32_t msn) {
  return {.opcode = opcode, .psn = psn, .size = size, .aeth = ack(msn)};
}

// A SEND of `packets` packets from PSN `psn` on.
void send_message(Script& s, uint32_t psn, uint32_t packets, uint32_t from = 0) {
  for (uint32_t i = from; i < packets; ++i) {
    const Opcode opcode = i == 0             ? Opcode::kRcSendFirst
                          : i + 1 == packets ? Opcode::kRcSendLast
                                             : Opcode::kRcSendMiddle;
    s.forth(kConnection, request(opcode, psn + i, i + 1 == packets ? 40 : kMtu));
  }
}

// One of each operation, nothing wrong; the PSN wraps.
void clean(const std::string& directory) {
  Script s(directory, "clean");
  const auto& c = kConnection;
  send_message(s, 0xfffffe, 3);
  s.after(10).back(c, acknowledge(0, ack(1, 5)));
  s.forth(c, request(Opcode::kRcWriteFirst, 1, kMtu, kMtu + 3)).forth(c, request(Opcode::kRcWriteLast, 2, 3));
  s.after(10).back(c, acknowledge(2, ack(2)));
  s.forth(c, request(Opcode::kRcReadRequest, 3, 0, 600));
  s.after(10).back(c, response(Opcode::kRcReadResponseFirst, 3, kMtu, 3));
  s.back(c, response(Opcode::kRcReadResponseMiddle, 4, kMtu, 3))
      .back(c, response(Opcode::kRcReadResponseLast, 5, 88, 3));
  s.forth(c, request(Opcode::kRcFetchAdd, 6)).forth(c, request(Opcode::kRcCompareSwap, 7));
  s.after(10)
      .back(c, response(Opcode::kRcAtomicAcknowledge, 6, 0, 4))
      .back(c, response(Opcode::kRcAtomicAcknowledge, 7, 0, 5));
  s.forth(c, request(Opcode::kRcSendOnlyImmediate, 8, 10)).forth(c, request(Opcode::kRcSendOnlyInvalidate, 9, 10));
  s.forth(c, request(Opcode::kRcWriteOnlyImmediate, 10, 16, 16));
  s.after(10).back(c, acknowledge(10, ack(8)));
  s.back(c, request(Opcode::kRcSendOnly, 0x500, 8)).after(10).forth(c, acknowledge(0x500, ack(1)));
}

// A packet is lost behind the place of the capture: the NAK asks for it.
void nak_at_sender(const std::string& directory) {
  Script s(directory, "nak-at-sender");
  send_message(s, 100, 5);
  s.after(8).back(kConnection, acknowledge(102, nak(NakCode::kPsnSequenceError, 0)));
  send_message(s, 100, 5, 2);
  s.after(10).back(kConnection, acknowledge(104, ack(1)));
}

// The same seen at the other end, where the packet never was.
void nak_at_receiver(const std::string& directory) {
  Script s(directory, "nak-at-receiver");
  s.forth(kConnection, request(Opcode::kRcSendFirst, 100, kMtu))
      .forth(kConnection, request(Opcode::kRcSendMiddle, 101, kMtu));
  s.forth(kConnection, request(Opcode::kRcSendMiddle, 103, kMtu))
      .back(kConnection, acknowledge(102, nak(NakCode::kPsnSequenceError, 0)));
  s.forth(kConnection, request(Opcode::kRcSendLast, 104, 40)).after(10);
  send_message(s, 100, 5, 2);
  s.back(kConnection, acknowledge(104, ack(1)));
}

// Nothing comes back: timeouts, until one does; and one repetition too many.
void timeout(const std::string& directory) {
  Script s(directory, "timeout");
  const auto& c = kConnection;
  for (int i = 0; i < 4; ++i) s.forth(c, request(Opcode::kRcWriteOnly, 7, 8, 8)).after(4000);
  s.back(c, acknowledge(7, ack(1))).forth(c, request(Opcode::kRcWriteOnly, 7, 8, 8));
  s.after(10).back(c, acknowledge(7, ack(1)));
}

void rnr(const std::string& directory) {
  Script s(directory, "rnr");
  const auto& c = kConnection;
  const Aeth wait = Aeth::make_rnr_nak(5, Msn(0));  // 60 us
  s.forth(c, request(Opcode::kRcSendOnly, 1, 8)).after(5).back(c, acknowledge(1, wait));
  s.after(61).forth(c, request(Opcode::kRcSendOnly, 1, 8)).after(5).back(c, acknowledge(1, ack(1)));
  s.forth(c, request(Opcode::kRcSendOnly, 2, 8)).after(5).back(c, acknowledge(2, wait));
  s.after(20).forth(c, request(Opcode::kRcSendOnly, 2, 8)).after(5).back(c, acknowledge(2, ack(2, 0)));
}

// A response is lost in front of the capture; the requester asks for the rest; the responder sends it again.
void read_replay(const std::string& directory) {
  Script s(directory, "read-replay");
  const auto& c = kConnection;
  s.forth(c, request(Opcode::kRcReadRequest, 10, 0, 5 * kMtu)).after(5);
  s.back(c, response(Opcode::kRcReadResponseFirst, 10, kMtu, 1));
  s.after(1).back(c, {.opcode = Opcode::kRcReadResponseMiddle, .psn = 12, .size = kMtu, .ip_id = 0x202});
  s.back(c, {.opcode = Opcode::kRcReadResponseMiddle, .psn = 13, .size = kMtu, .ip_id = 0x203});
  s.back(c, {.opcode = Opcode::kRcReadResponseLast, .psn = 14, .size = kMtu, .aeth = ack(1), .ip_id = 0x204});
  s.after(3).forth(c, request(Opcode::kRcReadRequest, 11, 0, 4 * kMtu)).after(5);
  for (uint32_t psn = 11; psn < 15; ++psn) {
    const Opcode opcode = psn == 11   ? Opcode::kRcReadResponseFirst
                          : psn == 14 ? Opcode::kRcReadResponseLast
                                      : Opcode::kRcReadResponseMiddle;
    s.back(c, {.opcode = opcode, .psn = psn, .size = kMtu, .aeth = ack(1), .ip_id = static_cast<int>(0x200 + psn)});
  }
  // An ACK passes an unanswered READ.
  s.forth(c, request(Opcode::kRcReadRequest, 15, 0, 64)).forth(c, request(Opcode::kRcSendOnly, 16, 64));
  s.after(5).back(c, {.opcode = Opcode::kRcAcknowledge, .psn = 16, .aeth = ack(3), .ip_id = 0x220});
  s.after(2).forth(c, request(Opcode::kRcReadRequest, 15, 0, 64));
  s.after(5).back(c, {.opcode = Opcode::kRcReadResponseOnly, .psn = 15, .size = 64, .aeth = ack(3), .ip_id = 0x221});
}

void duplicates(const std::string& directory) {
  Script s(directory, "duplicates");
  const auto& c = kConnection;
  s.forth(c, request(Opcode::kRcWriteOnly, 1, 8, 8)).after(5).back(c, acknowledge(1, ack(1)));
  s.forth(c, request(Opcode::kRcWriteOnly, 2, 8, 8));
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 2, .size = 8, .dma = 8, .ip_id = 0x101});  // a copy
  s.after(5).back(c, acknowledge(2, ack(2)));
  s.back(c, {.opcode = Opcode::kRcAcknowledge, .psn = 2, .aeth = ack(2), .ip_id = 0x201});  // a copy
  s.back(c, acknowledge(2, ack(2)));                                                        // another one
  s.back(c, acknowledge(9, ack(3)));                                                        // of what nobody has seen
  // Overtaken by the next one.
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 4, .size = 8, .dma = 8, .ip_id = 0x103});
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 3, .size = 8, .dma = 8, .ip_id = 0x102});
}

void violations(const std::string& directory) {
  Script s(directory, "violations");
  const auto& c = kConnection;
  s.forth(c, request(Opcode::kRcSendFirst, 1, kMtu)).forth(c, request(Opcode::kRcSendLast, 2, 4));
  s.forth(c, request(Opcode::kRcSendMiddle, 3, kMtu));  // without a First
  s.forth(c, request(Opcode::kRcSendLast, 4, 4));
  s.forth(c, request(Opcode::kRcSendFirst, 5, kMtu));
  s.forth(c, request(Opcode::kRcSendOnly, 6, 4));  // in the middle of a message
  s.forth(c, request(Opcode::kRcWriteFirst, 7, kMtu, 300));
  s.forth(c, request(Opcode::kRcSendLast, 8, 44));  // of another operation
  s.forth(c, request(Opcode::kRcSendFirst, 9, 100)).forth(c, request(Opcode::kRcSendLast, 10, 4));  // short First
  s.forth(c, request(Opcode::kRcWriteFirst, 11, kMtu, 300)).forth(c, request(Opcode::kRcWriteLast, 12, 20));  // not 300
  s.forth(c, request(Opcode::kRcSendOnly, 13, 300));                // above the path MTU
  s.forth(c, request(Opcode::kRcReadRequest, 14, 0, 0x80000001u));  // above 2^31
}

void fatal_naks(const std::string& directory) {
  Script s(directory, "fatal-naks");
  const NakCode codes[] = {NakCode::kInvalidRequest, NakCode::kRemoteAccessError, NakCode::kRemoteOperationalError,
                           NakCode::kInvalidRdRequest};
  uint32_t qpn = 0x300;
  for (const NakCode code : codes) {
    const Connection c{qpn, qpn + 0x1000};
    s.forth(c, request(Opcode::kRcWriteOnly, qpn, 8, 8)).after(5).back(c, acknowledge(qpn, nak(code, 0)));
    ++qpn;
  }
}

// A flow is slowed down by CNPs.
void cnp(const std::string& directory) {
  Script s(directory, "cnp");
  const auto& c = kConnection;
  uint32_t psn = 1;
  for (; psn <= 40; ++psn) {
    Packet p = request(Opcode::kRcWriteOnly, psn, 64, 64);
    p.traffic_class = psn >= 38 ? wire::kEcnCe : wire::kEcnEct0;
    s.forth(c, p);
  }
  s.back(c, acknowledge(1, ack(1)));
  s.back(c, {.opcode = Opcode::kCnp, .becn = true, .traffic_class = wire::kCnpTrafficClass});
  for (; psn <= 80; ++psn) {
    Packet p = request(Opcode::kRcWriteOnly, psn, 64, 64);
    p.traffic_class = wire::kEcnEct0;
    s.after(3).forth(c, p);
  }
}

void ud_and_uc(const std::string& directory) {
  Script s(directory, "ud-uc");
  const Connection ud{0x11, 0x22}, uc{0x33, 0x44}, multicast{0x11, 0xffffff};
  s.forth(ud, request(Opcode::kUdSendOnly, 5, 21)).back(ud, request(Opcode::kUdSendOnlyImmediate, 900, 4));
  s.forth(multicast, request(Opcode::kUdSendOnly, 6, 21));
  s.forth(uc, request(Opcode::kUcSendFirst, 1, kMtu)).forth(uc, request(Opcode::kUcSendLast, 2, 1));
  s.forth(uc, {.opcode = Opcode::kUcWriteOnly, .psn = 4, .size = 8, .dma = 8, .ip_id = 0x105});
  s.forth(uc, {.opcode = Opcode::kUcWriteOnly, .psn = 3, .size = 8, .dma = 8, .ip_id = 0x104});
  s.forth(uc, {.opcode = Opcode::kUcWriteOnly, .psn = 4, .size = 8, .dma = 8, .ip_id = 0x105});
}

void xrc_and_newer(const std::string& directory) {
  Script s(directory, "xrc-flush");
  const Connection xrc{0x55, 0x66}, rc{0x57, 0x68};
  s.forth(xrc, request(Opcode::kXrcSendOnly, 1, 4)).forth(xrc, request(Opcode::kXrcFetchAdd, 2));
  s.after(4).back(xrc, {.opcode = Opcode::kXrcAcknowledge, .psn = 1, .aeth = ack(1)});
  s.back(xrc, {.opcode = Opcode::kXrcAtomicAcknowledge, .psn = 2, .aeth = ack(2)});
  s.forth(rc, request(Opcode::kRcWriteOnly, 1, 8, 8)).forth(rc, request(Opcode::kRcFlush, 2, 0, 8));
  s.forth(rc, request(Opcode::kRcAtomicWrite, 3, 8, 8));
  s.after(4)
      .back(rc, response(Opcode::kRcReadResponseOnly, 2, 0, 2))
      .back(rc, response(Opcode::kRcReadResponseOnly, 3, 0, 3));
}

// ICRC over IPv4, IPv6, VLAN and VXLAN, right and wrong; wrong IPv4 header checksums.
void envelopes(const std::string& directory) {
  Script s(directory, "envelopes");
  const Connection v4{0x71, 0x81}, v6{0x72, 0x82, true};
  uint32_t psn = 1;
  for (const bool bad : {false, true}) {
    for (const Connection& c : {v4, v6}) {
      for (int wrapping = 0; wrapping < 4; ++wrapping) {
        Packet p = request(Opcode::kRcSendOnly, psn + static_cast<uint32_t>(wrapping), 9);
        p.bad_icrc = bad;
        p.vlan = (wrapping & 1) != 0;
        p.vxlan = (wrapping & 2) != 0;
        s.forth(c, p);
      }
    }
    psn += 4;
  }
  for (const bool vxlan : {false, true}) {
    Packet p = request(Opcode::kRcSendOnly, psn++, 9);
    p.bad_ip_checksum = true;
    p.vxlan = vxlan;
    s.forth(v4, p);
  }
}

void malformed(const std::string& directory) {
  Script s(directory, "malformed");
  const auto& c = kConnection;
  s.forth(c, request(Opcode::kRcSendOnly, 1, 8));
  s.forth(c, {.opcode = Opcode::kRcSendOnly, .psn = 2, .size = 8, .captured = 42 + 20});  // cut by the capture
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 3, .size = 8, .dma = 8, .captured = 42 + 20});
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 4, .size = 8, .dma = 8, .captured = 42 + 5});
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 5, .size = 8, .dma = 8, .captured = 42});
  s.forth(c, {.opcode = Opcode::kRcWriteOnly, .psn = 6, .dma = 0, .udp_cut = 10});  // ends in its RETH
  s.forth(c, {.opcode = Opcode::kRcSendOnly, .psn = 7, .udp_cut = 10});             // ends in its BTH
  s.forth(c, {.opcode = Opcode{0x44}, .psn = 8, .size = 8});                        // RD, which nobody has
  s.forth(c, {.opcode = Opcode{0xff}, .psn = 8});
  s.forth(c, {.opcode = Opcode::kRcSendOnly, .psn = 9, .size = 8, .tver = 1});
  s.forth(c, {.opcode = Opcode::kRcSendOnly, .psn = 10, .size = 0, .pad = 3});
  s.forth(c, {.opcode = Opcode::kRcReadRequest, .psn = 11, .size = 8, .dma = 8});
  s.forth(c, {.opcode = Opcode::kRcSendOnly, .psn = 12, .size = 64, .fragment = 0x2000});  // the first fragment
  s.forth(c, request(Opcode::kRcSendOnly, 2, 8));
}

// Streams without a CM exchange: two pairs with the same PSNs, then QPNs used again, then one that the source port does
// not tell.
void streams(const std::string& directory) {
  Script s(directory, "streams");
  const Connection first{0x1001, 0x2001}, second{0x1002, 0x2002}, third{0x1003, 0x2003, false, 0xdead};
  for (const Connection& c : {first, second}) s.forth(c, request(Opcode::kRcSendOnly, 77, 4));
  s.after(5);
  for (const Connection& c : {second, first}) s.back(c, acknowledge(77, ack(1)));
  for (const Connection& c : {first, second}) s.forth(c, request(Opcode::kRcSendOnly, 78, 4));
  s.after(5);
  for (const Connection& c : {first, second}) s.back(c, acknowledge(78, ack(2)));
  s.after(1e6)
      .forth(first, request(Opcode::kRcSendOnly, 0x800000, 4))
      .after(5)
      .back(first, acknowledge(0x800000, ack(1)));
  s.forth(third, request(Opcode::kRcSendOnly, 4000, 4)).after(5).back(third, acknowledge(4000, ack(1)));
  // Both from PSN 0 on, as many applications do, and the port does not tell either: the second answer of one decides.
  const Connection busy{0x1004, 0x2004, false, 0xdead}, idle{0x1005, 0x2005, false, 0xdead};
  for (uint32_t psn = 0; psn < 3; ++psn) s.forth(busy, request(Opcode::kRcSendOnly, psn, 4));
  s.forth(idle, request(Opcode::kRcSendOnly, 0, 4));
  s.back(idle, acknowledge(0, ack(1))).back(busy, acknowledge(0, ack(1))).back(busy, acknowledge(2, ack(3)));
  s.forth(idle, request(Opcode::kRcSendOnly, 1, 4)).back(idle, acknowledge(1, ack(2)));
}

// A MAD of the communication management with a body that counts up, and these bytes of it.
struct Patch {
  size_t at;
  std::vector<uint8_t> bytes;
};
Packet mad(uint16_t attribute, uint32_t psn, const std::vector<Patch>& patches) {
  constexpr size_t kHeader = 24;
  std::vector<uint8_t> bytes(256);
  for (size_t i = kHeader; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i - kHeader);
  bytes[0] = 1;
  bytes[1] = 7;
  bytes[2] = 2;
  bytes[3] = 3;
  wire::store_be16(&bytes[16], attribute);
  for (const Patch& patch : patches) {
    std::copy(patch.bytes.begin(), patch.bytes.end(), bytes.begin() + static_cast<ptrdiff_t>(kHeader + patch.at));
  }
  return {.opcode = Opcode::kUdSendOnly, .psn = psn, .destination = 1, .payload = bytes};
}

// REQ and REP name QPs and first PSNs: the first request is known to be missing. Then the messages that the built-in
// dissector does not take apart, one of them cut.
void cm(const std::string& directory) {
  Script s(directory, "cm");
  const Connection gsi{1, 1};
  const Patch rc{43, {0xa0}};
  s.forth(gsi, mad(0x10, 1, {{0, {0xaa, 0, 0, 1}}, {32, {0, 0x91, 0x01}}, {44, {0, 0x05, 0x00}}, rc}));
  s.back(gsi, mad(0x11, 1, {{8, {0x40, 0xc0}}}));
  s.back(gsi, mad(0x13, 2, {{4, {0xaa, 0, 0, 1}}, {12, {0, 0x91, 0x02}}, {20, {0, 0x07, 0x00}}}));
  const Connection c{0x9101, 0x9102, false, 0xbeef};
  s.forth(c, request(Opcode::kRcSendOnly, 0x701, 4)).back(c, acknowledge(0x700, nak(NakCode::kPsnSequenceError, 0)));
  s.back(c, request(Opcode::kRcSendOnly, 0x500, 4));
  for (const uint16_t attribute : {0x17, 0x18, 0x19, 0x1a, 0x12, 0x14, 0x15, 0x16}) s.forth(gsi, mad(attribute, 9, {}));
  Packet cut = mad(0x19, 10, {});
  cut.captured = 42 + 20 + 24 + 30;
  s.forth(gsi, cut);
  // The same QPs again, with other PSNs.
  s.forth(gsi, mad(0x10, 11, {{0, {0xaa, 0, 0, 2}}, {32, {0, 0x91, 0x01}}, {44, {0, 0x05, 0x80}}, rc}));
  s.back(gsi, mad(0x13, 12, {{4, {0xaa, 0, 0, 2}}, {12, {0, 0x91, 0x02}}, {20, {0, 0x07, 0x80}}}));
  s.forth(c, request(Opcode::kRcSendOnly, 0x780, 4)).back(c, acknowledge(0x780, ack(1)));
}

// --- whole exchanges

Packet message(const wire::CmMessage& cm, uint64_t transaction) {
  const wire::Mad mad = wire::emit_cm({.transaction = wire::TransactionId{transaction}, .modifier = 0, .message = cm});
  return {.opcode = Opcode::kUdSendOnly, .psn = 0, .destination = 1, .payload = {mad.begin(), mad.end()}};
}
template <class Message>
Message with_ids(uint32_t own, uint32_t other) {
  Message m;
  m.local_id = wire::CommId{own};
  m.remote_id = wire::CommId{other};
  return m;
}
wire::Req cm_req(uint32_t id, uint16_t port) {
  wire::Req req;
  req.local_id = wire::CommId{id};
  req.service_id = wire::service_id(wire::PortSpace::kTcp, port);
  req.qpn = wire::Qpn(0x9101);
  req.starting_psn = wire::Psn(0x500);
  wire::CmaHeader names;
  names.source_port = 40001;
  names.emit(req.private_data.data());
  return req;
}

// One that is established and ended, with everything that can be late; one that is rejected; one that nobody answers;
// an id that is used again; SIDR, refused; answers to what was not captured.
void cm_exchanges(const std::string& directory) {
  Script s(directory, "cm-exchanges");
  const Connection gsi{1, 1}, c{0x9101, 0x9102, false, 0xbeef};
  const uint32_t a = 0xaa000001, b = 0xbb000001;
  s.forth(gsi, message(cm_req(a, 7471), 1)).after(6'000'000).forth(gsi, message(cm_req(a, 7471), 1));
  s.after(50).back(gsi, message(with_ids<wire::Mra>(b, a), 1));
  auto rep = with_ids<wire::Rep>(b, a);
  rep.qpn = wire::Qpn(0x9102);
  rep.starting_psn = wire::Psn(0x700);
  s.after(100).back(gsi, message(rep, 1)).after(20).forth(gsi, message(with_ids<wire::Rtu>(a, b), 1));
  s.forth(c, request(Opcode::kRcSendOnly, 0x700, 4)).back(c, acknowledge(0x700, ack(1)));
  s.forth(gsi, message(with_ids<wire::Dreq>(a, b), 2)).after(30).back(gsi, message(with_ids<wire::Drep>(b, a), 2));

  auto rej = with_ids<wire::Rej>(0, 0xaa000002);
  rej.reason = wire::RejReason::kServiceId;
  s.forth(gsi, message(cm_req(0xaa000002, 7472), 3)).after(40).back(gsi, message(rej, 3));
  for (int i = 0; i < 3; ++i) s.after(6'000'000).forth(gsi, message(cm_req(0xaa000003, 7473), 4));
  s.forth(gsi, message(cm_req(0xaa000003, 7474), 5));

  wire::SidrReq sidr;
  sidr.request_id = wire::CommId{0xaa000004};
  sidr.service_id = wire::service_id(wire::PortSpace::kUdp, 7475);
  wire::SidrRep refusal;
  refusal.request_id = sidr.request_id;
  refusal.status = wire::SidrStatus::kUnsupported;
  s.forth(gsi, message(sidr, 6)).back(gsi, message(refusal, 6));

  s.back(gsi, message(with_ids<wire::Rtu>(0xbb000009, 0xaa000009), 7));
  s.forth(gsi, message(with_ids<wire::Dreq>(0xaa000008, 0xbb000008), 8));
  s.back(gsi, message(with_ids<wire::Drep>(0xbb000008, 0xaa000008), 8));
}

// Frames of several packets, as they are captured in front of segmentation offload: a message; WRITEs of one size over
// IPv6; one with a packet that was corrupted, and sent again.
void batches(const std::string& directory) {
  Script s(directory, "batches");
  const auto& c = kConnection;
  s.begin_batch();
  send_message(s, 100, 4);
  s.end_batch().after(10).back(c, acknowledge(103, ack(1)));
  const Connection v6{0x103, 0x204, true};
  s.begin_batch();
  for (uint32_t psn = 0; psn < 3; ++psn) s.forth(v6, request(Opcode::kRcWriteOnly, psn, 64, 64));
  s.end_batch().after(10).back(v6, acknowledge(2, ack(3)));
  s.begin_batch();
  for (uint32_t psn = 104; psn < 107; ++psn) {
    Packet packet = request(Opcode::kRcSendOnly, psn, 32);
    packet.bad_icrc = psn == 105;
    s.forth(c, packet);
  }
  s.end_batch().after(10).back(c, acknowledge(105, nak(NakCode::kPsnSequenceError, 2)));
  s.begin_batch();
  for (uint32_t psn = 105; psn < 107; ++psn) s.forth(c, request(Opcode::kRcSendOnly, psn, 32));
  s.end_batch().after(10).back(c, acknowledge(106, ack(4)));
}

}  // namespace
}  // namespace uroce::golden

int main(int argc, char** argv) {
  using namespace uroce::golden;
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_golden DIRECTORY\n");
    return 2;
  }
  const auto captures = {clean,      nak_at_sender, nak_at_receiver, timeout, rnr,          read_replay,
                         duplicates, violations,    fatal_naks,      cnp,     ud_and_uc,    xrc_and_newer,
                         envelopes,  malformed,     streams,         cm,      cm_exchanges, batches};
  for (const auto& write : captures) write(argv[1]);
  return 0;
}
