// SPDX-License-Identifier: BSD-2-Clause
#include "cli/json.h"

#include <fmt/format.h>

namespace uroce::cli {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void JsonList::add(std::string_view piece) {
  if (!text_.empty()) text_ += ", ";
  text_ += piece;
}

void JsonList::add(std::string_view key, std::string_view value) {
  add(fmt::format("{}: {}", json_string(key), value));
}

}  // namespace uroce::cli
