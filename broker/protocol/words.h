// SPDX-License-Identifier: BSD-2-Clause
// Reading lines of words that somebody else has written (statistics.h, connections.h).
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/printable.h"

namespace uroce::broker {

// Up to `mark`, which is taken away with it.
inline std::string_view take_until(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// The words of a line, which is correct as long as nothing has failed.
class Words {
 public:
  static constexpr size_t kLongestWord = 64;
  static constexpr size_t kLongestText = 160;

  explicit Words(std::string_view line) : line_(line) {}

  std::string_view word() {
    const std::string_view taken = take_until(line_, ' ');
    good_ = good_ && !taken.empty() && taken.size() <= kLongestWord;
    return taken;
  }
  std::string name() {
    const std::string_view taken = word();
    good_ = good_ && std::all_of(taken.begin(), taken.end(),
                                 [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
    return std::string(taken);
  }
  template <class T>
  T number() {
    const std::string_view taken = word();
    T value{};
    const auto [end, error] = std::from_chars(taken.data(), taken.data() + taken.size(), value);
    good_ = good_ && error == std::errc{} && end == taken.data() + taken.size();
    return value;
  }
  std::string rest() { return printable(std::exchange(line_, {}).substr(0, kLongestText)); }
  bool good() const { return good_; }

 private:
  std::string_view line_;
  bool good_ = true;
};

}  // namespace uroce::broker
