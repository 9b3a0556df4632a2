// SPDX-License-Identifier: BSD-2-Clause
#include "wire/reth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Reth, GoldenBytes) {
  expect_on_wire<RethView>(Reth{.va = 0x00007f0123456789, .rkey = 0x8a9b0c1d, .length = 0x80000000},
                           "00007f0123456789 8a9b0c1d 80000000");
}

}  // namespace
}  // namespace uroce::wire
