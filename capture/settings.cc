// SPDX-License-Identifier: BSD-2-Clause
#include "capture/settings.h"

#include <charconv>

namespace uroce::io {

std::optional<uint64_t> parse_capture_number(std::string_view text, uint64_t limit) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value > limit) return std::nullopt;
  return value;
}

std::optional<std::vector<uint32_t>> parse_capture_qpns(std::string_view text) {
  constexpr size_t kMost = 16;
  constexpr uint64_t kLargest = 0xffffff;
  std::vector<uint32_t> qpns;
  while (true) {
    const size_t comma = text.find(',');
    const auto qpn = parse_capture_number(text.substr(0, comma), kLargest);
    if (!qpn || qpns.size() == kMost) return std::nullopt;
    qpns.push_back(static_cast<uint32_t>(*qpn));
    if (comma == std::string_view::npos) return qpns;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::string> expand_capture_name(std::string_view pattern, int pid, std::string_view device) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name += pattern[i];
      continue;
    }
    const char what = i + 1 < pattern.size() ? pattern[++i] : '\0';
    if (what == 'p') {
      name += std::to_string(pid);
    } else if (what == 'd') {
      name += device;
    } else if (what == '%') {
      name += '%';
    } else {
      return std::nullopt;
    }
  }
  return name;
}

bool names_device(std::string_view pattern) {
  return expand_capture_name(pattern, 1, "a") != expand_capture_name(pattern, 1, "b");
}

}  // namespace uroce::io
