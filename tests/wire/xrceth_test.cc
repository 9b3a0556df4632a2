// SPDX-License-Identifier: BSD-2-Clause
#include "wire/xrceth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Xrceth, GoldenBytes) {
  expect_on_wire<XrcethView>(Xrceth{.srqn = 0xabcdef}, "00abcdef");
}

TEST(Xrceth, ReservedByteIsIgnoredAndWrittenAsZero) {
  expect_all_ones_becomes<XrcethView, Xrceth>("00ffffff");
}

}  // namespace
}  // namespace uroce::wire
