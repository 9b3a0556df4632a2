// SPDX-License-Identifier: BSD-2-Clause
// The processes that `uroce capture` can listen to: those whose packet I/O is open, found by a descriptor that they
// have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace uroce::cli {

struct CaptureTarget {
  int pid = 0;
  uid_t user = uid_t(-1);            // whose it is, as its socket says (capture/nameless_socket.h)
  std::string program;               // short name
  std::vector<std::string> devices;  // "uroce_eth0 (eth0): af_xdp, native", one per packet I/O

  bool has_device(std::string_view device_or_netdev) const;
};

// Those that answer within two seconds in all, ordered by process id; of a user who has many that do not, the first
// ones are waited for. `wanted` as below: if it is a process id, nobody else is asked.
std::vector<CaptureTarget> find_capture_targets(const std::string& wanted);

// Which one is meant. `wanted`: a process id, a device or a netdev, or "uroced"; empty: the only one there is. On
// failure the text says why, and what to type instead.
struct ChosenTarget {
  std::optional<CaptureTarget> target;
  std::string device;   // the capture is to be of this one only; empty: all
  std::string problem;  // if there is no target
};
ChosenTarget choose_capture_target(const std::vector<CaptureTarget>& targets, const std::string& wanted);

std::string format_capture_targets(const std::vector<CaptureTarget>& targets);

}  // namespace uroce::cli
