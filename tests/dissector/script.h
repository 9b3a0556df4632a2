// SPDX-License-Identifier: BSD-2-Clause
// Captures written down packet by packet: who sends what when, and what is wrong with it. Used by make_golden.cc.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "pcapng/pcapng_writer.h"
#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/envelope.h"
#include "wire/feth.h"
#include "wire/icrc.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/ip_udp.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace uroce::golden {

using wire::Opcode;

struct Packet {
  Opcode opcode{};
  uint32_t psn = 0;
  uint32_t size = 0;  // payload; its bytes count up
  uint32_t dma = 0;   // RETH length
  wire::Aeth aeth{};
  bool ack_request = false;
  bool becn = false;
  uint8_t tver = 0;
  int pad = -1;  // else what PadCnt says
  uint32_t srqn = 0x77;
  uint32_t destination = 0;        // QPN; 0: the connection's
  std::vector<uint8_t> payload{};  // instead of `size` bytes
  // Around it.
  uint8_t traffic_class = 0;
  int ip_id = -1;  // else the next one of the sender
  bool bad_icrc = false;
  bool bad_ip_checksum = false;  // IPv4
  uint16_t fragment = 0;         // flags and offset of the IPv4 header
  bool vlan = false;
  bool vxlan = false;
  uint32_t captured = 0;  // bytes of the frame that are kept; 0: all
  uint32_t udp_cut = 0;   // bytes missing at the end of the datagram, lengths adjusted
};

// A connection between host 1 and host 2. `a` is the QPN at host 1.
struct Connection {
  uint32_t a, b;
  bool v6 = false;
  uint16_t source_port = 0;  // 0: what Linux would take
};

class Script {
 public:
  Script(const std::string& directory, const std::string& name) : Script(directory + "/" + name + ".pcapng") {}
  explicit Script(const std::string& path) : file_(path, std::ios::binary), writer_(file_, "uroce tests") {
    writer_.add_interface("script");
  }
  uint64_t bytes_written() const { return writer_.bytes_written(); }

  // Microseconds pass.
  Script& after(double microseconds) {
    now_ += std::chrono::nanoseconds(static_cast<int64_t>(microseconds * 1000));
    return *this;
  }
  // From host 1 to host 2, or back. One microsecond passes before.
  Script& forth(const Connection& c, const Packet& packet) { return send(c, packet, true); }
  Script& back(const Connection& c, const Packet& packet) { return send(c, packet, false); }
  // What is sent until the end stands in one frame, behind the headers of the first packet (wire/segment_batch.h).
  Script& begin_batch() {
    in_batch_ = true;
    return *this;
  }
  Script& end_batch() {
    in_batch_ = false;
    write(batch_envelope_, batch_, {});
    batch_.clear();
    return *this;
  }

 private:
  static uint16_t linux_port(uint64_t a, uint64_t b) {
    uint64_t v = a * b;
    v ^= v >> 20;
    v ^= v >> 40;
    return static_cast<uint16_t>((((v & 0x3fff) ^ ((v & 0xfc000) >> 14)) | 0xc000) & 0xffff);
  }

  static wire::IpAddress address(bool v6, uint8_t host) {
    if (!v6) {
      const uint8_t four[4] = {192, 0, 2, host};
      return wire::IpAddress::v4(four);
    }
    wire::IpAddress a;
    a.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host};
    return a;
  }

  static std::vector<uint8_t> headers(const Connection& c, const Packet& p, bool forth, uint8_t pad) {
    const wire::OpcodeInfo& info = wire::opcode_info(p.opcode);
    std::vector<uint8_t> out(64);
    uint8_t* at = out.data();
    wire::Bth bth{.opcode = p.opcode, .pad = pad, .tver = p.tver, .becn = p.becn};
    bth.dest_qp = wire::Qpn(p.destination != 0 ? p.destination : forth ? c.b : c.a);
    bth.ack_request = p.ack_request;
    bth.psn = wire::Psn(p.psn);
    const auto emit = [&at](bool has, const auto& header) {
      if (!has) return;
      header.emit(at);
      at += std::decay_t<decltype(header)>::kSize;
    };
    emit(true, bth);
    emit(info.has_xrceth, wire::Xrceth{p.srqn});
    emit(info.has_deth, wire::Deth{0x11111111, wire::Qpn(forth ? c.a : c.b)});
    emit(info.has_feth, wire::Feth{wire::Feth::kPersistence, wire::Feth::kRange});
    emit(info.has_reth, wire::Reth{0x1000200030004000, 0x55667788, p.dma});
    emit(info.has_atomic_eth, wire::AtomicEth{0x1000200030004000, 0x55667788, 1, 2});
    emit(info.has_aeth, p.aeth);
    emit(info.has_atomic_ack_eth, wire::AtomicAckEth{0x42});
    emit(info.has_immdt, wire::ImmDt{0x01020304});
    emit(info.has_ieth, wire::Ieth{0x99});
    out.resize(static_cast<size_t>(at - out.data()));
    if (p.opcode == Opcode::kCnp) out.resize(out.size() + wire::kCnpReservedSize);
    return out;
  }

  Script& send(const Connection& c, const Packet& p, bool forth) {
    after(1);
    std::vector<uint8_t> payload = p.payload;
    if (payload.empty()) {
      for (uint32_t i = 0; i < p.size; ++i) payload.push_back(static_cast<uint8_t>(i + p.psn));
    }
    const auto real_pad = static_cast<uint8_t>(-payload.size() & 3);
    std::vector<uint8_t> ib = headers(c, p, forth, p.pad < 0 ? real_pad : static_cast<uint8_t>(p.pad));
    ib.insert(ib.end(), payload.begin(), payload.end());
    ib.insert(ib.end(), real_pad, 0);
    wire::Envelope envelope{.source_mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(forth ? 1 : 2)},
                            .destination_mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(forth ? 2 : 1)},
                            .source = address(c.v6, forth ? 1 : 2),
                            .destination = address(c.v6, forth ? 2 : 1)};
    envelope.source_port = c.source_port != 0 ? c.source_port : linux_port(c.a, c.b);
    envelope.ip_id = p.ip_id >= 0 ? static_cast<uint16_t>(p.ip_id) : ip_ids_[forth]++;
    envelope.traffic_class = p.traffic_class;
    const uint32_t icrc = wire::icrc(envelope, ib) ^ (p.bad_icrc ? 0x01000000 : 0);
    ib.resize(ib.size() + 4);
    wire::store_le32(ib.data() + ib.size() - 4, icrc);
    ib.resize(ib.size() - p.udp_cut);
    if (!in_batch_) {
      write(envelope, ib, p);
      return *this;
    }
    if (batch_.empty()) batch_envelope_ = envelope;
    batch_.insert(batch_.end(), ib.begin(), ib.end());
    return *this;
  }

  static std::vector<uint8_t> frame_of(const wire::Envelope& envelope, const std::vector<uint8_t>& ib) {
    std::vector<uint8_t> frame(wire::kMaxFrameHeaderSize);
    frame.resize(wire::emit_frame_headers(envelope, static_cast<uint32_t>(ib.size() + wire::kUdpSize), frame.data()));
    frame.insert(frame.end(), ib.begin(), ib.end());
    return frame;
  }

  void write(const wire::Envelope& envelope, const std::vector<uint8_t>& ib, const Packet& p) {
    std::vector<uint8_t> frame = frame_of(envelope, ib);
    if (p.bad_ip_checksum) frame[wire::kEthernetSize + 10] ^= 1;
    if (p.fragment != 0) wire::store_be16(&frame[wire::kEthernetSize + 6], p.fragment);
    if (p.vlan) {
      const uint8_t tag[] = {0x81, 0x00, 0x00, 0x2a};
      frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    }
    if (p.vxlan) frame = tunnelled(frame);
    const auto whole = static_cast<uint32_t>(frame.size());
    if (p.captured != 0) frame.resize(p.captured);
    writer_.write(0, now_, pcapng::Direction::kUnknown, frame, {}, whole);
  }

  // Ethernet, IPv4, UDP 4789 and VXLAN around it (RFC 7348).
  static std::vector<uint8_t> tunnelled(const std::vector<uint8_t>& inner) {
    std::vector<uint8_t> content = {0x08, 0, 0, 0, 0, 0, 0x2a, 0};
    content.insert(content.end(), inner.begin(), inner.end());
    wire::Envelope outer{.source = address(false, 101), .destination = address(false, 102), .source_port = 50000};
    std::vector<uint8_t> frame = frame_of(outer, content);
    wire::store_be16(&frame[wire::kEthernetSize + wire::kIpv4Size + 2], 4789);
    return frame;
  }

  std::ofstream file_;
  pcapng::PcapngWriter writer_;
  Time now_{std::chrono::seconds(1700000000)};
  uint16_t ip_ids_[2] = {0x200, 0x100};
  bool in_batch_ = false;
  wire::Envelope batch_envelope_;
  std::vector<uint8_t> batch_;
};

}  // namespace uroce::golden
