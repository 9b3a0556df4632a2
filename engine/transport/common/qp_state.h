// SPDX-License-Identifier: BSD-2-Clause
// The QP state machine: states, attributes, and which modify calls are legal (IBTA 11.2.4.2 and table 91;
// wire.md "State transitions"). Used by every QP type; numbers equal the verbs ABI so that the shim can cast.
#pragma once

#include <cstdint>

#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::transport {

// The largest max_rd_atomic and max_dest_rd_atomic.
inline constexpr uint32_t kMaxRdAtomic = 16;
// Bytes that a work request may ask for: IBTA allows 2^31, verbs tools expect 2^31 - 1.
inline constexpr uint32_t kMaxMessage = 0x7fffffff;

enum class QpType : uint8_t { kRc = 2, kUc = 3, kUd = 4, kXrcInitiator = 9, kXrcTarget = 10 };

enum class QpState : uint8_t { kReset = 0, kInit = 1, kRtr = 2, kRts = 3, kSqd = 4, kSqe = 5, kErr = 6 };

// The values of enum ibv_qp_attr_mask.
enum QpMask : uint32_t {
  kQpState = 1u << 0,
  kQpCurrentState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAddressVector = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCount = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxRdAtomic = 1u << 13,
  kQpAlternatePath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
  kQpRateLimit = 1u << 25,
};

// Where a connected QP sends to. The transport only stores it; the engine resolves it.
struct AddressVector {
  wire::IpAddress destination;  // the DGID
  uint32_t flow_label = 0;
  uint8_t source_gid_index = 0;
  uint8_t hop_limit = 0;  // 0: the route's
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t static_rate = 0;
  uint8_t port = 1;
  bool global = false;  // a GRH is given; RoCE requires it
};

struct QpAttributes {
  // What packets need.
  QpState state = QpState::kReset;
  uint8_t max_rd_atomic = 0;       // outstanding READs and atomics as requester
  uint8_t max_dest_rd_atomic = 0;  // the same as responder
  uint8_t min_rnr_timer = 0;       // AETH RNR timer code, 0..31
  uint8_t timeout = 0;             // 4.096 us * 2^timeout, 0..31; 0 = never
  uint8_t retry_count = 0;         // 0..7
  uint8_t rnr_retry = 0;           // 0..7, 7 = infinite
  bool en_sqd_async_notify = false;
  uint32_t access = 0;      // memory::Access bits the peer may use
  uint32_t path_mtu = 256;  // payload bytes: 256, 512, 1024, 2048, 4096
  wire::Qpn dest_qpn;
  uint32_t qkey = 0;

  QpState current_state = QpState::kReset;
  uint8_t port = 0;
  uint16_t pkey_index = 0;
  uint8_t path_mig_state = 0;
  wire::Psn rq_psn;
  wire::Psn sq_psn;
  AddressVector address;
};

// 0, or EINVAL when the transition `from` -> `to` does not exist for this type or `mask` misses a required or has a
// forbidden attribute.
int check_transition(QpType type, QpState from, QpState to, uint32_t mask);

// Copies the attributes that `mask` names.
void apply_attributes(QpAttributes& to, const QpAttributes& from, uint32_t mask);

// The values of enum ibv_event_type.
enum class AsyncEvent : uint8_t {
  kCqError = 0,
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommunicationEstablished = 4,
  kSqDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortError = 10,
  kSrqError = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kGidChange = 18,
};

}  // namespace uroce::transport
