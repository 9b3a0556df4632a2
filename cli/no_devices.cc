// SPDX-License-Identifier: BSD-2-Clause
#include "cli/no_devices.h"

#include <fmt/format.h>

#include "engine/net/device_identity.h"

namespace uroce::cli {
namespace {

using net::LinkType;

std::string list_of(const std::vector<net::Netdev>& netdevs, const char* between) {
  std::string list;
  for (const net::Netdev& netdev : netdevs) list += (list.empty() ? "" : between) + netdev.name;
  return list;
}

// What to do with the netdevs that are none by themselves; empty: there is none.
std::string how_to_get_one(const std::vector<net::Netdev>& netdevs) {
  std::vector<net::Netdev> without_address, with_address;
  for (const net::Netdev& netdev : netdevs) {
    if (netdev.type == LinkType::kLoopback) continue;
    if (!netdev.addresses.empty()) {
      with_address.push_back(netdev);
    } else if (netdev.type == LinkType::kEthernet) {
      without_address.push_back(netdev);
    }
  }
  if (!with_address.empty()) {
    return fmt::format(
        "what serves others (dummy, bridge, ifb, a container's veth) is one only if it is named; "
        "--netdev {0} or UROCE_NETDEV={0}",
        list_of(with_address, ","));
  }
  if (without_address.empty()) return {};
  return fmt::format("{} has no address; ip address add ADDRESS/LENGTH dev {}", list_of(without_address, ", "),
                     without_address.front().name);
}

}  // namespace

std::string why_no_devices(const std::vector<net::Netdev>& netdevs, const std::string& names) {
  const std::vector<net::Netdev> devices = engine::devices_of(netdevs, names);
  if (!names.empty()) {
    if (!devices.empty()) return {};
    return fmt::format("no devices: '{}' names no usable netdev; there are: {}", names, list_of(netdevs, ", "));
  }
  if (!devices.empty() && devices.front().type != LinkType::kLoopback) return {};
  const std::string how = how_to_get_one(netdevs);
  if (!devices.empty()) return how.empty() ? how : fmt::format("only {} is a device: {}", devices.front().name, how);
  return "no devices: " + (how.empty() ? "there is no netdev with an address; ip link set lo up makes lo one" : how);
}

}  // namespace uroce::cli
