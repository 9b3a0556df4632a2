// SPDX-License-Identifier: BSD-2-Clause
// A packet as the peer of the QP under test would send it, made field by field, also where that breaks the rules.
// For the tests of the transport.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "wire/packet.h"

namespace uroce::transport::test {

using Bytes = std::vector<uint8_t>;

// `size` bytes that differ from their neighbours and, by `seed`, from other messages.
inline Bytes pattern(size_t size, uint32_t seed = 1) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(seed * 37 + i * 11 + i / 251);
  return bytes;
}

inline Bytes part(const Bytes& bytes, size_t offset, size_t size) {
  return Bytes(bytes.begin() + static_cast<ptrdiff_t>(offset), bytes.begin() + static_cast<ptrdiff_t>(offset + size));
}

// Payload and pad default to what the opcode needs at least: nothing, and zeros up to a multiple of four.
class PeerPacket {
 public:
  PeerPacket(wire::Opcode opcode, uint32_t psn) : info_(wire::opcode_info(opcode)) {
    bth_.opcode = opcode;
    bth_.psn = wire::Psn(psn);
  }

  PeerPacket& ack_request() { return bth_.ack_request = true, *this; }
  PeerPacket& solicited() { return bth_.solicited = true, *this; }
  PeerPacket& payload(Bytes bytes) {
    bth_.pad = static_cast<uint8_t>(-bytes.size() & 3);
    return payload_ = std::move(bytes), *this;
  }
  PeerPacket& pad(uint8_t pad) { return bth_.pad = pad, *this; }
  PeerPacket& reth(uint64_t va, uint32_t rkey, uint32_t length) { return reth_ = {va, rkey, length}, *this; }
  PeerPacket& aeth(uint8_t syndrome, uint32_t msn = 0) { return aeth_ = {syndrome, wire::Msn(msn)}, *this; }
  PeerPacket& atomic(uint64_t va, uint32_t rkey, uint64_t swap_add, uint64_t compare = 0) {
    return atomic_ = {va, rkey, swap_add, compare}, *this;
  }
  PeerPacket& original(uint64_t value) { return original_ = {value}, *this; }
  PeerPacket& immediate(uint32_t network_value) { return immdt_ = {network_value}, *this; }
  PeerPacket& srqn(uint32_t number) { return xrceth_ = {number}, *this; }
  PeerPacket& datagram(uint32_t qkey, uint32_t source_qpn) { return deth_ = {qkey, wire::Qpn(source_qpn)}, *this; }
  PeerPacket& flush(uint8_t placement_type, uint8_t selectivity) {
    return feth_ = {placement_type, selectivity}, *this;
  }
  PeerPacket& invalidate(uint32_t rkey) { return ieth_ = {rkey}, *this; }

  // BTH to ICRC; the transport is not concerned with the ICRC, so it is zero.
  Bytes bytes() const {
    Bytes out(wire::Bth::kSize);
    bth_.emit(out.data());
    if (info_.has_xrceth) append(out, xrceth_);
    if (info_.has_deth) append(out, deth_);
    if (info_.has_feth) append(out, feth_);
    if (info_.has_reth) append(out, reth_);
    if (info_.has_atomic_eth) append(out, atomic_);
    if (info_.has_aeth) append(out, aeth_);
    if (info_.has_atomic_ack_eth) append(out, original_);
    if (info_.has_immdt) append(out, immdt_);
    if (info_.has_ieth) append(out, ieth_);
    if (info_.header_size > out.size()) out.resize(info_.header_size);  // a CNP's reserved bytes
    out.insert(out.end(), payload_.begin(), payload_.end());
    out.resize(out.size() + bth_.pad + wire::kIcrcSize);
    return out;
  }

 private:
  template <class Header>
  static void append(Bytes& out, const Header& header) {
    out.resize(out.size() + Header::kSize);
    header.emit(out.data() + out.size() - Header::kSize);
  }

  const wire::OpcodeInfo& info_;
  wire::Bth bth_;
  wire::Reth reth_;
  wire::Aeth aeth_;
  wire::AtomicEth atomic_;
  wire::AtomicAckEth original_;
  wire::ImmDt immdt_;
  wire::Xrceth xrceth_;
  wire::Deth deth_;
  wire::Feth feth_;
  wire::Ieth ieth_;
  Bytes payload_;
};

// What a responder sends.
inline PeerPacket ack(uint32_t psn) {
  return PeerPacket(wire::Opcode::kRcAcknowledge, psn).aeth(0x1f);
}
inline PeerPacket nak(wire::NakCode code, uint32_t psn) {
  return PeerPacket(wire::Opcode::kRcAcknowledge, psn).aeth(static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code)));
}
inline PeerPacket rnr_nak(uint32_t psn, uint8_t timer) {
  return PeerPacket(wire::Opcode::kRcAcknowledge, psn).aeth(static_cast<uint8_t>(0x20 | timer));
}
inline PeerPacket read_response(wire::Opcode opcode, uint32_t psn, Bytes payload) {
  return PeerPacket(opcode, psn).aeth(0x1f).payload(std::move(payload));
}
inline PeerPacket atomic_response(uint32_t psn, uint64_t original) {
  return PeerPacket(wire::Opcode::kRcAtomicAcknowledge, psn).aeth(0x1f).original(original);
}

// What a requester sends.
inline PeerPacket request(wire::Opcode opcode, uint32_t psn, Bytes payload = {}) {
  return PeerPacket(opcode, psn).payload(std::move(payload));
}
inline PeerPacket read_request(uint32_t psn, uint64_t va, uint32_t rkey, uint32_t length) {
  return PeerPacket(wire::Opcode::kRcReadRequest, psn).reth(va, rkey, length).ack_request();
}

}  // namespace uroce::transport::test
