// SPDX-License-Identifier: BSD-2-Clause
// Addresses of a port that the kernel does not see, as a small file gives them. A line is a word and its value; #
// begins a comment:
//   name dpdk0                     # of the netdev that the port stands for: the device is uroce_dpdk0
//   mac 02:00:00:00:00:01
//   mtu 1500                       # optional
//   vlan 5                         # optional: all frames have a tag with this ID
//   address 192.0.2.1/24           # one or more
//   gateway 192.0.2.254            # optional, one of each IP version
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/net/net_view.h"
#include "wire/envelope.h"

namespace uroce::net {

struct PortFile {
  static constexpr size_t kMostAddresses = 16;

  std::string name;
  wire::MacAddress mac{};
  uint32_t mtu = 1500;
  uint16_t vlan = 0;              // 0: none
  std::vector<Prefix> addresses;  // with the network's length
  std::vector<wire::IpAddress> gateways;
};

// The file, or what is wrong with it: "line 3: ...".
std::variant<PortFile, std::string> parse_port_file(std::string_view text);
// The same of a file; the message begins with its name.
std::variant<PortFile, std::string> read_port_file(const std::string& path);

// As the netdev that the port stands for.
Netdev netdev_of(const PortFile& file);

}  // namespace uroce::net
