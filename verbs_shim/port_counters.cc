// What a process's engines have counted, for liburoce_files.so, which shows it as files. The one export that is not of
// libibverbs.

#include "engine/port_counters.h"

#include "engine/host.h"

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
