#include "engine/transport/qp_state.h"

#include <cerrno>

namespace uroce::transport {

namespace {

struct Rule {
  QpState from;
  QpState to;
  uint32_t required;
  uint32_t optional;
};

constexpr uint32_t kRtrConnected = kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn;
constexpr uint32_t kRtsOptional =
    kQpCurrentState | kQpAlternatePath | kQpAccessFlags | kQpPathMigState | kQpMinRnrTimer;

constexpr Rule kRcRules[] = {
    {QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {QpState::kInit, QpState::kRtr, kRtrConnected | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAlternatePath | kQpAccessFlags | kQpPkeyIndex},
    {QpState::kRtr, QpState::kRts, kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic, kRtsOptional},
    {QpState::kRts, QpState::kRts, 0, kRtsOptional},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kRtsOptional},
    {QpState::kSqd, QpState::kSqd, 0,
     kQpPort | kQpAddressVector | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic | kQpMaxDestRdAtomic |
         kQpAlternatePath | kQpAccessFlags | kQpPkeyIndex | kQpMinRnrTimer | kQpPathMigState},
};

}  // namespace

int check_transition(QpType type, QpState from, QpState to, uint32_t mask) {
  if (type != QpType::kRc) return EOPNOTSUPP;
  mask &= ~kQpState;
  // CUR_STATE says what the caller believes; it is legal only where a QP can have moved by itself.
  if ((mask & kQpCurrentState) && from != QpState::kRtr && from != QpState::kRts && from != QpState::kSqd &&
      from != QpState::kSqe) {
    return EINVAL;
  }
  if (to == QpState::kReset) return mask == 0 ? 0 : EINVAL;
  if (to == QpState::kErr) return (from != QpState::kReset && (mask & ~kQpCurrentState) == 0) ? 0 : EINVAL;
  for (const Rule& rule : kRcRules) {
    if (rule.from != from || rule.to != to) continue;
    const bool complete = (mask & rule.required) == rule.required;
    const bool clean = (mask & ~(rule.required | rule.optional)) == 0;
    return complete && clean ? 0 : EINVAL;
  }
  return EINVAL;
}

void apply_attributes(QpAttributes& to, const QpAttributes& from, uint32_t mask) {
  if (mask & kQpAccessFlags) to.access = from.access;
  if (mask & kQpPkeyIndex) to.pkey_index = from.pkey_index;
  if (mask & kQpPort) to.port = from.port;
  if (mask & kQpQkey) to.qkey = from.qkey;
  if (mask & kQpAddressVector) to.address = from.address;
  if (mask & kQpPathMtu) to.path_mtu = from.path_mtu;
  if (mask & kQpTimeout) to.timeout = from.timeout;
  if (mask & kQpRetryCount) to.retry_count = from.retry_count;
  if (mask & kQpRnrRetry) to.rnr_retry = from.rnr_retry;
  if (mask & kQpRqPsn) to.rq_psn = from.rq_psn;
  if (mask & kQpSqPsn) to.sq_psn = from.sq_psn;
  if (mask & kQpMaxRdAtomic) to.max_rd_atomic = from.max_rd_atomic;
  if (mask & kQpMaxDestRdAtomic) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (mask & kQpMinRnrTimer) to.min_rnr_timer = from.min_rnr_timer;
  if (mask & kQpDestQpn) to.dest_qpn = from.dest_qpn;
  if (mask & kQpPathMigState) to.path_mig_state = from.path_mig_state;
  if (mask & kQpEnSqdAsyncNotify) to.en_sqd_async_notify = from.en_sqd_async_notify;
}

}  // namespace uroce::transport
