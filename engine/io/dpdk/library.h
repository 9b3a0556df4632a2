// SPDX-License-Identifier: BSD-2-Clause
// uroce_dpdk.so, and with it DPDK: loaded when a port is opened, and in no process that does not ask for one.
#pragma once

#include <string>
#include <variant>

#include "base/error.h"
#include "engine/io/dpdk/calls.h"

namespace uroce::io {

inline constexpr const char* kDpdkModule = "uroce_dpdk.so";

// Its functions. `path`: where it is; empty: beside liburoce.so. One of another build is refused.
std::variant<const DpdkCalls*, IoError> load_dpdk(const std::string& path);

}  // namespace uroce::io
