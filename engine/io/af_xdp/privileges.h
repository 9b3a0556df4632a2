// What this process may do, as far as AF_XDP is concerned. Used by AfXdp.
#pragma once

#include <cstddef>
#include <string>

namespace uroce::io {

// Capabilities that AF_XDP needs and this thread does not have, e.g. "CAP_NET_RAW, CAP_BPF"; empty: none is missing.
std::string missing_capabilities();

// Bytes that may be locked in memory (RLIMIT_MEMLOCK); SIZE_MAX with CAP_IPC_LOCK or without a limit.
size_t lockable_memory();

}  // namespace uroce::io
