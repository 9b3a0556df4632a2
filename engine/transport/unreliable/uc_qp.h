// An unreliable connected QP: SENDs and WRITEs of any length in order, without acknowledgements. What is lost takes its
// message along (IBTA 9.8).
#pragma once

#include "engine/transport/common/congestion_endpoint.h"
#include "engine/transport/common/write_target.h"
#include "engine/transport/unreliable/unreliable_qp.h"

namespace uroce::transport {

class UcQp final : public UnreliableQp {
 public:
  explicit UcQp(const QpConfig& config) : UnreliableQp(config), write_(qp_), congestion_(qp_) {}

  void on_packet(const wire::Packet& packet, Time now) override;
  void on_congestion_mark(Time now) override;
  bool wants_to_send(Time now) const override;
  bool pull(io::TxPacket& out, Time now) override;
  Time deadline() const override;

 private:
  // What the request packets so far have begun.
  enum class Message : uint8_t { kNone, kSend, kWrite };

  void enter(QpState state) override;

  bool in_sequence(const wire::Packet& packet);
  bool length_valid(const wire::Packet& packet) const;
  void on_send(const wire::Packet& packet);
  void on_write(const wire::Packet& packet);
  void drop_message(Counter reason);
  void fail_receive(queue::WcStatus status);

  WriteTarget write_;
  CongestionEndpoint congestion_;
  wire::Psn expected_;
  Message message_ = Message::kNone;
  uint32_t received_ = 0;  // bytes of the SEND so far
  bool communication_established_ = false;
};

}  // namespace uroce::transport
