// SPDX-License-Identifier: BSD-2-Clause
// A whole run as a value: network, connections, work. Either written down (tests, the grid) or drawn from a seed.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulator/network.h"
#include "tests/simulator/traffic.h"

namespace uroce::simulator {

struct Scenario {
  std::string name;
  LinkConfig link;      // each cable, both directions
  bool star = false;    // through a switch instead of one cable
  LinkConfig downlink;  // star: from the switch to a host
  uint32_t connections = 1;
  uint32_t first_psn = 0x123456;
  transport::QpAttributes attributes = Network::default_attributes();
  QpConfig qp;
  TrafficConfig traffic;  // of each connection and direction
  bool both_directions = true;
  Duration limit = std::chrono::minutes(10);  // of virtual time; more is a hang
};

// Anything that the transport must survive, decided by `seed`.
Scenario random_scenario(uint64_t seed);

struct Outcome {
  std::string error;    // empty: as it should be
  Duration duration{};  // from the first post to the last completion
  uint64_t bytes = 0;   // of messages completed with success
  int completed = 0;
  bool ended_by_error = false;  // retries exhausted, where that is allowed
  uint64_t frames = 0, frames_lost = 0, retransmissions = 0, timeouts = 0, probes = 0, naks = 0, rnr_naks = 0;

  double gigabits_per_second() const {
    return duration.count() == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(duration.count());
  }
};

// A number, or "fresh" for one that nobody has tried; whoever runs with it prints it.
uint64_t parse_seed(const char* text);

// Runs it. `capture`: where to write what was seen, if anything went wrong; empty: nowhere.
Outcome run(const Scenario& scenario, uint64_t seed, const std::string& capture = {});

}  // namespace uroce::simulator
