// SPDX-License-Identifier: BSD-2-Clause
#include "wire/deth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(Deth, GoldenBytes) {
  expect_on_wire<DethView>(Deth{.qkey = 0x80010000, .source_qp = kGsiQpn}, "80010000 00000001");
  expect_on_wire<DethView>(Deth{.qkey = 0x01234567, .source_qp = Qpn(0xabcdef)}, "01234567 00abcdef");
}

TEST(Deth, ReservedByteIsIgnoredAndWrittenAsZero) {
  expect_all_ones_becomes<DethView, Deth>("ffffffff 00ffffff");
}

}  // namespace
}  // namespace uroce::wire
