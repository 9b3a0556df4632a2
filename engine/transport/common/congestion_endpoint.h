// A QP's part in congestion control: obeys CNPs, and answers congestion marks with CNPs (IBTA annex A17; wire.md
// "ConnectX and DCQCN"). For connected transports.
#pragma once

#include <algorithm>

#include "engine/congestion/cnp_generator.h"
#include "engine/congestion/congestion_control.h"
#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "wire/bth.h"
#include "wire/opcode.h"

namespace uroce::transport {

class CongestionEndpoint {
 public:
  explicit CongestionEndpoint(QpContext& qp) : qp_(qp) {}

  void reset() {
    control_ = congestion::CongestionControl();
    cnps_ = congestion::CnpGenerator();
    cnp_pending_ = false;
  }

  void on_cnp() {
    qp_.counters.add(Counter::kRxCnps);
    control_.on_cnp(qp_.now);
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

  bool may_send() { return control_.may_send(qp_.now); }
  void on_sent(const io::TxPacket& packet) { control_.on_sent(packet.udp_length(), qp_.now); }
  Time resume_at() const { return control_.resume_at(); }

 private:
  QpContext& qp_;
  congestion::CongestionControl control_;
  congestion::CnpGenerator cnps_;
  bool cnp_pending_ = false;
};

}  // namespace uroce::transport
