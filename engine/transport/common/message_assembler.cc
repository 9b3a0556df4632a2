// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/message_assembler.h"

#include "engine/memory/memory_access.h"
#include "engine/transport/common/long_packet.h"

namespace uroce::transport {

using wire::Packet;

bool MessageAssembler::length_valid(const Packet& packet) const {
  return has_valid_length(packet, qp_.attr.path_mtu);
}

Arrival MessageAssembler::take(const Packet& packet) {
  const Kind kind = kind_of(packet);
  const Arrival arrival = kind == Kind::kSend ? send(packet) : write(packet);
  if (arrival == Arrival::kTaken || arrival == Arrival::kCompletionLost) kind_ = packet.info->last ? Kind::kNone : kind;
  return arrival;
}

Arrival MessageAssembler::send(const Packet& packet) {
  if (packet.info->first) {
    if (!has_receive()) return Arrival::kNoReceive;
    received_ = 0;
  }
  const auto size = static_cast<uint32_t>(packet.payload.size());
  if (uint64_t{received_} + size > receive_.length()) return Arrival::kTooLong;
  if (!receive_.place(received_, packet.payload)) return Arrival::kReceiveMemory;
  if (packet.info->has_ieth && !qp_.mrs.invalidate(packet.ieth.rkey, qp_.receive.pd, qp_.qpn.value())) {
    return Arrival::kNotInvalidated;
  }
  received_ += size;
  return packet.info->last ? complete(packet) : Arrival::kTaken;
}

// The whole range is checked with the first packet, so that a bad WRITE touches nothing, and every packet's own part
// again, because the region may be gone by then. Zero bytes check nothing (IBTA C9-88).
Arrival MessageAssembler::write(const Packet& packet) {
  if (!fits_write(packet)) return Arrival::kWriteLength;
  if (packet.info->has_immdt && !has_receive()) return Arrival::kNoReceive;
  const auto size = static_cast<uint32_t>(packet.payload.size());
  if (reth_.length != 0) {
    if (!(qp_.attr.access & memory::kRemoteWrite)) return Arrival::kNoAccess;
    const memory::Translation t =
        qp_.mrs.translate_remote(reth_.rkey, qp_.receive.pd, qp_.qpn.value(), reth_.va + received_,
                                 packet.info->first ? reth_.length : size, memory::kRemoteWrite);
    if (t.result != memory::AccessResult::kOk) return Arrival::kNoAccess;
    if (!memory::copy(t.address, packet.payload.data(), size)) return Arrival::kMemoryLost;
  }
  received_ += size;
  return packet.info->has_immdt ? complete(packet) : Arrival::kTaken;
}

bool MessageAssembler::take_middle_packets(const Packet& previous, std::span<const uint8_t* const> payloads) {
  const size_t size = previous.payload.size();
  const uint64_t end = received_ + payloads.size() * size;
  if (kind_ == Kind::kSend) {
    if (end > receive_.length() || !receive_.place_pieces(received_, payloads, size)) return false;
  } else {
    if (end >= reth_.length || !write_middle_packets(payloads, size)) return false;
  }
  received_ = static_cast<uint32_t>(end);
  return true;
}

bool MessageAssembler::write_middle_packets(std::span<const uint8_t* const> payloads, size_t size) const {
  if (!(qp_.attr.access & memory::kRemoteWrite)) return false;
  const memory::Translation t = qp_.mrs.translate_remote(
      reth_.rkey, qp_.receive.pd, qp_.qpn.value(), reth_.va + received_, payloads.size() * size, memory::kRemoteWrite);
  return t.result == memory::AccessResult::kOk && memory::copy_pieces(t.address, payloads, size);
}

Arrival MessageAssembler::complete(const Packet& packet) {
  return receive_.complete(packet, received_) == Outcome::kGoesOn ? Arrival::kTaken : Arrival::kCompletionLost;
}

bool MessageAssembler::fits_write(const Packet& packet) {
  if (packet.info->first) {
    if (packet.reth.length > uint64_t{1} << 31) return false;  // IBTA 9.7.4.1.5
    reth_ = packet.reth;
    received_ = 0;
  }
  const uint64_t end = received_ + packet.payload.size();
  return packet.info->last ? end == reth_.length : end < reth_.length;
}

}  // namespace uroce::transport
