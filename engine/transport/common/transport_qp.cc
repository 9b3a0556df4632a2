// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/transport_qp.h"

#include <cerrno>

namespace uroce::transport {

namespace {

int check_values(const QpAttributes& a, uint32_t mask) {
  if ((mask & kQpPathMtu) && a.path_mtu != 256 && a.path_mtu != 512 && a.path_mtu != 1024 && a.path_mtu != 2048 &&
      a.path_mtu != 4096) {
    return EINVAL;
  }
  if ((mask & kQpTimeout) && a.timeout > 31) return EINVAL;
  if ((mask & kQpMinRnrTimer) && a.min_rnr_timer > 31) return EINVAL;
  if ((mask & kQpRetryCount) && a.retry_count > 7) return EINVAL;
  if ((mask & kQpRnrRetry) && a.rnr_retry > 7) return EINVAL;
  if ((mask & kQpMaxDestRdAtomic) && a.max_dest_rd_atomic > kMaxRdAtomic) return EINVAL;
  if ((mask & kQpMaxRdAtomic) && a.max_rd_atomic > kMaxRdAtomic) return EINVAL;
  return 0;
}

}  // namespace

bool TransportQp::on_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now) {
  wire::Packet packet = previous;
  for (const uint8_t* const payload : payloads) {
    ++packet.bth.psn;
    packet.payload = {payload, previous.payload.size()};
    on_packet(packet, now);
  }
  return false;
}

int TransportQp::modify(const QpAttributes& attributes, uint32_t mask, Time now) {
  qp_.now = now;
  const QpState from = state();
  const QpState to = (mask & kQpState) ? attributes.state : from;
  if ((mask & kQpCurrentState) && attributes.current_state != from) return EINVAL;
  // UD has no such attribute; the engine says with it what the port takes.
  const uint32_t asked = qp_.type == QpType::kUd ? mask & ~uint32_t{kQpPathMtu} : mask;
  if (const int error = check_transition(qp_.type, from, to, asked); error != 0) return error;
  if (const int error = check_values(attributes, mask); error != 0) return error;
  if ((mask & kQpMaxDestRdAtomic) && attributes.max_dest_rd_atomic > answers_remembered()) return ENOMEM;
  if (to == QpState::kSqd && from != to) qp_.attr.en_sqd_async_notify = false;  // of each transition of its own
  apply_attributes(qp_.attr, attributes, mask);
  if (mask & kQpSqPsn) start_sending();
  qp_.attr.state = to;
  if (to == QpState::kReset) qp_.attr = QpAttributes{};
  if (to != from) enter(to);
  settle(Outcome::kGoesOn);
  return 0;
}

}  // namespace uroce::transport
