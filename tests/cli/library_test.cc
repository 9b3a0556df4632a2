// How liburoce.so gets into a program.
#include "cli/library.h"

#include <gtest/gtest.h>

namespace uroce::cli {
namespace {

TEST(PreloadValue, KeepsTheCallersFirst) {
  EXPECT_EQ(preload_value("/lib/liburoce.so", ""), "/lib/liburoce.so");
  EXPECT_EQ(preload_value("/lib/liburoce.so", "/lib/libasan.so.8"), "/lib/libasan.so.8:/lib/liburoce.so");
}

}  // namespace
}  // namespace uroce::cli
