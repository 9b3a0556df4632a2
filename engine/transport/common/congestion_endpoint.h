// SPDX-License-Identifier: BSD-2-Clause
// A QP's part in congestion control: tells the controller of its destination what it sends and what comes back, waits
// when that says so, and answers congestion marks with CNPs (IBTA annex A17; wire.md "ConnectX and DCQCN").
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/congestion/cnp_generator.h"
#include "engine/io/tx_packet.h"
#include "engine/transport/common/go_back_window.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/common/run_trial.h"
#include "wire/bth.h"
#include "wire/opcode.h"

namespace uroce::transport {

class CongestionEndpoint {
 public:
  explicit CongestionEndpoint(QpContext& qp) : qp_(qp) {}

  void reset() {
    qp_.turn = {};
    qp_.window = congestion::Controller::kWindow;
    resume_at_ = Time::min();
    timed_.reset();
    go_back_ = {};
    since_loss_ = kCalm;
    recovering_ = false;
    cnps_ = congestion::CnpGenerator();
    cnp_pending_ = false;
  }

  void on_cnp() {
    qp_.counters.add(Counter::kRxCnps);
    if (qp_.congestion != nullptr) qp_.congestion->on_cnp(qp_.now);
  }
  void on_mark() {
    if (cnps_.on_ce(qp_.now)) cnp_pending_ = true;
  }

  bool cnp_pending() const { return cnp_pending_; }
  // BECN, PSN 0, to the QP whose packets were marked.
  void pull_cnp(io::TxPacket& out) {
    cnp_pending_ = false;
    out.clear_payload();
    out.priority = true;
    out.reason = io::SendReason::kCnp;
    wire::Bth bth{};
    bth.opcode = wire::Opcode::kCnp;
    bth.becn = true;
    bth.pkey = 0xffff;
    bth.dest_qp = qp_.attr.dest_qpn;
    bth.emit(out.header.data());
    std::fill_n(out.header.begin() + wire::Bth::kSize, wire::kCnpReservedSize, uint8_t{0});
    out.header_size = wire::Bth::kSize + wire::kCnpReservedSize;
    qp_.counters.add(Counter::kTxCnps);
  }

  bool may_send() {
    if (qp_.congestion == nullptr) return true;
    const uint32_t bytes = qp_.attr.path_mtu + kHeaders;
    const bool first = !qp_.turn.taken;
    const bool allowed = qp_.congestion->may_send(qp_.turn, bytes, qp_.now);
    qp_.window = qp_.congestion->window(bytes).value_or(usual_window());
    resume_at_ = allowed ? Time::min() : qp_.congestion->resume_at(qp_.turn);
    if (!allowed && first) qp_.counters.add(Counter::kPaced);
    return allowed;
  }
  // When may_send() is worth asking, after it was false.
  Time resume_at() const { return resume_at_; }

  // The answer of may_send() may be another one after each packet.
  bool paced() const { return qp_.congestion != nullptr && qp_.congestion->controlled(); }

  // `in_flight`: request packets that were before it. `count`: it, and the ones behind it that differ from it in PSN
  // and place only and ask for no acknowledgement; more than one only where nothing is paced.
  void on_sent(const io::TxPacket& packet, uint32_t in_flight = 0, uint32_t count = 1) {
    if (qp_.congestion == nullptr) return;
    qp_.congestion->on_sent(qp_.turn, count * packet.udp_length(), qp_.now);
    resume_at_ = Time::min();
    const wire::Bth bth = wire::Bth::parse(wire::BthView::at(packet.header.data()));
    const wire::OpcodeInfo& info = wire::opcode_info(bth.opcode);
    if (!info.request) return;
    const bool again = packet.reason != io::SendReason::kFirst;
    if (!again) {
      go_back_.on_new_packet();
      recovering_ = false;
    }
    if (packet.reason == io::SendReason::kPsnNak && in_flight == 0) {
      go_back_.on_lost();
      if (!std::exchange(recovering_, true)) since_loss_ = 0;
    }
    if (!info.has_payload) go_back_.on_read();
    full_packets_ = packet.payload_size >= qp_.attr.path_mtu || !info.has_payload;
    // Karn: its acknowledgement may be for either packet.
    if (again && timed_ && wire::Psn::distance(bth.psn, timed_->psn) >= 0) timed_.reset();
    // READs and atomics are not measured: their answers wait for each other.
    if (!timed_ && !again && bth.ack_request && info.has_payload) {
      timed_ = Timed{bth.psn + (packet.psns - 1), in_flight + packet.psns, qp_.now};
    }
  }

  // Request packets from `first` to before `end` have been acknowledged.
  void on_acknowledged(wire::Psn first, wire::Psn end) {
    if (qp_.congestion == nullptr || first == end) return;
    const uint64_t packets = end.offset_from(first);
    go_back_.on_acknowledged(packets);
    since_loss_ = std::min(since_loss_ + packets, kCalm);
    Duration rtt{};
    if (timed_ && wire::Psn::distance(timed_->psn, end) > 0) {
      rtt = qp_.now - timed_->at;
      go_back_.on_round_trip(rtt, timed_->in_flight);
      timed_.reset();
    }
    if (qp_.congestion->on_acknowledged(packets * qp_.attr.path_mtu, rtt, qp_.now)) {
      qp_.counters.add(Counter::kRateCuts);
    }
  }

 private:
  static constexpr uint64_t kCalm = 4096;      // packets
  static constexpr uint32_t kLongPackets = 6;  // in flight: one is written, one is read, and answers are under way
  static constexpr uint32_t kHeaders = 60;     // about, of Ethernet to ICRC

  // What runs cost is counted in runs: to send many packets again is cheaper than to send short runs.
  bool in_runs() const { return qp_.run_trial != nullptr && qp_.run_trial->allowed(qp_.now); }
  uint32_t usual_window() const {
    const uint32_t window = in_runs() ? run_window() : go_back_.window();
    return qp_.most_psns == 1 ? window : std::max(window, kLongPackets * qp_.most_psns);
  }
  // Four runs of full packets at least, so that others are under way while the peer takes one and acknowledges it. With
  // each may go the first two packets of a WRITE, a run of their own since the first is longer than all others. Of
  // short packets fewer, so that some wait and leave together; and after a loss, since the peer's receive buffer may
  // have no room for more.
  uint32_t run_window() const {
    const bool large = full_packets_ && since_loss_ >= kCalm;
    return large ? std::max(congestion::Controller::kWindow, 4 * (qp_.run + 2)) : congestion::Controller::kWindow;
  }

  // One packet at a time, of those that ask for an acknowledgement.
  struct Timed {
    wire::Psn psn;
    uint32_t in_flight;  // with it
    Time at;
  };

  QpContext& qp_;
  Time resume_at_ = Time::min();
  std::optional<Timed> timed_;
  GoBackWindow go_back_;
  congestion::CnpGenerator cnps_;
  bool cnp_pending_ = false;
  uint64_t since_loss_ = kCalm;  // packets acknowledged
  bool recovering_ = false;      // from a loss: what was in flight then has not all been sent again
  bool full_packets_ = false;    // so was the last one; or it asked for some
};

}  // namespace uroce::transport
