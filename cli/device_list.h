// SPDX-License-Identifier: BSD-2-Clause
// The devices that an application would see, with what is known about their netdevs. The only part of the command line
// that asks the engine; devices and doctor work on the plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/netdev_probe.h"
#include "process/io_choice/io_choice.h"
#include "wire/envelope.h"

namespace uroce::cli {

struct Device {
  std::string name;       // "uroce_eth0"
  std::string netdev;     // "eth0"
  bool up = false;        // the netdev's IFF_UP
  bool active = false;    // the port's state
  uint32_t mtu = 0;       // the netdev's, bytes
  uint32_t path_mtu = 0;  // of RoCE, bytes; 0: the netdev's MTU is too small
  std::vector<wire::IpAddress> gids{};
  NetdevProbe probe{};
  engine::IoFacts io_facts{};
  engine::IoChoice io{};                // what a program would get
  std::optional<io::IoError> no_udp{};  // what keeps it from UDP sockets; doctor alone asks
};

// nullopt: netlink cannot be read or UROCE_* is malformed; a line about it has gone to stderr.
std::optional<std::vector<Device>> list_devices();
// Where that list is empty.
std::string why_no_device_is_listed();

}  // namespace uroce::cli
