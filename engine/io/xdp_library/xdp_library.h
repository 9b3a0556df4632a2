// SPDX-License-Identifier: BSD-2-Clause
// libbpf and libxdp, which AF_XDP and DPDK's copy filter need. Two implementations: programs of ours are linked with
// the two libraries (linked.cc); liburoce.so, which lives in other people's processes, loads them when one of these is
// opened (late.cc).
#pragma once

#include <optional>

#include "base/error.h"

namespace uroce::io {

// Call it before the first call of libbpf or libxdp. nullopt: they are there, and stay.
std::optional<IoError> load_xdp_library();

}  // namespace uroce::io
