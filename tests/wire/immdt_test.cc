// SPDX-License-Identifier: BSD-2-Clause
#include "wire/immdt.h"

#include <cstring>
#include <gtest/gtest.h>

#include "tests/wire/header_checks.h"

namespace uroce::wire {
namespace {

TEST(ImmDt, BytesKeepTheirOrder) {
  uint32_t network_value;  // as an application makes it with htonl()
  const uint8_t bytes[] = {0x81, 0x92, 0xa3, 0xb4};
  std::memcpy(&network_value, bytes, sizeof bytes);
  expect_on_wire<ImmDtView>(ImmDt{.network_value = network_value}, "8192a3b4");
}

}  // namespace
}  // namespace uroce::wire
