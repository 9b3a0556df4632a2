// SPDX-License-Identifier: BSD-2-Clause
#include "process/process_statistics.h"

#include <optional>
#include <utility>

#include "base/clock.h"
#include "broker/protocol/statistics.h"
#include "engine/net/device_names.h"
#include "process/host.h"

namespace uroce::engine {

std::string process_statistics(uint32_t most_qps) {
  broker::ProcessStatistics statistics;
  statistics.time = static_cast<uint64_t>(monotonic_now().time_since_epoch().count());
  Host* const host = Host::existing();
  if (host != nullptr) {
    for (const auto& [index, engine] : host->existing_engines()) {
      std::optional<broker::DeviceStatistics> device = engine->statistics(most_qps);
      if (!device) continue;
      net::Netdev netdev;
      netdev.name = device->netdev;
      device->name = device_name(netdev, host->options().names);
      most_qps -= static_cast<uint32_t>(device->qps.size());
      statistics.devices.push_back(std::move(*device));
    }
  }
  return broker::format_statistics(statistics);
}

}  // namespace uroce::engine
