// SPDX-License-Identifier: BSD-2-Clause
// JSON as the commands print it: strings, and lists of what is JSON already. Used by devices, doctor, stat and check.
#pragma once

#include <string>
#include <string_view>

namespace uroce::cli {

// `text` as a JSON string with its quotes.
std::string json_string(std::string_view text);

// Pieces with commas between.
class JsonList {
 public:
  void add(std::string_view piece);
  // `value`: JSON.
  void add(std::string_view key, std::string_view value);
  std::string object() const { return "{" + text_ + "}"; }
  std::string array() const { return "[" + text_ + "]"; }

 private:
  std::string text_;
};

}  // namespace uroce::cli
