// SPDX-License-Identifier: BSD-2-Clause
// What every transport header has to do, whatever its fields are.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "tests/wire/hex.h"

namespace uroce::wire {

// `value` is written as exactly `golden` and nothing behind, reads back as itself, and no prefix of it has a view.
template <class View, class Header>
void expect_on_wire(const Header& value, std::string_view golden) {
  const std::vector<uint8_t> expected = hex(golden);
  ASSERT_EQ(expected.size(), Header::kSize);

  for (const uint8_t background : {0x00, 0xff}) {
    std::vector<uint8_t> out(Header::kSize + 1, background);
    value.emit(out.data());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << golden;
    EXPECT_EQ(out.back(), background) << "wrote too much";
  }

  for (size_t size = 0; size < Header::kSize; ++size) {
    const std::vector<uint8_t> cut(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(View::checked(cut)) << size;
  }
  const auto view = View::checked(expected);
  ASSERT_TRUE(view);
  EXPECT_EQ(Header::parse(*view), value);
}

// Reserved bits come in as anything and are ignored: all ones read and written again give `golden`.
template <class View, class Header>
void expect_all_ones_becomes(std::string_view golden) {
  const std::vector<uint8_t> ones(Header::kSize, 0xff);
  std::vector<uint8_t> out(Header::kSize, 0xff);
  Header::parse(*View::checked(ones)).emit(out.data());
  EXPECT_EQ(out, hex(golden));
}

}  // namespace uroce::wire
