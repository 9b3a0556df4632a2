// SPDX-License-Identifier: BSD-2-Clause
#include "wire/atomic_eth.h"

#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(AtomicEth, GoldenBytes) {
  expect_on_wire<AtomicEthView>(
      AtomicEth{
          .va = 0x0102030405060708, .rkey = 0x11121314, .swap_add = 0x2122232425262728, .compare = 0x8182838485868788},
      "0102030405060708 11121314 2122232425262728 8182838485868788");
}

TEST(AtomicAckEth, GoldenBytes) {
  expect_on_wire<AtomicAckEthView>(AtomicAckEth{.original = 0x8182838485868788}, "8182838485868788");
}

}  // namespace
}  // namespace uroce::wire
