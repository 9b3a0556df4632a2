// SPDX-License-Identifier: BSD-2-Clause
// Random applications on two hosts, decided by a seed: they connect, accept, reject, disconnect, destroy, die, in any
// state; hosts crash; the network loses, repeats and delays. What is checked meanwhile and at the end is said at the
// head of tests/cm/scenario.cc.
#pragma once

#include <cstdint>
#include <string>

namespace uroce::cm::test {

struct Outcome {
  std::string error;  // empty: as it should be
  uint64_t connects = 0, established = 0, datagrams = 0, crashes = 0;
  uint64_t one_sided = 0;  // established at one side only, until that side did something
};

Outcome run_scenario(uint64_t seed);

}  // namespace uroce::cm::test
