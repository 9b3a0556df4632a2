// SPDX-License-Identifier: BSD-2-Clause
// An unreliable datagram QP: messages of one packet to and from any QP whose Q_Key fits (IBTA 9.8.3).
#pragma once

#include "engine/transport/common/congestion_endpoint.h"
#include "engine/transport/unreliable/unreliable_qp.h"

namespace uroce::transport {

class UdQp final : public UnreliableQp {
 public:
  explicit UdQp(const QpConfig& config) : UnreliableQp(config), congestion_(qp_) {}

  void on_packet(const wire::Packet& packet, Time now) override;
  void on_congestion_mark(Time) override { qp_.counters.add(Counter::kRxCongestionMarks); }
  Agenda agenda(Time now) const override {
    const bool has_packets = sending() && requester_.wants_to_send();
    const bool allowed = now >= congestion_.resume_at();
    return {.send = has_packets && allowed, .deadline = has_packets && !allowed ? congestion_.resume_at() : kNever};
  }
  bool pull(io::TxPacket& out, Time now) override;
  bool exhausted() const override { return requester_.exhausted(); }
  Position position() const override { return {requester_.next(), {}}; }
  uint32_t next_address_handle() override;
  wire::Qpn next_remote() const override { return requester_.next_remote(); }

 private:
  void enter(QpState state) override;
  bool place(const wire::Packet& packet);

  CongestionEndpoint congestion_;
};

}  // namespace uroce::transport
