// SPDX-License-Identifier: BSD-2-Clause
#include <algorithm>

#include "tests/e2e/data_in_order/sides.h"

namespace uroce::data_in_order {

void run_source(const Settings& settings, Shared& shared) {
  Endpoint endpoint(settings, shared, 0);
  endpoint.connect();
  const Plan plan(settings.seed);
  const bool posts = settings.operation != Operation::kRead;
  const auto turn = [&] { endpoint.poll(); };
  for (uint32_t i = 0; i < settings.messages; ++i) {
    const auto free = [&] {
      return shared.allowed.load(std::memory_order_acquire) > i && (!posts || endpoint.completed() + kSlots > i);
    };
    wait_for(shared, "the destination", free, turn);
    const Message m = plan.message(i);
    std::fill_n(endpoint.bytes(m), m.size, m.value);
    if (settings.operation == Operation::kWrite) endpoint.write(m);
    if (settings.operation == Operation::kSend) endpoint.send(m);
    shared.filled.store(i + 1, std::memory_order_release);
  }
  wait_for(
      shared, "the end", [&] { return shared.seen_all.load() == 1; }, turn);
  wait_for(
      shared, "completions", [&] { return !posts || endpoint.completed() == settings.messages; }, turn);
  shared.all_complete.store(1);
}

}  // namespace uroce::data_in_order
