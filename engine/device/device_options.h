// SPDX-License-Identifier: BSD-2-Clause
// What a device is told when it is made, of what the environment of the process says (process/options.h).
#pragma once

#include <cstdint>

#include "base/time.h"
#include "engine/congestion/controller.h"
#include "engine/objects/limits.h"

namespace uroce::engine {

struct DeviceOptions {
  congestion::Algorithm congestion = congestion::Algorithm::kAuto;
  Duration patience{};            // a peer that is away is waited for so long at least
  bool wakes_by_packets = false;  // a program's non-blocking channels tell of packets (datapath/attendance.h)
  uint32_t shards = 0;            // at most, a power of two; 0: as many as CPUs
  // What is told of the device before its packet I/O is open.
  uint32_t max_qps = Limits::kMaxQp;
  uint32_t max_multicast_groups = Limits::kMaxMulticastGroups;
};

}  // namespace uroce::engine
