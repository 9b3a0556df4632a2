// SPDX-License-Identifier: BSD-2-Clause
// Why programs see no device, or `lo` alone, and what to do.
#pragma once

#include <string>
#include <vector>

#include "engine/net/net_view.h"

namespace uroce::cli {

// `netdevs`: those of NetView. `names`: UROCE_NETDEV. Empty: there are devices that nobody has to be told about.
std::string why_no_devices(const std::vector<net::Netdev>& netdevs, const std::string& names);

}  // namespace uroce::cli
