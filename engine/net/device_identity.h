// SPDX-License-Identifier: BSD-2-Clause
// What a netdev looks like as an RDMA device: GUID, port and link, without any engine. One home for it, because
// the verbs shim and the files under /sys/class/infiniband (abi/preload/) must say the same. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fnmatch.h>
#include <iterator>
#include <string>
#include <vector>

#include "engine/net/device_guid.h"
#include "engine/net/net_view.h"

namespace uroce::engine {

// What is between the commas.
inline std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Names of netdevs and shell patterns (fnmatch) with commas between, or nothing.
inline bool is_list_of_names(const std::string& names) {
  if (names.empty()) return true;
  const std::vector<std::string> parts = split_names(names);
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part.find_first_of("/ \t\n") == std::string::npos;  // which no netdev's name has
  });
}

// A pattern does not mean `lo`.
inline bool matches_a_name(const net::Netdev& netdev, const std::string& names) {
  const std::vector<std::string> parts = split_names(names);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    if (netdev.type == net::LinkType::kLoopback) return part == netdev.name;
    return fnmatch(part.c_str(), netdev.name.c_str(), 0) == 0;
  });
}

inline bool has_global_address(const net::Netdev& netdev) {
  return std::any_of(netdev.addresses.begin(), netdev.addresses.end(),
                     [](const wire::IpAddress& address) { return !address.is_link_local(); });
}

// Whether it becomes a device without being named.
inline bool serves_applications(const net::Netdev& netdev) {
  const bool serves_others = netdev.kind == "ifb" || netdev.kind == "dummy" || netdev.kind == "bridge" ||
                             (netdev.kind == "veth" && !has_global_address(netdev));
  return netdev.type != net::LinkType::kLoopback && !serves_others && !netdev.addresses.empty();
}

// The netdevs that `names` asks for. Empty: those that applications can use, or `lo` where there is no other; virtual
// ones that serve others (ifb, dummy, bridges, the host's ends of containers' veth pairs) and netdevs without address
// must be named. Active ones with a global address come first, Ethernet before what has no MAC address, because
// programs take the first device by default.
inline std::vector<net::Netdev> devices_of(std::vector<net::Netdev> netdevs, const std::string& names) {
  const bool only_loopback = names.empty() && std::none_of(netdevs.begin(), netdevs.end(), serves_applications);
  std::erase_if(netdevs, [&](const net::Netdev& netdev) {
    if (!names.empty()) return !matches_a_name(netdev, names);
    if (only_loopback) return netdev.type != net::LinkType::kLoopback || netdev.addresses.empty();
    return !serves_applications(netdev);
  });
  const auto rank = [](const net::Netdev& netdev) {
    return (netdev.up && netdev.running && has_global_address(netdev) ? 0 : 3) + static_cast<int>(netdev.type);
  };
  std::stable_sort(netdevs.begin(), netdevs.end(),
                   [&](const net::Netdev& a, const net::Netdev& b) { return rank(a) < rank(b); });
  return netdevs;
}

// The kernel numbers uverbs devices as they come; ours take the ifindex, which is unique on the host.
inline std::string uverbs_name(const net::Netdev& netdev) {
  return "uverbs" + std::to_string(netdev.index);
}

using net::device_guid;

inline bool port_is_active(const net::Netdev& netdev) {
  return netdev.up && netdev.running;
}

// Physical port states, IBTA 14.2.5.6.
inline constexpr uint8_t kPhysicalPolling = 2;  // switched on, no carrier
inline constexpr uint8_t kPhysicalDisabled = 3;
inline constexpr uint8_t kPhysicalLinkUp = 5;
constexpr uint8_t physical_state(bool up, bool active) {
  return active ? kPhysicalLinkUp : up ? kPhysicalPolling : kPhysicalDisabled;
}

// PortInfo:CapabilityMask of a port: IsIPBasedGidsSupported (IBTA annex A16), nothing else.
inline constexpr uint32_t kPortCapabilities = 1u << 26;

// The GID table never looks smaller than this, so that addresses added later have a place in what an application
// allocated. Entries without an address are empty, as in the kernel.
inline size_t gid_table_length(size_t gids) {
  return std::max<size_t>(gids, 16);
}

struct LinkRate {
  uint32_t up_to_mbps;
  uint8_t width;  // as PortInfo codes it: 1: 1x, 2: 4x, 16: 2x
  uint8_t speed;  // per lane: 1: 2.5 (SDR), 4: 10 (QDR), 32: 25 (EDR), 64: 50 (HDR), 128: 100 Gb/s (NDR)
};

// The smallest InfiniBand link that carries an Ethernet rate.
inline const LinkRate& link_rate(uint32_t mbps) {
  static constexpr LinkRate kEthernetRates[] = {
      {2'500, 1, 1},   {10'000, 1, 4},   {25'000, 1, 32},  {40'000, 2, 4},
      {50'000, 1, 64}, {100'000, 2, 32}, {200'000, 2, 64}, {UINT32_MAX, 2, 128},
  };
  return *std::find_if(std::begin(kEthernetRates), std::end(kEthernetRates),
                       [=](const LinkRate& rate) { return mbps <= rate.up_to_mbps; });
}

}  // namespace uroce::engine
