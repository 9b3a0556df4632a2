// SPDX-License-Identifier: BSD-2-Clause
// Turns what the kernel says when AF_XDP cannot be opened into one line that names the cause and one that names the
// remedy. Used by AfXdp::open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/io/af_xdp/xdp_program.h"

namespace uroce::io {

// EPERM, whichever call said it.
IoError permission_error(const std::string& netdev);
IoError netdev_down_error(const std::string& netdev);
// It strips VLAN tags, and these VLAN netdevs are above it.
IoError vlan_error(const std::string& netdev, const std::vector<std::string>& vlans);
// Another XDP program is attached: a foreign one, or ours in another process.
IoError program_present_error(const std::string& netdev, const AttachedProgram& program);
// Loading or attaching the program failed.
IoError program_load_error(const std::string& netdev, int error);
IoError program_attach_error(const std::string& netdev, int ifindex, uint32_t mtu, int error,
                             const XdpProgram& program);
// Registering `size` bytes of UMEM failed.
IoError umem_error(const std::string& netdev, int error, size_t size);
// Creating or binding the socket of a queue failed.
IoError socket_error(const std::string& netdev, uint32_t queue, int error);

}  // namespace uroce::io
