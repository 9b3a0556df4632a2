// SPDX-License-Identifier: BSD-2-Clause
// What this implementation offers; the shim reports exactly these, and quota.h keeps the numbers of objects.
#pragma once

#include <cstdint>

#include "engine/queue/work_queue.h"
#include "engine/transport/common/qp_state.h"

namespace uroce::engine {

struct Limits {
  // Objects, per process and netdev.
  static constexpr uint32_t kMaxQp = 65536;  // the size of the QPN range
  static constexpr uint32_t kMaxCq = 65536;
  static constexpr uint32_t kMaxPd = 65536;
  static constexpr uint32_t kMaxSrq = 65536;
  static constexpr uint32_t kMaxXrcd = 65536;
  static constexpr uint32_t kMaxAh = 1u << 20;
  static constexpr uint32_t kMaxMulticastGroups = 8192;
  static constexpr uint32_t kMaxMulticastQps = 240;  // QPs per group

  // Sizes of objects.
  static constexpr uint32_t kMaxWr = 32768;  // per send or receive queue
  static constexpr uint32_t kMaxSge = queue::kMaxSge;
  static constexpr uint32_t kMaxSrqWr = 32768;
  static constexpr uint32_t kMaxSrqSge = queue::kMaxSge;
  static constexpr uint32_t kMaxInline = 512;  // bytes
  static constexpr uint32_t kMaxCqe = 4u << 20;
  static constexpr uint32_t kMaxRdAtomic = transport::kMaxRdAtomic;  // per QP, in each direction
  static constexpr uint32_t kMaxMessage = transport::kMaxMessage;    // bytes
  static constexpr uint16_t kMaxCqModeration = 0xffff;               // completions, and microseconds
  static constexpr uint16_t kPkey = 0xffff;                          // the one P_Key, at index 0
};

}  // namespace uroce::engine
