// SPDX-License-Identifier: BSD-2-Clause
// A reliable connected QP, and the two kinds of QP that XRC makes of it: an initiator has its requesting half, a target
// its responding half with shared receive queues that the requests name (IBTA annex A14).
#pragma once

#include "engine/transport/common/congestion_endpoint.h"
#include "engine/transport/common/transport_qp.h"
#include "engine/transport/reliable/requester.h"
#include "engine/transport/reliable/responder.h"

namespace uroce::transport {

class RcQp final : public TransportQp {
 public:
  explicit RcQp(const QpConfig& config) : TransportQp(config), requester_(qp_), responder_(qp_), congestion_(qp_) {}

  void on_packet(const wire::Packet& packet, Time now) override;
  bool on_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now) override;
  void on_congestion_mark(Time now) override;
  Agenda agenda(Time now) const override;
  bool pull(io::TxPacket& out, Time now) override;
  bool exhausted() const override {
    return !congestion_.cnp_pending() && !responder_.wants_to_send() && requester_.exhausted();
  }
  size_t pull_middle_packets(const io::TxPacket& previous, std::span<io::TxPacket> out, Time now) override;
  bool pull_ack(io::TxPacket& out, Time now) override;
  void on_unreadable(const io::TxPacket& packet, Time now) override;
  void on_posted(Time now) override;
  void on_timer(Time now) override;
  void on_pause(Duration late, Time now) override;
  Position position() const override { return {requester_.unacknowledged(), responder_.expected()}; }
  uint32_t answers_remembered() const override { return responder_.answers_remembered(); }
  void remember_answers_in(std::span<ReplayEntry> room) override { responder_.remember_answers_in(room); }
  void on_srq_destroyed(const queue::ReceiveQueue& srq) override { responder_.on_srq_destroyed(srq); }

 private:
  void enter(QpState state) override;
  void settle(Outcome outcome) override;
  void start_sending() override { requester_.start(qp_.attr.sq_psn); }

  bool take_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now);
  bool answers() const { return qp_.type != QpType::kXrcInitiator; }
  bool asks() const { return qp_.type != QpType::kXrcTarget; }
  bool has_paced_packets(Time now) const;
  bool held_back(Time now) const;
  Time next_timer(bool held) const;

  Requester requester_;
  Responder responder_;
  CongestionEndpoint congestion_;
  bool communication_established_ = false;
  bool drain_reported_ = false;
};

}  // namespace uroce::transport
