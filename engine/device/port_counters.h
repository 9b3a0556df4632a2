// SPDX-License-Identifier: BSD-2-Clause
// The counters of a port under the names that kernel drivers give them in sysfs: "counters/..." as InfiniBand's
// PortCounters, "hw_counters/..." as ConnectX. Of one engine, so of one process. Shown by abi/preload/ through the
// verbs shim.
#pragma once

#include <array>
#include <cstdint>

#include "base/counters.h"
#include "engine/io/packet_io.h"

namespace uroce::engine {

struct PortCounter {
  const char* name;
  uint64_t value;
};

inline constexpr size_t kPortCounters = 24;
using PortCounters = std::array<PortCounter, kPortCounters>;

PortCounters port_counters(const CounterSums& engine, const io::IoCounters& io);

}  // namespace uroce::engine
