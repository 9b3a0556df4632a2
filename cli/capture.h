// SPDX-License-Identifier: BSD-2-Clause
// `uroce capture`: listens to the packets of a process that is running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uroce::cli {

struct CaptureOptions {
  std::string target;  // process id, device or netdev; empty: the only process there is
  std::string file;    // "-": standard output
  uint32_t snap = 0;   // bytes kept of each frame; 0: all
  std::vector<std::string> qpns;
  uint64_t count = 0;   // packets; 0: no limit
  double duration = 0;  // seconds; 0: no limit
  uint32_t files = 0;   // a ring of so many; 0: one file
  uint32_t size = 0;    // megabytes per file of the ring
  bool list = false;    // only lists the processes
  bool quiet = false;
};

// Captures until Ctrl-C, a limit, or the end of the process. Returns the exit code; says on stderr how many packets
// there were.
int capture(const CaptureOptions& options);

}  // namespace uroce::cli
