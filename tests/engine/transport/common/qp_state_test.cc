// SPDX-License-Identifier: BSD-2-Clause
// The table of legal modify calls of every QP type, against an independent copy of wire.md "State transitions"
// (IBTA 11.2.4.2, table 91).
#include "engine/transport/common/qp_state.h"

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

struct Machine {
  QpType type;
  const char* name;
  std::vector<Transition> legal;
};

// Row by row as wire.md has it, not factored: what the implementation shares between types is written out here.
const std::vector<Machine> kMachines = {
    {QpType::kRc,
     "RC",
     {
         {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpAccessFlags}, {}},
         {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpAccessFlags}},
         {QpState::kInit,
          QpState::kRtr,
          {kQpAddressVector, kQpPathMtu, kQpDestQpn, kQpRqPsn, kQpMaxDestRdAtomic, kQpMinRnrTimer},
          {kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex}},
         {QpState::kRtr,
          QpState::kRts,
          {kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpSqPsn, kQpMaxRdAtomic},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kRts,
          QpState::kRts,
          {},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kSqd,
          QpState::kRts,
          {},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
         {QpState::kSqd,
          QpState::kSqd,
          {},
          {kQpPort, kQpAddressVector, kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpMaxRdAtomic, kQpMaxDestRdAtomic,
           kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex, kQpMinRnrTimer, kQpPathMigState}},
     }},
    {QpType::kUc,
     "UC",
     {
         {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpAccessFlags}, {}},
         {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpAccessFlags}},
         {QpState::kInit,
          QpState::kRtr,
          {kQpAddressVector, kQpPathMtu, kQpDestQpn, kQpRqPsn},
          {kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex}},
         {QpState::kRtr,
          QpState::kRts,
          {kQpSqPsn},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kRts, QpState::kRts, {}, {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kSqd, QpState::kRts, {}, {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
         {QpState::kSqd,
          QpState::kSqd,
          {},
          {kQpAddressVector, kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex, kQpPathMigState}},
         {QpState::kSqe, QpState::kRts, {}, {kQpCurrentState, kQpAccessFlags}},
     }},
    {QpType::kUd,
     "UD",
     {
         {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpQkey}, {}},
         {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpQkey}},
         {QpState::kInit, QpState::kRtr, {}, {kQpPkeyIndex, kQpQkey}},
         {QpState::kRtr, QpState::kRts, {kQpSqPsn}, {kQpCurrentState, kQpQkey}},
         {QpState::kRts, QpState::kRts, {}, {kQpCurrentState, kQpQkey}},
         {QpState::kSqd, QpState::kRts, {}, {kQpCurrentState, kQpQkey}},
         {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
         {QpState::kSqd, QpState::kSqd, {}, {kQpPkeyIndex, kQpQkey}},
         {QpState::kSqe, QpState::kRts, {}, {kQpCurrentState, kQpQkey}},
     }},
    {QpType::kXrcInitiator,
     "XRC_INI",
     {
         {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpAccessFlags}, {}},
         {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpAccessFlags}},
         {QpState::kInit,
          QpState::kRtr,
          {kQpAddressVector, kQpPathMtu, kQpDestQpn, kQpRqPsn},
          {kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex}},
         {QpState::kRtr,
          QpState::kRts,
          {kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpSqPsn, kQpMaxRdAtomic},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kRts, QpState::kRts, {}, {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kSqd, QpState::kRts, {}, {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState}},
         {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
         {QpState::kSqd,
          QpState::kSqd,
          {},
          {kQpPort, kQpAddressVector, kQpTimeout, kQpRetryCount, kQpRnrRetry, kQpMaxRdAtomic, kQpAlternatePath,
           kQpAccessFlags, kQpPkeyIndex, kQpPathMigState}},
     }},
    {QpType::kXrcTarget,
     "XRC_TGT",
     {
         {QpState::kReset, QpState::kInit, {kQpPkeyIndex, kQpPort, kQpAccessFlags}, {}},
         {QpState::kInit, QpState::kInit, {}, {kQpPkeyIndex, kQpPort, kQpAccessFlags}},
         {QpState::kInit,
          QpState::kRtr,
          {kQpAddressVector, kQpPathMtu, kQpDestQpn, kQpRqPsn, kQpMaxDestRdAtomic, kQpMinRnrTimer},
          {kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex}},
         {QpState::kRtr,
          QpState::kRts,
          {kQpTimeout, kQpSqPsn},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kRts,
          QpState::kRts,
          {},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kSqd,
          QpState::kRts,
          {},
          {kQpCurrentState, kQpAlternatePath, kQpAccessFlags, kQpPathMigState, kQpMinRnrTimer}},
         {QpState::kRts, QpState::kSqd, {}, {kQpEnSqdAsyncNotify}},
         {QpState::kSqd,
          QpState::kSqd,
          {},
          {kQpPort, kQpAddressVector, kQpTimeout, kQpMaxDestRdAtomic, kQpAlternatePath, kQpAccessFlags, kQpPkeyIndex,
           kQpMinRnrTimer, kQpPathMigState}},
     }},
};

void PrintTo(const Machine& machine, std::ostream* out) {
  *out << machine.name;
}

class QpStateMachine : public testing::TestWithParam<Machine> {
 protected:
  const Machine& machine() const { return GetParam(); }
  const Transition* legal(QpState from, QpState to) const {
    for (const Transition& t : machine().legal) {
      if (t.from == from && t.to == to) return &t;
    }
    return nullptr;
  }
  int check(QpState from, QpState to, uint32_t mask) const { return check_transition(machine().type, from, to, mask); }
};

INSTANTIATE_TEST_SUITE_P(Types, QpStateMachine, testing::ValuesIn(kMachines),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

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

TEST_P(QpStateMachine, EveryPairOfStatesIsLegalOrNotAsTheTableSays) {
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      SCOPED_TRACE(describe(from, to));
      const Transition* t = legal(from, to);
      const bool reset = to == QpState::kReset;                           // any -> RESET
      const bool error = to == QpState::kErr && from != QpState::kReset;  // any but RESET -> ERR
      const uint32_t mask = kQpState | (t != nullptr ? all_of(t->required) : 0);
      EXPECT_EQ(check(from, to, mask), t != nullptr || reset || error ? 0 : EINVAL);
    }
  }
}

TEST_P(QpStateMachine, EveryRequiredAttributeIsRequired) {
  for (const Transition& t : machine().legal) {
    SCOPED_TRACE(describe(t.from, t.to));
    const uint32_t complete = kQpState | all_of(t.required);
    for (const uint32_t mask : t.required) {
      EXPECT_EQ(check(t.from, t.to, complete & ~mask), EINVAL) << "without " << mask;
    }
  }
}

TEST_P(QpStateMachine, EveryAttributeIsOptionalOrForbiddenAsTheTableSays) {
  for (const Transition& t : machine().legal) {
    SCOPED_TRACE(describe(t.from, t.to));
    const uint32_t complete = kQpState | all_of(t.required);
    for (const uint32_t mask : kAllMasks) {
      const bool allowed = contains(t.required, mask) || contains(t.optional, mask);
      EXPECT_EQ(check(t.from, t.to, complete | mask), allowed ? 0 : EINVAL) << "with " << mask;
    }
    EXPECT_EQ(check(t.from, t.to, complete | all_of(t.optional)), 0) << "with all optional";
  }
}

// CUR_STATE among them, which says what the caller believes and is legal on the way to RTS only.
TEST_P(QpStateMachine, ResetAndErrorTakeNoAttributes) {
  for (const QpState from : kStates) {
    for (const uint32_t mask : kAllMasks) {
      EXPECT_EQ(check(from, QpState::kReset, kQpState | mask), EINVAL);
      EXPECT_EQ(check(from, QpState::kErr, kQpState | mask), EINVAL);
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
