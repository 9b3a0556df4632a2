// SPDX-License-Identifier: BSD-2-Clause
// The connection manager as a process sees it: in this process (cm/local/local_agent.h) or in the broker of the host
// (broker/client/broker_agent.h).
#pragma once

#include <functional>

#include "cm/requests.h"

namespace uroce::cm {

class Agent {
 public:
  struct Handler {
    // In the order in which things happened, from a thread of the agent, none of whose locks are held. An event of an
    // id may come before ask() has returned that id.
    std::function<void(const Event&)> on_event;
    // The connection manager is gone with all that it knew (the broker has ended): until on_return() every request
    // fails with ENOTCONN. Established connections go on.
    std::function<void()> on_loss;
    // Another one is there and knows nothing: bind, listen and adopt again.
    std::function<void()> on_return;
  };

  virtual ~Agent() = default;
  // Waits for the answer. Any thread, but not from within the handler's functions. Errors: those of Service::ask();
  // ENOTCONN; ETIMEDOUT.
  virtual Reply ask(const Request& request) = 0;
};

}  // namespace uroce::cm
