// SPDX-License-Identifier: BSD-2-Clause
#include "wire/bytes.h"

#include <gtest/gtest.h>

#include "tests/wire/hex.h"

namespace uroce::wire {
namespace {

constexpr uint8_t kBytes[] = {0x00, 0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8};

TEST(Bytes, BigEndianLoadsTheFirstByteHighest) {
  static_assert(load_be16(kBytes + 1) == 0x8192);
  static_assert(load_be24(kBytes + 1) == 0x8192a3);
  static_assert(load_be32(kBytes + 1) == 0x8192a3b4);
  static_assert(load_be64(kBytes + 1) == 0x8192a3b4c5d6e7f8);
}

TEST(Bytes, LittleEndianLoadsTheFirstByteLowest) {
  static_assert(load_le32(kBytes + 1) == 0xb4a39281);
  static_assert(load_le64(kBytes + 1) == 0xf8e7d6c5b4a39281);
}

TEST(Bytes, StoresTouchTheirBytesOnly) {
  std::vector<uint8_t> out(4, 0xee);
  store_be16(&out[1], 0x8192);
  EXPECT_EQ(out, hex("ee8192ee"));

  out.assign(5, 0xee);
  store_be24(&out[1], 0xff8192a3);  // the upper byte is cut
  EXPECT_EQ(out, hex("ee8192a3ee"));

  out.assign(6, 0xee);
  store_be32(&out[1], 0x8192a3b4);
  EXPECT_EQ(out, hex("ee8192a3b4ee"));
  store_le32(&out[1], 0x8192a3b4);
  EXPECT_EQ(out, hex("eeb4a39281ee"));

  out.assign(10, 0xee);
  store_be64(&out[1], 0x8192a3b4c5d6e7f8);
  EXPECT_EQ(out, hex("ee8192a3b4c5d6e7f8ee"));
}

}  // namespace
}  // namespace uroce::wire
