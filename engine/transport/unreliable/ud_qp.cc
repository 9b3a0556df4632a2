// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/unreliable/ud_qp.h"

#include "wire/ip_udp.h"

namespace uroce::transport {

using wire::Packet;

void UdQp::enter(QpState to) {
  UnreliableQp::enter(to);
  if (to == QpState::kReset) congestion_.reset();
}

// The path MTU is the port's, as the engine sets it: a message has one packet (IBTA 9.8.3).
//
// A datagram that cannot be taken is lost, and nobody is told (IBTA 9.8.3). A receive buffer that may not be written is
// an error of this side.
void UdQp::on_packet(const Packet& packet, Time now) {
  qp_.now = now;
  if (!receiving()) return qp_.counters.add(Counter::kDropQpState);
  if (packet.info->transport != wire::Transport::kUd) return qp_.counters.add(Counter::kDropWrongTransport);
  if (packet.deth.qkey != qp_.attr.qkey) return qp_.counters.add(Counter::kDropWrongQkey);
  qp_.counters.add(Counter::kRxRequests);
  // Sockets put datagrams together that came in IP fragments, up to 64 KB.
  if (packet.payload.size() > qp_.attr.path_mtu) return qp_.counters.add(Counter::kDropMessage);
  if (!receive_ && !receive_.take()) return qp_.counters.add(Counter::kDropNoReceive);
  const auto length = static_cast<uint32_t>(wire::kGrhSize + packet.payload.size());
  if (length > receive_.length()) return settle(drop_too_long());
  if (place(packet)) return settle(receive_.complete(packet, length));
  static_cast<void>(receive_.fail(queue::WcStatus::kLocalProtectionError));
  settle(Outcome::kFailed);
}

// The payload comes behind 40 bytes with the network header.
bool UdQp::place(const Packet& packet) {
  uint8_t grh[wire::kGrhSize];
  const size_t udp_length = wire::kUdpSize + packet.info->header_size + packet.payload.size() + packet.bth.pad + 4;
  wire::emit_grh_area(*packet.envelope, static_cast<uint32_t>(udp_length), grh);
  return receive_.place(0, grh) && receive_.place(wire::kGrhSize, packet.payload);
}

uint32_t UdQp::next_address_handle() {
  const uint32_t handle = sending() ? requester_.next_address_handle() : 0;
  settle(Outcome::kGoesOn);
  return handle;
}

bool UdQp::pull(io::TxPacket& out, Time now) {
  qp_.now = now;
  if (!sending() || !congestion_.may_send()) return false;
  const bool sent = requester_.pull(out);
  if (sent) congestion_.on_sent(out);
  settle(Outcome::kGoesOn);
  return sent;
}

}  // namespace uroce::transport
