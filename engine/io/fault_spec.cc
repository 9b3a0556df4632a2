// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/fault_spec.h"

#include <charconv>
#include <optional>
#include <sstream>
#include <vector>

namespace uroce::io {
namespace {

struct Probability {
  const char* name;
  double FaultSpec::*member;
};

constexpr Probability kProbabilities[] = {{"drop", &FaultSpec::drop},
                                          {"dup", &FaultSpec::duplicate},
                                          {"reorder", &FaultSpec::reorder},
                                          {"corrupt", &FaultSpec::corrupt}};

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_probability(std::string_view text) {
  const bool percent = !text.empty() && text.back() == '%';
  if (percent) text.remove_suffix(1);
  const std::optional<double> number = parse_number<double>(text);
  if (!number) return std::nullopt;
  const double value = percent ? *number / 100 : *number;
  if (!(value >= 0 && value <= 1)) return std::nullopt;  // also refuses "nan"
  return value;
}

std::string bad_word(std::string_view word) {
  return "bad fault '" + std::string(word) +
         "'; valid: drop=P dup=P reorder=P corrupt=P seed=N, comma separated, each at most once, P a percentage such "
         "as 0.5% or a fraction from 0 to 1";
}

bool apply_word(std::string_view name, std::string_view value, FaultSpec& spec) {
  if (name == "seed") {
    const std::optional<uint64_t> seed = parse_number<uint64_t>(value);
    if (seed) spec.seed = *seed;
    return seed.has_value();
  }
  for (const Probability& probability : kProbabilities) {
    if (name != probability.name) continue;
    const std::optional<double> p = parse_probability(value);
    if (p) spec.*probability.member = *p;
    return p.has_value();
  }
  return false;
}

}  // namespace

std::variant<FaultSpec, std::string> parse_fault_spec(std::string_view text) {
  FaultSpec spec;
  std::vector<std::string_view> seen;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) return bad_word(word);
    const std::string_view name = word.substr(0, equals);
    for (const std::string_view& earlier : seen) {
      if (earlier == name) return bad_word(word);
    }
    seen.push_back(name);
    if (!apply_word(name, word.substr(equals + 1), spec)) return bad_word(word);
    if (comma == std::string_view::npos) return spec;
    text.remove_prefix(comma + 1);
  }
}

std::string format_fault_spec(const FaultSpec& spec) {
  std::ostringstream text;
  for (const Probability& probability : kProbabilities) {
    if (spec.*probability.member > 0) text << probability.name << '=' << spec.*probability.member * 100 << "%,";
  }
  text << "seed=" << spec.seed;
  return text.str();
}

}  // namespace uroce::io
