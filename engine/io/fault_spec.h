// SPDX-License-Identifier: BSD-2-Clause
// What UROCE_FAULTS asks for: the faults that FaultInjector makes, and their text form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace uroce::io {

// Probabilities per packet, each 0..1 and independent of the others.
struct FaultSpec {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  uint64_t seed = 1;
};

// Reads "drop=1%,dup=0.5%,reorder=0.01,corrupt=0.1%,seed=7": percent or plain fraction, every word optional, each at
// most once. On an error: one line that names the bad word and what is valid.
std::variant<FaultSpec, std::string> parse_fault_spec(std::string_view text);

// The same form back: "drop=1%,dup=0.5%,seed=7"; zero probabilities are left out.
std::string format_fault_spec(const FaultSpec& spec);

}  // namespace uroce::io
