// SPDX-License-Identifier: BSD-2-Clause
// An engine with a packet I/O by which a test sees its rounds.
#pragma once

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
// `hook` runs in every round.
inline IoOpener with_hook(HookedIo::Hook hook) {
  return [hook](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(std::make_unique<HookedIo>(hook));
    return opened;
  };
}

}  // namespace uroce::engine::test
