// SPDX-License-Identifier: BSD-2-Clause
#include "wire/ieth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Ieth, GoldenBytes) {
  expect_on_wire<IethView>(Ieth{.rkey = 0x8a9b0c1d}, "8a9b0c1d");
}

}  // namespace
}  // namespace uroce::wire
