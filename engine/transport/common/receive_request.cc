// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/receive_request.h"

#include "engine/transport/common/sge_cursor.h"

namespace uroce::transport {

using queue::Cqe;
using queue::WcOpcode;
using queue::WcStatus;

bool ReceiveRequest::take() {
  from_ = qp_.receive;
  taken_ = from_.rq->take(wqe_, qp_.receive_sges);
  if (from_.rq->limit_reached()) qp_.events.on_srq_limit(*from_.rq);
  return taken_;
}

bool ReceiveRequest::place(uint32_t offset, std::span<const uint8_t> data) {
  return scatter(qp_, from_.rq_pd, qp_.receive_sges.first(wqe_.sge_count), offset, data);
}

bool ReceiveRequest::place_pieces(uint32_t offset, std::span<const uint8_t* const> pieces, size_t size) {
  return scatter_pieces(qp_, from_.rq_pd, qp_.receive_sges.first(wqe_.sge_count), offset, pieces, size);
}

Outcome ReceiveRequest::fail(WcStatus status) {
  Cqe cqe;
  cqe.status = status;
  cqe.opcode = WcOpcode::kReceive;
  return push(cqe);
}

Outcome ReceiveRequest::complete(const wire::Packet& packet, uint32_t length) {
  Cqe cqe;
  cqe.opcode =
      packet.info->operation == wire::Operation::kWrite ? WcOpcode::kReceiveRdmaWithImmediate : WcOpcode::kReceive;
  cqe.byte_length = length;
  cqe.solicited = packet.bth.solicited;
  cqe.source_qpn = packet.info->has_deth ? packet.deth.source_qp.value() : qp_.attr.dest_qpn.value();
  if (packet.info->has_deth) {
    cqe.flags = queue::kWcGrh;
    cqe.network_type = packet.envelope->destination.is_v4() ? queue::NetworkType::kIpv4 : queue::NetworkType::kIpv6;
  }
  if (packet.info->has_immdt) {
    cqe.flags |= queue::kWcWithImmediate;
    cqe.immediate_or_rkey = packet.immdt.network_value;
  } else if (packet.info->has_ieth) {
    cqe.flags |= queue::kWcWithInvalidate;
    cqe.immediate_or_rkey = packet.ieth.rkey;
  }
  return push(cqe);
}

Outcome ReceiveRequest::push(Cqe cqe) {
  taken_ = false;
  cqe.wr_id = wqe_.wr_id;
  return qp_.push(*from_.cq, cqe);
}

void ReceiveRequest::flush() {
  if (taken_) static_cast<void>(fail(WcStatus::kFlushError));
  if (qp_.rq_shared) return;  // what is left belongs to the other QPs
  while (take()) static_cast<void>(fail(WcStatus::kFlushError));
}

}  // namespace uroce::transport
