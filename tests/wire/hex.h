// SPDX-License-Identifier: BSD-2-Clause
// Bytes written as hexadecimal text, for golden packets in tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::wire {

// hex("45 c2003c"): spaces are ignored.
inline std::vector<uint8_t> hex(std::string_view text) {
  std::string digits;
  for (char c : text) {
    if (c != ' ') digits += c;
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace uroce::wire
