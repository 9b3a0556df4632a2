// SPDX-License-Identifier: BSD-2-Clause
// What a device is called: uroce_NETDEV, or as the user has it, for programs and scripts that insist on mlx5_0 or rxe0.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/concat.h"
#include "engine/net/device_identity.h"
#include "engine/net/net_view.h"

namespace uroce::engine {

inline constexpr std::string_view kDevicePrefix = "uroce_";
inline constexpr size_t kLongestDeviceName = 63;  // IBV_SYSFS_NAME_MAX, IB_DEVICE_NAME_MAX less the NUL

// `names`: NETDEV=NAME (UROCE_NAMES) with commas between, which wrong_device_names() had nothing to say of.
inline std::string device_name(const net::Netdev& netdev, const std::string& names) {
  for (const std::string& part : split_names(names)) {
    const size_t equals = part.find('=');
    if (equals != std::string::npos && part.substr(0, equals) == netdev.name) return part.substr(equals + 1);
  }
  return std::string(kDevicePrefix) + netdev.name;
}

// Letters, digits, '_', '-' and '.', none of these first: it is a name of a directory.
inline bool is_device_name(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto allowed = [&](char c) { return alphanumeric(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kLongestDeviceName && alphanumeric(name.front()) &&
         std::all_of(name.begin(), name.end(), allowed);
}

// What is wrong with UROCE_NAMES; empty: nothing.
inline std::string wrong_device_names(const std::string& names) {
  if (names.empty()) return {};
  std::set<std::string> netdevs, devices;
  for (const std::string& part : split_names(names)) {
    const size_t equals = part.find('=');
    const std::string netdev = part.substr(0, equals);
    if (equals == std::string::npos || netdev.empty()) {
      return concat("'", part, "' is not NETDEV=NAME, e.g. eth0=mlx5_0; several with commas between");
    }
    const std::string device = part.substr(equals + 1);
    if (!is_device_name(device)) {
      return concat("'", device, "' cannot be the name of a device: up to 63 letters, digits, '_', '-' and '.', ",
                    "the first one a letter or digit");
    }
    const bool of_another =
        device.compare(0, kDevicePrefix.size(), kDevicePrefix) == 0 && device.substr(kDevicePrefix.size()) != netdev;
    if (of_another) return concat("'", device, "' is what the device of another netdev is called; choose another name");
    if (!netdevs.insert(netdev).second) return concat("netdev '", netdev, "' has two names");
    if (!devices.insert(device).second) return concat("two devices would be called '", device, "'");
  }
  return {};
}

}  // namespace uroce::engine
