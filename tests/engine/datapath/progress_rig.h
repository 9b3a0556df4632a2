// SPDX-License-Identifier: BSD-2-Clause
// An engine with a packet I/O by which a test sees its rounds.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/engine/datapath/hooked_io.h"
#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {

inline std::shared_ptr<Engine> make_engine(IoOpener opener, std::shared_ptr<FixedNetView> view = nullptr) {
  if (!view) view = std::make_shared<FixedNetView>();
  return std::make_shared<Engine>(
      std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{.wakes_by_packets = true}, std::move(opener)));
}
// `hook` runs in every round, `waits` before somebody may sleep.
inline IoOpener with_hook(
    HookedIo::Hook hook, std::function<void()> waits = [] {}) {
  return [hook, waits](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(std::make_unique<HookedIo>(hook, io::make_memory_loop(), waits));
    return opened;
  };
}

}  // namespace uroce::engine::test
