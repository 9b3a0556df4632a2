// SPDX-License-Identifier: BSD-2-Clause
// main() of the GoogleTest binaries that need no other.
#include <gmock/gmock.h>

#include "tests/run_tests.h"
#include "tests/watched_mutex.h"

int main(int argc, char** argv) {
  uroce::test::watch_mutexes();
  testing::InitGoogleMock(&argc, argv);
  return uroce::test::run_tests();
}
