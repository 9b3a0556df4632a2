// `uroce devices`: what the devices are and how their packets would travel.
#pragma once

#include <string>
#include <vector>

#include "cli/device_list.h"
#include "cli/host_probe.h"

namespace uroce::cli {

std::string devices_text(const std::vector<Device>& devices, const Privileges& privileges, bool af_xdp_in_kernel);
std::string devices_json(const std::vector<Device>& devices, const Privileges& privileges, bool af_xdp_in_kernel);

}  // namespace uroce::cli
