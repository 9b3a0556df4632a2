// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/common/qp_state.h"

#include <cerrno>

namespace uroce::transport {

namespace {

constexpr uint8_t bit(QpType type) {
  switch (type) {
    case QpType::kRc:
      return 1;
    case QpType::kUc:
      return 2;
    case QpType::kUd:
      return 4;
    case QpType::kXrcInitiator:
      return 8;
    case QpType::kXrcTarget:
      return 16;
  }
  return 0;
}

constexpr uint8_t kRc = bit(QpType::kRc);
constexpr uint8_t kUc = bit(QpType::kUc);
constexpr uint8_t kUd = bit(QpType::kUd);
constexpr uint8_t kIni = bit(QpType::kXrcInitiator);
constexpr uint8_t kTgt = bit(QpType::kXrcTarget);
constexpr uint8_t kConnected = kRc | kUc | kIni | kTgt;
constexpr uint8_t kResponder = kRc | kTgt;  // reliable, answers requests

struct Rule {
  QpState from;
  QpState to;
  uint8_t types;
  uint32_t required;
  uint32_t optional;
};

constexpr uint32_t kIdentity = kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr uint32_t kRemote = kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn;
constexpr uint32_t kAnswers = kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr uint32_t kPatience = kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;
constexpr uint32_t kRtrOptional = kQpAlternatePath | kQpAccessFlags | kQpPkeyIndex;
constexpr uint32_t kRtsOptional = kQpCurrentState | kQpAlternatePath | kQpAccessFlags | kQpPathMigState;
constexpr uint32_t kRtsOptionalUd = kQpCurrentState | kQpQkey;
constexpr uint32_t kDrained = kQpAlternatePath | kQpAccessFlags | kQpPkeyIndex | kQpPathMigState | kQpAddressVector;

// RESET and ERR are reached without attributes, see check_transition().
constexpr Rule kRules[] = {
    {QpState::kReset, QpState::kInit, kConnected, kIdentity, 0},
    {QpState::kReset, QpState::kInit, kUd, kQpPkeyIndex | kQpPort | kQpQkey, 0},

    {QpState::kInit, QpState::kInit, kConnected, 0, kIdentity},
    {QpState::kInit, QpState::kInit, kUd, 0, kQpPkeyIndex | kQpPort | kQpQkey},

    {QpState::kInit, QpState::kRtr, kResponder, kRemote | kAnswers, kRtrOptional},
    {QpState::kInit, QpState::kRtr, kUc | kIni, kRemote, kRtrOptional},
    {QpState::kInit, QpState::kRtr, kUd, 0, kQpPkeyIndex | kQpQkey},

    {QpState::kRtr, QpState::kRts, kRc, kPatience, kRtsOptional | kQpMinRnrTimer},
    {QpState::kRtr, QpState::kRts, kIni, kPatience, kRtsOptional},
    {QpState::kRtr, QpState::kRts, kTgt, kQpTimeout | kQpSqPsn, kRtsOptional | kQpMinRnrTimer},
    {QpState::kRtr, QpState::kRts, kUc, kQpSqPsn, kRtsOptional},
    {QpState::kRtr, QpState::kRts, kUd, kQpSqPsn, kRtsOptionalUd},

    {QpState::kRts, QpState::kRts, kResponder, 0, kRtsOptional | kQpMinRnrTimer},
    {QpState::kRts, QpState::kRts, kUc | kIni, 0, kRtsOptional},
    {QpState::kRts, QpState::kRts, kUd, 0, kRtsOptionalUd},

    {QpState::kRts, QpState::kSqd, kConnected | kUd, 0, kQpEnSqdAsyncNotify},

    {QpState::kSqd, QpState::kRts, kResponder, 0, kRtsOptional | kQpMinRnrTimer},
    {QpState::kSqd, QpState::kRts, kUc | kIni, 0, kRtsOptional},
    {QpState::kSqd, QpState::kRts, kUd, 0, kRtsOptionalUd},

    {QpState::kSqd, QpState::kSqd, kRc, 0,
     kDrained | kQpPort | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic | kAnswers},
    {QpState::kSqd, QpState::kSqd, kIni, 0,
     kDrained | kQpPort | kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic},
    {QpState::kSqd, QpState::kSqd, kTgt, 0, kDrained | kQpPort | kQpTimeout | kAnswers},
    {QpState::kSqd, QpState::kSqd, kUc, 0, kDrained},
    {QpState::kSqd, QpState::kSqd, kUd, 0, kQpPkeyIndex | kQpQkey},

    {QpState::kSqe, QpState::kRts, kUc, 0, kQpCurrentState | kQpAccessFlags},
    {QpState::kSqe, QpState::kRts, kUd, 0, kRtsOptionalUd},
};

}  // namespace

int check_transition(QpType type, QpState from, QpState to, uint32_t mask) {
  mask &= ~kQpState;
  if (to == QpState::kReset) return mask == 0 ? 0 : EINVAL;
  if (to == QpState::kErr) return from != QpState::kReset && mask == 0 ? 0 : EINVAL;
  for (const Rule& rule : kRules) {
    if (rule.from != from || rule.to != to || !(rule.types & bit(type))) continue;
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
