// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/address_handles.h"

#include <array>
#include <gtest/gtest.h>

namespace uroce::engine {
namespace {

TEST(AddressHandlesTest, NumbersNameWhatWasAddedAndNothingElse) {
  AddressHandles handles(3);
  EXPECT_EQ(handles.find(0), nullptr);
  std::array<uint32_t, 3> numbers;
  for (uint32_t& number : numbers) {
    number = handles.add(Path{});
    ASSERT_NE(number, 0u);
  }
  EXPECT_EQ(handles.add(Path{}), 0u) << "three is all";
  EXPECT_TRUE(handles.remove(numbers[1]));
  EXPECT_FALSE(handles.remove(numbers[1]));
  EXPECT_EQ(handles.find(numbers[1]), nullptr);
  const uint32_t again = handles.add(Path{});
  EXPECT_NE(again, numbers[1]);
  EXPECT_EQ(handles.find(numbers[1]), nullptr) << "the old number stays dead";
  EXPECT_NE(handles.find(again), nullptr);
  EXPECT_NE(handles.find(numbers[0]), handles.find(numbers[2]));
}

}  // namespace
}  // namespace uroce::engine
