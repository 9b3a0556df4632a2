// SPDX-License-Identifier: BSD-2-Clause
// `uroce stat`: what the programs of this host move, of all that use its broker.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::cli {

struct StatOptions {
  std::string broker;  // where it listens; empty: it is found
  bool json = false, prometheus = false, watch = false;
  std::string serve;        // where to listen for who asks by HTTP; empty: nobody does
  double interval = 1;      // seconds between two looks; 0: one look, no rates
  uint64_t count = 0;       // of looks to show with `watch`; 0: until it is ended
  uint32_t most_qps = 256;  // that each process lists one by one
};

// Returns the exit code; says on stderr what goes wrong.
int stat(const StatOptions& options);

}  // namespace uroce::cli
