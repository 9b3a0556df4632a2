// SPDX-License-Identifier: BSD-2-Clause
// What a device says of itself to who looks on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace uroce::engine {

struct QpStatistics {
  uint32_t qpn = 0;
  std::string type, state;  // "rc", "rts"
  uint32_t peer_qpn = 0;
  std::string peer;  // address; empty: not connected
  // PSNs, which tell how many packets went: those that are acknowledged (UC, UD: sent), and received in order.
  uint32_t sent = 0, received = 0;
  uint32_t posted_sends = 0, posted_receives = 0;  // that are not complete

  bool operator==(const QpStatistics&) const = default;
};

struct DeviceStatistics {
  std::string name, netdev, packet_io;
  // Every reason to drop a packet begins with "drop_".
  std::map<std::string, uint64_t> counters{};
  std::map<std::pair<std::string, std::string>, uint64_t> qp_counts{};  // of all QPs, by type and state
  std::vector<QpStatistics> qps{};                                      // of some

  uint64_t counter(const std::string& which) const {
    const auto found = counters.find(which);
    return found == counters.end() ? 0 : found->second;
  }
  bool operator==(const DeviceStatistics&) const = default;
};

}  // namespace uroce::engine
