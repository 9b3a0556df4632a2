// An unreliable datagram QP: messages of one packet to and from any QP whose Q_Key fits (IBTA 9.8.3).
#pragma once

#include "engine/transport/unreliable/unreliable_qp.h"

namespace uroce::transport {

class UdQp final : public UnreliableQp {
 public:
  explicit UdQp(const QpConfig& config) : UnreliableQp(config) {}

  void on_packet(const wire::Packet& packet, Time now) override;
  void on_congestion_mark(Time) override { qp_.counters.add(Counter::kRxCongestionMarks); }
  Agenda agenda(Time) const override { return {.send = sending() && sender_.wants_to_send(), .state = state()}; }
  bool pull(io::TxPacket& out, Time now) override;
  uint32_t next_address_handle() override;

 private:
  bool place(const wire::Packet& packet);
};

}  // namespace uroce::transport
