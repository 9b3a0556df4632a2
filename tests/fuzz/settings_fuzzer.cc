// SPDX-License-Identifier: BSD-2-Clause
// Any text as one of the settings that the environment and the command line give: faults, names of captures, QPNs,
// numbers.
//
// Checked: what is taken is within its limits and means the same when it is written out and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "capture/settings.h"
#include "engine/io/fault_spec.h"
#include "tests/fuzz/check.h"

namespace uroce::fuzz {
namespace {

bool is_probability(double value) {
  return value >= 0 && value <= 1;  // not a number is neither
}

void faults(const std::string& text) {
  const auto spec = io::parse_fault_spec(text);
  if (const auto* error = std::get_if<std::string>(&spec)) return check(!error->empty(), "an error says what is wrong");
  const auto& faults = std::get<io::FaultSpec>(spec);
  for (const double value : {faults.drop, faults.duplicate, faults.reorder, faults.corrupt}) {
    check(is_probability(value), "a probability is one");
  }
  const auto again = io::parse_fault_spec(io::format_fault_spec(faults));
  check(std::holds_alternative<io::FaultSpec>(again), "what is written can be read");
  check(std::get<io::FaultSpec>(again).seed == faults.seed, "with the same seed");
}

void names(const std::string& text) {
  const auto name = io::expand_capture_name(text, 123, "uroce_eth0");
  if (!name) return check(text.find('%') != std::string::npos, "only a percent sign can be wrong");
  check(name->size() <= text.size() * 10, "a name grows by what is put in");
  if (text.find('%') == std::string::npos) check(*name == text, "all else stays as it is");
  check(!io::names_device(text) || text.find("%d") != std::string::npos, "%d is the device");
}

void numbers(const std::string& text) {
  for (const uint64_t limit : {uint64_t{0}, uint64_t{255}, UINT64_MAX}) {
    const auto value = io::parse_capture_number(text, limit);
    check(!value || *value <= limit, "a number is within its limit");
    if (value) check(io::parse_capture_number(std::to_string(*value), limit) == value, "and read again the same");
  }
  const auto qpns = io::parse_capture_qpns(text);
  if (!qpns) return;
  check(!qpns->empty() && qpns->size() <= 16, "one QPN to sixteen");
  for (const uint32_t qpn : *qpns) check(qpn <= 0xffffff, "of 24 bits");
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  uroce::fuzz::faults(text);
  uroce::fuzz::names(text);
  uroce::fuzz::numbers(text);
  return 0;
}
