// SPDX-License-Identifier: BSD-2-Clause
#include "cli/no_devices.h"

#include <fmt/format.h>

#include "engine/net/device_identity.h"

namespace uroce::cli {
namespace {

std::string list_of(const std::vector<net::Netdev>& netdevs, const char* between) {
  std::string list;
  for (const net::Netdev& netdev : netdevs) list += (list.empty() ? "" : between) + netdev.name;
  return list;
}

}  // namespace

std::string why_no_devices(const std::vector<net::Netdev>& netdevs, const std::string& names) {
  if (!engine::devices_of(netdevs, names).empty()) return {};
  if (netdevs.empty()) return "there is no Ethernet netdev here";
  if (!names.empty()) return fmt::format("'{}' names no Ethernet netdev; there are: {}", names, list_of(netdevs, ", "));
  std::vector<net::Netdev> with_address;
  for (const net::Netdev& netdev : netdevs) {
    if (!netdev.addresses.empty()) with_address.push_back(netdev);
  }
  if (with_address.empty()) {
    return fmt::format("no Ethernet netdev here has an address; ip address add ADDRESS/LENGTH dev {}",
                       netdevs.front().name);
  }
  const std::string all = list_of(with_address, ",");
  return fmt::format(
      "what serves others (dummy, bridge, ifb, a container's veth) is one only if it is named; "
      "--netdev {0} or UROCE_NETDEV={0}",
      all);
}

}  // namespace uroce::cli
