// SPDX-License-Identifier: BSD-2-Clause
// What a process that uses uroce says of itself to whom the broker has brought to it (protocol.h: kReport): lines of
// words, written by the engine and read by `uroce stat`. Lines that the reader does not know are skipped, so that
// programs of other versions can be looked at.
//
//   uroce-statistics 1
//   time NANOSECONDS                        of the monotonic clock
//   device NAME NETDEV PACKET_IO...         what follows is of this device
//   counter NAME VALUE                      that are not 0
//   qps TYPE STATE COUNT
//   qp QPN TYPE STATE PEER_QPN PEER_ADDRESS SENT RECEIVED POSTED_SENDS POSTED_RECEIVES
//   end
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/protocol/words.h"
#include "engine/device/device_statistics.h"

namespace uroce::broker {

using engine::DeviceStatistics, engine::QpStatistics;

struct ProcessStatistics {
  uint64_t time = 0;  // nanoseconds
  std::vector<DeviceStatistics> devices{};
  bool operator==(const ProcessStatistics&) const = default;
};

// QPs that a process lists one by one.
inline constexpr uint32_t kMostQps = 4096;
// Bytes that a report with so many QPs may have.
constexpr size_t longest_report(uint32_t most_qps) {
  return (size_t{128} << 10) + size_t{most_qps} * 160;
}

std::string format_statistics(const ProcessStatistics& statistics);
// The writer may be anybody. None: it is not whole, or breaks a rule: names are words of [a-z0-9_], no two devices have
// one name, and what is counted is bounded (longest_report(), kMostDevices, kMostCounters, kMostQps). Texts for people
// have no control characters.
std::optional<ProcessStatistics> parse_statistics(std::string_view text);

}  // namespace uroce::broker
