// SPDX-License-Identifier: BSD-2-Clause
// How findings look for people and for programs.
#include "cli/report.h"

#include <gtest/gtest.h>

#include "cli/json.h"

namespace uroce::cli {
namespace {

Report example() {
  return {
      .sections = {{"host",
                    {{Status::kOk, "kernel", "Linux 6.8", ""}, {Status::kFail, "library", "no \"lib\"", "build it"}}}},
      .usable = false,
      .verdict = "not usable"};
}

TEST(Report, Text) {
  EXPECT_EQ(format_text(example(), false),
            "host\n"
            "  [ok]   kernel: Linux 6.8\n"
            "  [fail] library: no \"lib\"\n"
            "         -> build it\n"
            "not usable\n");
}

TEST(Report, ColourOnlyOnTheStatusWord) {
  const std::string text = format_text(example(), true);
  EXPECT_NE(text.find("[\033[32mok\033[0m]   kernel"), std::string::npos);
  EXPECT_NE(text.find("[\033[31mfail\033[0m] library"), std::string::npos);
}

TEST(Report, Json) {
  EXPECT_EQ(
      format_json(example()),
      "{\n"
      "  \"usable\": false,\n"
      "  \"verdict\": \"not usable\",\n"
      "  \"sections\": [\n"
      "    {\"title\": \"host\", \"findings\": [\n"
      "      {\"name\": \"kernel\", \"status\": \"ok\", \"text\": \"Linux 6.8\", \"remedy\": \"\"},\n"
      "      {\"name\": \"library\", \"status\": \"fail\", \"text\": \"no \\\"lib\\\"\", \"remedy\": \"build it\"}\n"
      "    ]}\n"
      "  ]\n"
      "}\n");
}

TEST(JsonString, EscapesWhatJsonForbids) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\u000a\\u0001\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

}  // namespace
}  // namespace uroce::cli
