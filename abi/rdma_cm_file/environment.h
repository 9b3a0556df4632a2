// SPDX-License-Identifier: BSD-2-Clause
// What the rdma_cm file needs of the process around it. Of a real process: process_environment() (entry.cc); tests
// bring their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cm/agent.h"
#include "process/host.h"

namespace uroce::rdma_cm {

// The way to the connection manager, or none: an errno value and what to do, for people.
struct ChosenAgent {
  std::shared_ptr<cm::Agent> agent{};
  int error = 0;
  std::string text{};
};

struct Environment {
  std::function<std::vector<engine::DeviceInfo>()> devices;
  net::NetView* view = nullptr;
  // A packet has come for the QP: false, none has, or it is not known.
  std::function<bool(uint32_t netdev, uint32_t qpn)> has_received;
  std::function<ChosenAgent(cm::Agent::Handler)> make_agent;
  std::function<bool()> binds_v6_only;  // net.ipv6.bindv6only
};

// Of this process: the broker if there is one, else QP1 of this process itself.
ChosenAgent make_agent(cm::Agent::Handler handler);

}  // namespace uroce::rdma_cm
