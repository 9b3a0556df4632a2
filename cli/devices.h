// SPDX-License-Identifier: BSD-2-Clause
// `uroce devices`: what the devices are and how their packets would travel.
#pragma once

#include <string>
#include <vector>

#include "cli/device_list.h"

namespace uroce::cli {

// Of one device at least.
std::string devices_text(const std::vector<Device>& devices);
// A line for each GID, as show_gids has them.
std::string gids_text(const std::vector<Device>& devices);
std::string devices_json(const std::vector<Device>& devices);

// The packet I/O that programs would get: "udp", "af_xdp, native", "none".
std::string io_name(const Device& device);

}  // namespace uroce::cli
