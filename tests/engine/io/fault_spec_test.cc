// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/fault_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace uroce::io {
namespace {

TEST(FaultSpec, ReadsPercentagesAndFractions) {
  const auto result = parse_fault_spec("drop=1%,dup=0.5%,reorder=0.01,corrupt=0.1%,seed=7");
  ASSERT_TRUE(std::holds_alternative<FaultSpec>(result)) << std::get<std::string>(result);
  const auto& spec = std::get<FaultSpec>(result);
  EXPECT_DOUBLE_EQ(spec.drop, 0.01);
  EXPECT_DOUBLE_EQ(spec.duplicate, 0.005);
  EXPECT_DOUBLE_EQ(spec.reorder, 0.01);
  EXPECT_DOUBLE_EQ(spec.corrupt, 0.001);
  EXPECT_EQ(spec.seed, 7u);
}

TEST(FaultSpec, WordsAreOptionalAndInAnyOrder) {
  const auto result = parse_fault_spec("seed=18446744073709551615,drop=100%");
  ASSERT_TRUE(std::holds_alternative<FaultSpec>(result));
  EXPECT_DOUBLE_EQ(std::get<FaultSpec>(result).drop, 1);
  EXPECT_EQ(std::get<FaultSpec>(result).seed, UINT64_MAX);
}

TEST(FaultSpec, FormatsWhatItReads) {
  const char* text = "drop=1%,dup=0.5%,reorder=25%,corrupt=0.1%,seed=7";
  EXPECT_EQ(format_fault_spec(std::get<FaultSpec>(parse_fault_spec(text))), text);
}

TEST(FaultSpec, NamesTheBadWordAndTheValidOnes) {
  const struct {
    const char* text;
    const char* word;
  } cases[] = {{"", "''"},
               {"drop", "'drop'"},
               {"drop=", "'drop='"},
               {"drop=%", "'drop=%'"},
               {"drop=x", "'drop=x'"},
               {"drop=1%,loss=1%", "'loss=1%'"},
               {"drop=101%", "'drop=101%'"},
               {"dup=1.01", "'dup=1.01'"},
               {"dup=-1%", "'dup=-1%'"},
               {"reorder=nan", "'reorder=nan'"},
               {"corrupt=1%%", "'corrupt=1%%'"},
               {"seed=1.5", "'seed=1.5'"},
               {"seed=-1", "'seed=-1'"},
               {"drop=1%,drop=2%", "'drop=2%'"},
               {"drop=1%,", "''"},
               {"drop=1 %", "'drop=1 %'"},
               {" drop=1%", "' drop=1%'"}};
  for (const auto& [text, word] : cases) {
    SCOPED_TRACE(text);
    const auto result = parse_fault_spec(text);
    ASSERT_TRUE(std::holds_alternative<std::string>(result));
    EXPECT_THAT(std::get<std::string>(result), testing::HasSubstr(word));
    EXPECT_THAT(std::get<std::string>(result), testing::HasSubstr("drop=P dup=P reorder=P corrupt=P seed=N"));
  }
}

}  // namespace
}  // namespace uroce::io
