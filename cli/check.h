// SPDX-License-Identifier: BSD-2-Clause
// `uroce check`: judges the endpoints of a capture file with the trace oracle. Needs neither engine nor privileges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace uroce::cli {

struct CheckOptions {
  std::string file;
  std::vector<std::string> at{};       // addresses of the judged hosts; empty: as the file tells
  std::string slack = "1ms";           // see oracle::Options
  std::optional<uint32_t> path_mtu{};  // of all connections
  uint32_t patience = 0;               // seconds, as of `uroce run`; 0: none
  uint64_t limit = 50;                 // violations printed
  bool quiet = false;                  // only violations
  bool json = false;
};

// Prints the findings on stdout, complaints on stderr. Returns the exit code: 0 no rule was broken, 1 some were, 2 the
// file cannot be judged.
int check(const CheckOptions& options);

}  // namespace uroce::cli
