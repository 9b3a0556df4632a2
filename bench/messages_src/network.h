// SPDX-License-Identifier: BSD-2-Clause
// A host with two netdevs that a memory link joins: what the verbs devices of this process are made from.
#pragma once

#include <string>

namespace uroce::messages {

// Before the first verb. `timed`: calls of the packet I/O are measured (split.h).
void make_network(bool timed);

inline constexpr const char* kDeviceNames[2] = {"uroce_memory0", "uroce_memory1"};

// What the engines of both devices have counted, for people.
std::string counters_text();

}  // namespace uroce::messages
