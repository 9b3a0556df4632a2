// SPDX-License-Identifier: BSD-2-Clause
// What uroce and uroced say of wrong usage, in the form of all their messages: what is wrong, why, what to do. CLI11's
// own words have the names of its types in them, and bounds that nobody has set. Used by cli/main.cc and uroced.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/concat.h"

namespace uroce::usage {

inline std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", number);
  return text;
}

// A check of an option: "" if the text is a number from `low` to `high`; without `high` there is no bound.
inline auto number_from(double low, double high = HUGE_VAL) {
  return [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && low <= number && number <= high) return "";
    return concat(text, " is no number from ", number_text(low), high == HUGE_VAL ? " on" : " to ",
                  high == HUGE_VAL ? "" : number_text(high));
  };
}

inline auto one_of(std::initializer_list<const char*> words) {
  return [allowed = std::vector<std::string>(words.begin(), words.end())](const std::string& text) -> std::string {
    std::string all;
    for (const std::string& word : allowed) {
      if (text == word) return "";
      all += (all.empty() ? "" : ", ") + word;
    }
    return concat(text, " is none of ", all);
  };
}

// `text` with `instead` in place of `between`, if that is there.
inline std::string reworded(const std::string& text, const std::string& between, const std::string& instead) {
  const size_t at = text.find(between);
  return at == std::string::npos ? text : concat(text.substr(0, at), instead, text.substr(at + between.size()));
}

// What is wrong with the command line, without the name of the program and without what to do about it.
inline std::string describe(const CLI::ParseError& error) {
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::string surplus = what.substr(what.find(": ") + 2);
    if (surplus.starts_with("-- ")) surplus.erase(0, 3);  // uroce's own, in front of a command
    return concat(surplus, ": not expected here");
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string option = what.substr(0, what.find(": "));
    if (what.ends_with(" missing")) return concat(option, ": its value is missing");
    if (what.find(": At Most ") != std::string::npos) return concat(option, ": given more than once");
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return reworded(what, " excludes ", ": not with ");
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) return reworded(what, " requires ", ": only with ");
  if (!what.empty()) what.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(what.front())));
  return what;
}

}  // namespace uroce::usage
