// SPDX-License-Identifier: BSD-2-Clause
// What the real sysfs knows: the bus device below a netdev, and the host's CPUs. Reads only. Used by view.cc.
#pragma once

#include <string>

#include "abi/preload/sysfs_view/contents.h"
#include "engine/net/net_view.h"

namespace uroce::files {

// The directory of the device below a netdev, e.g. "/sys/devices/pci0000:00/0000:00:03.0"; empty when it has none, as
// virtual netdevs, or when /sys is that of another network namespace.
std::string hardware_of(const net::Netdev& netdev);

Cpus online_cpus();

}  // namespace uroce::files
