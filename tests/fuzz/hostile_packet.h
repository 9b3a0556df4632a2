// SPDX-License-Identifier: BSD-2-Clause
// Packets that a peer gone mad, or somebody in its place, could send: any headers, of which most are what the receiver
// would take.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/fuzz/arena.h"
#include "tests/fuzz/input.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace uroce::fuzz {

// BTH to ICRC, the latter to be filled in. `psn`: of the packet. Its keys and addresses are mostly those of `victim`.
std::vector<uint8_t> hostile_packet(Input& input, const Arena& victim, uint32_t path_mtu, wire::Psn psn,
                                    wire::Transport transport = wire::Transport::kRc);

// What XRC and UD packets name most of the time.
inline constexpr uint32_t kSrqn = 5, kQkey = 0x11;

}  // namespace uroce::fuzz
