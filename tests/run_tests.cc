// SPDX-License-Identifier: BSD-2-Clause
#include "tests/run_tests.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace uroce::test {
namespace {

// The last line of what GTEST_SKIP() was given.
std::string reason_of(const testing::TestInfo& test) {
  std::string reason;
  for (int i = 0; i < test.result()->total_part_count(); ++i) {
    const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
    if (part.skipped()) reason = part.message();
  }
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  return reason.substr(reason.rfind('\n') + 1);
}

// To the reader, and to tools/test.
void note(const std::string& lines) {
  std::fprintf(stderr, "skipped:\n%s", lines.c_str());
  const char* const path = std::getenv("UROCE_TEST_SKIPS");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return;
  std::fputs(lines.c_str(), file);
  std::fclose(file);
}

class SkipReport final : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    ++count_;
    lines_ += std::string(program_invocation_short_name) + ": " + test.test_suite_name() + "." + test.name() + ": " +
              reason_of(test) + "\n";
  }

  int count() const { return count_; }

  const std::string& lines() const { return lines_; }

 private:
  int count_ = 0;
  std::string lines_;
};

}  // namespace

int run_tests() {
  testing::UnitTest& all = *testing::UnitTest::GetInstance();
  auto* const skips = new SkipReport;
  all.listeners().Append(skips);  // which owns it
  const int result = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return result;
  if (all.test_to_run_count() == 0) {
    std::fputs("no test matches the filter\n", stderr);
    return 1;
  }
  if (skips->count() > 0) note(skips->lines());
  return result == 0 && skips->count() == all.test_to_run_count() ? kSkipped : result;
}

int skip_all(const std::string& reason) {
  note(std::string(program_invocation_short_name) + ": all: " + reason + "\n");
  return kSkipped;
}

}  // namespace uroce::test
