// SPDX-License-Identifier: BSD-2-Clause
// What a process's engines have counted and the GID tables of its devices, for liburoce_files.so, which shows them as
// files. The exports that are not of libibverbs.

#include "engine/device/port_counters.h"

#include "process/host.h"

namespace {

using uroce::engine::PortCounters;

// Called for every counter. Names, as "counters/port_rcv_data", are valid for ever.
using Each = void(void* to, int netdev_index, const char* name, uint64_t value);

void report(const PortCounters& counters, int netdev_index, Each* each, void* to) {
  for (const auto& [name, value] : counters) each(to, netdev_index, name, value);
}

}  // namespace

// Tells netdev 0 first, with zeroes: what netdevs without an engine have. Looking makes no engine.
extern "C" void uroce_port_counters(Each* each, void* to) {
  report(uroce::engine::port_counters({}, {}), 0, each, to);
  uroce::engine::Host* const host = uroce::engine::Host::existing();
  if (host == nullptr) return;
  for (const auto& [index, engine] : host->existing_engines()) report(engine->port_counters(), index, each, to);
}

// Tells every entry that is not empty. Looking makes no table: there is none before somebody has asked for devices.
extern "C" void uroce_gids(void (*each)(void* to, int netdev_index, size_t gid_index, const uint8_t* gid), void* to) {
  uroce::engine::Host* const host = uroce::engine::Host::existing();
  if (host == nullptr) return;
  host->view().process_changes();
  for (const uroce::net::Netdev& netdev : host->view().netdevs()) {
    for (size_t i = 0; i < netdev.gids.size(); ++i) {
      if (!netdev.gids[i].is_unspecified()) each(to, netdev.index, i, netdev.gids[i].bytes.data());
    }
  }
}
