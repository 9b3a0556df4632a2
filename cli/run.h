// SPDX-License-Identifier: BSD-2-Clause
// `uroce run`: starts a program with the uroce libraries preloaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uroce::cli {

struct RunOptions {
  // Values of UROCE_IO, UROCE_NETDEV, UROCE_NAMES, UROCE_FAULTS, UROCE_XDP_MODE and UROCE_PATIENCE; empty: left as they
  // are.
  std::string io, netdev, names, faults, xdp_mode, patience;
  std::string dpdk_tap;        // value of UROCE_DPDK_TAP
  std::string dpdk_addresses;  // value of UROCE_DPDK_ADDRESSES
  // Values of UROCE_CAPTURE, UROCE_CAPTURE_SNAP, UROCE_CAPTURE_FILES, UROCE_CAPTURE_SIZE and UROCE_CAPTURE_QPN,
  // likewise.
  std::string capture, capture_snap, capture_files, capture_size, capture_qpn;
  std::string broker;                 // value of UROCE_BROKER
  bool alone = false;                 // without broker
  std::string user;                   // who the program runs as; empty: who runs this
  bool quiet = false;                 // UROCE_QUIET=1
  bool wakes_by_events_only = false;  // UROCE_WAKE_BY_PACKETS=0
  bool counters = false;              // UROCE_COUNTERS=1
  bool keep_capabilities = false;     // UROCE_KEEP_CAPABILITIES=1
  bool no_files = false;              // without liburoce_files.so
  std::vector<std::string> command;   // the program and its arguments; not empty
};

// Checks what can be known beforehand, then becomes the program. Returns the exit code, after one line on stderr, only
// when it cannot be started.
int run(RunOptions options);

}  // namespace uroce::cli
