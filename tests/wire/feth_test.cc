// SPDX-License-Identifier: BSD-2-Clause
#include "wire/feth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Feth, GoldenBytes) {
  expect_on_wire<FethView>(Feth{.placement_type = Feth::kPersistence, .selectivity = Feth::kRange}, "00000002");
  expect_on_wire<FethView>(
      Feth{.placement_type = Feth::kGlobalVisibility | Feth::kPersistence, .selectivity = Feth::kWholeRegion},
      "00000013");
}

TEST(Feth, ReservedBitsAreIgnoredAndWrittenAsZero) {
  expect_all_ones_becomes<FethView, Feth>("0000003f");
}

}  // namespace
}  // namespace uroce::wire
