// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>

namespace uroce::engine {

// How a thread's wait for an event has ended (Engine::wait_for_event).
enum class Waited : uint8_t {
  kLook,         // the event may be there
  kInterrupted,  // by a signal, after which calls of the application do not go on (no SA_RESTART)
};

// Runs the rounds that it is given, in which the event may be reported, and says whether there is one.
using LookForEvent = std::function<bool(const std::function<void()>& rounds)>;

}  // namespace uroce::engine
