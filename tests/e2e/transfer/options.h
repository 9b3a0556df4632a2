// SPDX-License-Identifier: BSD-2-Clause
// The command line of rc_transfer. Used by main.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tests/e2e/transfer/plan.h"

namespace uroce::transfer {

enum class Mode : uint8_t { kServer, kClient, kSelf };

struct Options {
  Mode mode = Mode::kSelf;
  std::string host;  // client: of the server
  uint16_t port = 18590;
  std::string device;  // empty: the first
  int gid_index = 0;
  bool events = false;
  bool starve = false;  // --rnr
  bool port_changes = false;
  uint8_t ack_timeout = 14;
  std::chrono::seconds timeout{30};
  PlanOptions plan;  // server: replaced by the client's

  // The command that repeats the run on this side, with the plan that is in effect.
  std::string command() const;
};

// Returns the options, or exits: 0 after --help, 2 with an explanation on an error.
Options parse_options(int argc, char** argv);

}  // namespace uroce::transfer
