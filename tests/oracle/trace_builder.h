// SPDX-License-Identifier: BSD-2-Clause
// Traces made by hand: packets that leave and reach one host, with right ICRCs unless a test spoils them, judged by an
// oracle for that host.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "oracle/report.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace uroce::oracle {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Opcode;

inline wire::IpAddress address(uint8_t last) {
  const uint8_t bytes[] = {10, 0, 0, last};
  return wire::IpAddress::v4(bytes);
}

// A packet to make: what its opcode does not have is ignored.
struct Spec {
  Opcode opcode;
  uint32_t psn;
  uint32_t size = 0;  // of the payload
  bool ack = false;
  bool solicited = false;
  wire::Reth reth{};
  wire::Aeth aeth{};
  uint64_t original = 0;  // atomic ACK
  uint8_t fill = 0x5a;    // payload bytes
  uint16_t pkey = 0xffff;
  uint32_t dest_qp = 0;                                // 0: the peer's
  uint8_t peer = 2;                                    // last byte of the other host's address
  std::function<void(std::vector<uint8_t>&)> spoil{};  // the IB bytes before the ICRC is computed
};

inline Spec ack(uint32_t psn, uint32_t msn, uint8_t credits = 31) {
  return {.opcode = Opcode::kRcAcknowledge, .psn = psn, .aeth = wire::Aeth::make_ack(credits, wire::Msn(msn))};
}
inline Spec nak(uint32_t psn, uint32_t msn, wire::NakCode code = wire::NakCode::kPsnSequenceError) {
  return {.opcode = Opcode::kRcAcknowledge, .psn = psn, .aeth = wire::Aeth::make_nak(code, wire::Msn(msn))};
}
inline Spec rnr_nak(uint32_t psn, uint32_t msn, uint8_t timer = 1) {  // 1: 10 us
  return {.opcode = Opcode::kRcAcknowledge, .psn = psn, .aeth = wire::Aeth::make_rnr_nak(timer, wire::Msn(msn))};
}
inline Spec send(uint32_t psn, uint32_t size = 64) {
  return {.opcode = Opcode::kRcSendOnly, .psn = psn, .size = size, .ack = true};
}
inline Spec part(Opcode opcode, uint32_t psn, uint32_t size, uint32_t total = 0) {
  return {.opcode = opcode, .psn = psn, .size = size, .reth = {.va = 0x1000, .rkey = 7, .length = total}};
}
inline Spec write(uint32_t psn, uint32_t size = 64) {
  Spec spec = part(Opcode::kRcWriteOnly, psn, size, size);
  spec.ack = true;
  return spec;
}
inline Spec read(uint32_t psn, uint32_t length, uint64_t va = 0x1000) {
  return {.opcode = Opcode::kRcReadRequest, .psn = psn, .ack = true, .reth = {.va = va, .rkey = 7, .length = length}};
}
inline Spec response(Opcode opcode, uint32_t psn, uint32_t size, uint32_t msn) {
  return {.opcode = opcode, .psn = psn, .size = size, .aeth = wire::Aeth::make_ack(31, wire::Msn(msn))};
}
inline Spec fetch_add(uint32_t psn) {
  return {.opcode = Opcode::kRcFetchAdd, .psn = psn, .ack = true};
}
inline Spec atomic_ack(uint32_t psn, uint32_t msn, uint64_t original = 1) {
  return {.opcode = Opcode::kRcAtomicAcknowledge,
          .psn = psn,
          .aeth = wire::Aeth::make_ack(31, wire::Msn(msn)),
          .original = original};
}

// The IB bytes of a packet, with an empty place for the ICRC.
inline std::vector<uint8_t> ib_bytes(const Spec& spec, wire::Qpn dest_qp) {
  const wire::OpcodeInfo& info = wire::opcode_info(spec.opcode);
  const auto pad = static_cast<uint8_t>((0u - spec.size) & 3);
  std::vector<uint8_t> ib(std::max<size_t>(info.header_size, wire::kBthSize));
  wire::Bth{.opcode = spec.opcode,
            .solicited = spec.solicited,
            .pad = pad,
            .pkey = spec.pkey,
            .dest_qp = dest_qp,
            .ack_request = spec.ack,
            .psn = wire::Psn(spec.psn)}
      .emit(ib.data());
  uint8_t* at = ib.data() + wire::kBthSize;
  if (info.has_reth) spec.reth.emit(at), at += wire::Reth::kSize;
  if (info.has_aeth) spec.aeth.emit(at), at += wire::Aeth::kSize;
  if (info.has_atomic_ack_eth) wire::AtomicAckEth{.original = spec.original}.emit(at);
  ib.insert(ib.end(), spec.size, spec.fill);
  ib.insert(ib.end(), pad, 0);
  if (spec.spoil) spec.spoil(ib);
  return ib;
}

class Trace {
 public:
  static constexpr uint32_t kLocalQpn = 0x101, kRemoteQpn = 0x202;

  // A declared connection: requests of the host from PSN 100 on, of its peer from 500 on, path MTU 256.
  static Attributes usual() {
    Attributes a;
    a.path_mtu = 256;
    a.timeout = 10;  // 4 ms
    a.retry_count = 2;
    a.rnr_retry = 2;
    a.max_rd_atomic = 2;
    a.max_dest_rd_atomic = 2;
    a.sq_psn = wire::Psn(100);
    a.rq_psn = wire::Psn(500);
    return a;
  }
  explicit Trace(const Attributes& attributes = usual(), const Options& options = {}) : oracle(options) {
    oracle.declare(address(1), wire::Qpn(kLocalQpn), address(2), wire::Qpn(kRemoteQpn), attributes);
  }
  // Nothing is declared.
  struct Undeclared {};
  explicit Trace(Undeclared, const Options& options = {}) : oracle(options) { oracle.add_local(address(1)); }

  // Each returns the number of its record, 1 us after the one before.
  uint64_t out(const Spec& spec) { return add(spec, true); }
  uint64_t in(const Spec& spec) { return add(spec, false); }
  void wait(Duration duration) { now += duration; }
  // Inbound with a wrong ICRC.
  uint64_t in_corrupt(const Spec& spec) {
    corrupt_ = true;
    return in(spec);
  }
  uint64_t out_corrupt(const Spec& spec) {
    corrupt_ = true;
    return out(spec);
  }
  // The next packet is cut by the capture to this many bytes.
  void cut(size_t size) { cut_ = size; }
  void ip_id(uint16_t id) { ip_id_ = id; }

  // All violations as "rule@packet", and "rule@end" for those found at the end.
  std::string found() {
    if (!finished_) oracle.finish(now);
    finished_ = true;
    std::string all;
    for (const Violation& violation : oracle.violations()) {
      all +=
          (all.empty() ? "" : " ") + std::string(rule_info(violation.rule).id) + "@" + std::to_string(violation.packet);
    }
    return all;
  }
  std::string texts() const {
    std::string all;
    for (const Violation& violation : oracle.violations()) all += format_violation(violation) + "\n";
    return all;
  }
  Counts counts() const { return oracle.summary().at(0).counts; }

  Oracle oracle;
  Time now{seconds(100)};
  std::vector<pcapng::Record> records;

 private:
  uint64_t add(const Spec& spec, bool out) {
    now += microseconds(1);
    const uint32_t usual_qp = out ? kRemoteQpn : kLocalQpn;
    std::vector<uint8_t> ib = ib_bytes(spec, wire::Qpn(spec.dest_qp != 0 ? spec.dest_qp : usual_qp));
    wire::Envelope envelope;
    envelope.source = out ? address(1) : address(spec.peer);
    envelope.destination = out ? address(spec.peer) : address(1);
    envelope.source_port = 0xc000;
    envelope.ip_id = ip_id_;
    ib.resize(ib.size() + wire::kIcrcSize);
    const auto covered = std::span(ib).first(ib.size() - wire::kIcrcSize);
    wire::store_le32(&ib[covered.size()], wire::icrc(envelope, covered) ^ (corrupt_ ? 1 : 0));
    corrupt_ = false;

    pcapng::Record record;
    record.number = ++number_;
    record.time = now;
    record.direction = out ? pcapng::Direction::kOut : pcapng::Direction::kIn;
    record.frame.resize(wire::frame_header_size(envelope));
    wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), record.frame.data());
    record.frame.insert(record.frame.end(), ib.begin(), ib.end());
    record.original_length = static_cast<uint32_t>(record.frame.size());
    if (cut_ != 0) record.frame.resize(std::min(cut_, record.frame.size()));
    cut_ = 0;
    oracle.add(record);
    records.push_back(std::move(record));
    return number_;
  }

  uint64_t number_ = 0;
  bool corrupt_ = false;
  bool finished_ = false;
  size_t cut_ = 0;
  uint16_t ip_id_ = 0;
};

}  // namespace uroce::oracle
