// SPDX-License-Identifier: BSD-2-Clause
// What this process and its kernel allow, as far as AF_XDP is concerned. Used by AfXdp, and by devices and doctor.
#pragma once

#include <cstddef>
#include <string>

namespace uroce::io {

// Capabilities that AF_XDP needs and this thread does not have, e.g. "CAP_NET_RAW, CAP_BPF"; empty: none is missing.
std::string missing_capabilities();

bool has_net_raw();
bool has_net_admin();

// In a user namespace of its own, where the kernel loads no BPF whatever capabilities are there. False also in one that
// maps all ids onto themselves, and where the kernel is not to be asked.
bool in_user_namespace();

// False: not built with CONFIG_XDP_SOCKETS.
bool kernel_has_af_xdp();

// Bytes that may be locked in memory (RLIMIT_MEMLOCK); SIZE_MAX with CAP_IPC_LOCK or without a limit.
size_t lockable_memory();

}  // namespace uroce::io
