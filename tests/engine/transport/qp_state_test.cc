// The table of legal modify calls of an RC QP, against an independent copy of wire.md "State transitions".
#include "engine/transport/qp_state.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace uroce::transport {
namespace {

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};
constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

constexpr uint32_t kAllMasks[] = {kQpCurrentState,
                                  kQpEnSqdAsyncNotify,
                                  kQpAccessFlags,
                                  kQpPkeyIndex,
                                  kQpPort,
                                  kQpQkey,
                                  kQpAddressVector,
                                  kQpPathMtu,
                                  kQpTimeout,
                                  kQpRetryCount,
                                  kQpRnrRetry,
                                  kQpRqPsn,
                                  kQpMaxRdAtomic,
                                  kQpAlternatePath,
                                  kQpMinRnrTimer,
                                  kQpSqPsn,
                                  kQpMaxDestRdAtomic,
                                  kQpPathMigState,
                                  kQpCap,
                                  kQpDestQpn,
                                  kQpRateLimit};

struct Transition {
  QpState from, to;
  std::vector<uint32_t> required, optional;
};

// IBTA table 91, RC; wire.md "State transitions".
const std::vector<uint32_t> kRtsOptional = {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState,
                                            kQpMinRnrTimer};
const std::vector<Transition> kLegal = {
    {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpAccessFlags}, {}},
    {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpAccessFlags}},
    {QpState::kInit,
     QpState::kRtr,
     {kQpAddressVector, kQpPathMtu, kQpDestQpn, kQpRqPsn, kQpMaxDestRdAtomic, kQpMinRnrTimer},
     {kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex}},
    {QpState::kRtr, QpState::kRts, {kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpSqPsn, kQpMaxRdAtomic}, kRtsOptional},
    {QpState::kRts, QpState::kRts, {}, kRtsOptional},
    {QpState::kSqd, QpState::kRts, {}, kRtsOptional},
    {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
    {QpState::kSqd,
     QpState::kSqd,
     {},
     {kQpPort, kQpAddressVector, kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpMaxRdAtomic, kQpMaxDestRdAtomic,
      kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex, kQpMinRnrTimer, kQpPathMigState}},
};

const Transition* legal(QpState from, QpState to) {
  for (const Transition& t : kLegal) {
    if (t.from == from && t.to == to) return &t;
  }
  return nullptr;
}

uint32_t all_of(const std::vector<uint32_t>& masks) {
  uint32_t all = 0;
  for (const uint32_t mask : masks) all |= mask;
  return all;
}

bool contains(const std::vector<uint32_t>& masks, uint32_t mask) {
  return (all_of(masks) & mask) != 0;
}

std::string describe(QpState from, QpState to) {
  return std::string(kNames[static_cast<int>(from)]) + "->" + kNames[static_cast<int>(to)];
}

TEST(QpState, EveryPairOfStatesIsLegalOrNotAsTheTableSays) {
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      SCOPED_TRACE(describe(from, to));
      const Transition* t = legal(from, to);
      const bool reset = to == QpState::kReset;                           // any -> RESET
      const bool error = to == QpState::kErr && from != QpState::kReset;  // any but RESET -> ERR
      const uint32_t mask = kQpState | (t != nullptr ? all_of(t->required) : 0);
      EXPECT_EQ(check_transition(QpType::kRc, from, to, mask), t != nullptr || reset || error ? 0 : EINVAL);
    }
  }
}

TEST(QpState, EveryRequiredAttributeIsRequired) {
  for (const Transition& t : kLegal) {
    SCOPED_TRACE(describe(t.from, t.to));
    const uint32_t complete = kQpState | all_of(t.required);
    for (const uint32_t mask : t.required) {
      EXPECT_EQ(check_transition(QpType::kRc, t.from, t.to, complete & ~mask), EINVAL) << "without " << mask;
    }
  }
}

TEST(QpState, EveryAttributeIsOptionalOrForbiddenAsTheTableSays) {
  for (const Transition& t : kLegal) {
    SCOPED_TRACE(describe(t.from, t.to));
    const uint32_t complete = kQpState | all_of(t.required);
    for (const uint32_t mask : kAllMasks) {
      const bool allowed = contains(t.required, mask) || contains(t.optional, mask);
      EXPECT_EQ(check_transition(QpType::kRc, t.from, t.to, complete | mask), allowed ? 0 : EINVAL) << "with " << mask;
    }
    EXPECT_EQ(check_transition(QpType::kRc, t.from, t.to, complete | all_of(t.optional)), 0) << "with all optional";
  }
}

// RESET and ERR take no attributes. CUR_STATE is asked for only where the next test says.
TEST(QpState, ResetAndErrorTakeNoAttributes) {
  for (const QpState from : kStates) {
    for (const uint32_t mask : kAllMasks) {
      if (mask == kQpCurrentState) continue;
      EXPECT_EQ(check_transition(QpType::kRc, from, QpState::kReset, kQpState | mask), EINVAL);
      EXPECT_EQ(check_transition(QpType::kRc, from, QpState::kErr, kQpState | mask), EINVAL);
    }
  }
}

// wire.md: CUR_STATE is legal only from RTR, RTS, SQD, SQE.
TEST(QpState, CurrentStateIsIllegalWhereAQpCannotHaveMovedByItself) {
  for (const QpState from : {QpState::kReset, QpState::kInit, QpState::kErr}) {
    for (const QpState to : kStates) {
      const Transition* t = legal(from, to);
      const uint32_t mask = kQpState | kQpCurrentState | (t != nullptr ? all_of(t->required) : 0);
      EXPECT_EQ(check_transition(QpType::kRc, from, to, mask), EINVAL) << describe(from, to);
    }
  }
}

TEST(QpState, ApplyCopiesWhatTheMaskNamesAndNothingElse) {
  QpAttributes from;
  from.access = 5;
  from.path_mtu = 4096;
  from.rq_psn = wire::Psn(1);
  from.sq_psn = wire::Psn(2);
  from.dest_qpn = wire::Qpn(3);
  from.timeout = 4;
  from.retry_count = 5;
  from.rnr_retry = 6;
  from.max_rd_atomic = 7;
  from.max_dest_rd_atomic = 8;
  from.min_rnr_timer = 9;
  from.state = QpState::kRts;

  QpAttributes to;
  apply_attributes(to, from, kQpTimeout | kQpSqPsn | kQpMaxDestRdAtomic);
  EXPECT_EQ(to.timeout, 4);
  EXPECT_EQ(to.sq_psn, wire::Psn(2));
  EXPECT_EQ(to.max_dest_rd_atomic, 8);
  EXPECT_EQ(to.access, 0u);
  EXPECT_EQ(to.path_mtu, 256u);
  EXPECT_EQ(to.rq_psn, wire::Psn(0));
  EXPECT_EQ(to.retry_count, 0);
  EXPECT_EQ(to.max_rd_atomic, 0);

  apply_attributes(to, from, ~uint32_t{0});
  EXPECT_EQ(to.access, 5u);
  EXPECT_EQ(to.path_mtu, 4096u);
  EXPECT_EQ(to.rq_psn, wire::Psn(1));
  EXPECT_EQ(to.dest_qpn, wire::Qpn(3));
  EXPECT_EQ(to.retry_count, 5);
  EXPECT_EQ(to.rnr_retry, 6);
  EXPECT_EQ(to.max_rd_atomic, 7);
  EXPECT_EQ(to.min_rnr_timer, 9);
  EXPECT_EQ(to.state, QpState::kReset) << "the state is RcQp's to change";
}

}  // namespace
}  // namespace uroce::transport
