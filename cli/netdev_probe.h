// SPDX-License-Identifier: BSD-2-Clause
// What devices and doctor say of a netdev besides what decides on its packet I/O (process/io_choice/io_choice.h). Needs
// no privilege.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace uroce::cli {

struct NetdevProbe {
  uint32_t queues = 1;     // receive queues
  std::string rxe_device;  // "rxe0": a Soft-RoCE device of the kernel on this netdev; empty: none
  // Names of other netdevs with an IPv4 address in a subnet of this one, and the sysctls that decide where packets of
  // such a subnet come in and whether they are taken (ip-sysctl).
  std::vector<std::string> same_subnet;
  int arp_ignore = 0;
  int rp_filter = 0;
};

NetdevProbe probe_netdev(const std::string& name);  // reads only

// What keeps this process from opening UDP sockets on the netdev, whoever has the port on others. Opens them as the
// engine does, and closes them again.
std::optional<io::IoError> udp_obstacle(const std::string& netdev);

}  // namespace uroce::cli
