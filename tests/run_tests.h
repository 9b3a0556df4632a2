// SPDX-License-Identifier: BSD-2-Clause
// What main() of every GoogleTest binary ends with.
#pragma once

#include <string>

namespace uroce::test {

// Exit code that CTest takes for "skipped".
inline constexpr int kSkipped = 77;

// Runs the chosen tests. Stricter than GoogleTest: a filter that matches no test fails. Skipped tests are named, and
// written to the file that UROCE_TEST_SKIPS names (tools/test judges them); when all chosen ones were skipped it
// returns kSkipped.
int run_tests();

// For a program that cannot run any test here: notes that and returns kSkipped.
int skip_all(const std::string& reason);

}  // namespace uroce::test
