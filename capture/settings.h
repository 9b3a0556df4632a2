// SPDX-License-Identifier: BSD-2-Clause
// Capture settings as people write them: in UROCE_CAPTURE_* and on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::io {

// Decimal or 0x...; nullopt: no number, or above `limit`.
std::optional<uint64_t> parse_capture_number(std::string_view text, uint64_t limit);

// "0x11,18": QPNs of 24 bits, at most 16; nullopt: something else.
std::optional<std::vector<uint32_t>> parse_capture_qpns(std::string_view text);

// The name of a capture file: %p becomes the process id, %d the device, %% a percent sign. nullopt: another % in it.
std::optional<std::string> expand_capture_name(std::string_view pattern, int pid, std::string_view device);
// It has %d in it.
bool names_device(std::string_view pattern);

inline constexpr uint32_t kSmallestSnap = 64;  // bytes: up to the BTH of a packet over IPv4
inline constexpr uint64_t kMegabyte = 1000000;

}  // namespace uroce::io
