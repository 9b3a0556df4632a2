// SPDX-License-Identifier: BSD-2-Clause
// An unreliable connected QP: SENDs and WRITEs of any length in order, without acknowledgements. What is lost takes its
// message along (IBTA 9.8).
#pragma once

#include "engine/transport/common/congestion_endpoint.h"
#include "engine/transport/common/message_assembler.h"
#include "engine/transport/unreliable/unreliable_qp.h"

namespace uroce::transport {

class UcQp final : public UnreliableQp {
 public:
  explicit UcQp(const QpConfig& config) : UnreliableQp(config), message_(qp_, receive_), congestion_(qp_) {}

  void on_packet(const wire::Packet& packet, Time now) override;
  void on_congestion_mark(Time now) override;
  Agenda agenda(Time now) const override;
  bool pull(io::TxPacket& out, Time now) override;
  bool exhausted() const override { return !congestion_.cnp_pending() && requester_.exhausted(); }
  Position position() const override { return {requester_.next(), expected_}; }

 private:
  void enter(QpState state) override;

  bool in_sequence(const wire::Packet& packet);
  Outcome on_message(const wire::Packet& packet);
  Outcome drop_message(Counter reason);

  MessageAssembler message_;
  CongestionEndpoint congestion_;
  wire::Psn expected_;
  bool communication_established_ = false;
};

}  // namespace uroce::transport
