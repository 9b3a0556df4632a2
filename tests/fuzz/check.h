// SPDX-License-Identifier: BSD-2-Clause
// What the fuzzers claim: a claim that does not hold ends the process, and libFuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace uroce::fuzz {

inline void check(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", claim);
  std::abort();
}

}  // namespace uroce::fuzz
