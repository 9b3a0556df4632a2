// SPDX-License-Identifier: BSD-2-Clause
// main() of the GoogleTest binaries that need no other.
#include <gmock/gmock.h>

#include "tests/run_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return uroce::test::run_tests();
}
