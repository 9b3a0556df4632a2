// SPDX-License-Identifier: BSD-2-Clause
// How liburoce.so gets into a program.
#include "cli/library.h"

#include <gtest/gtest.h>

namespace uroce::cli {
namespace {

TEST(PreloadValue, KeepsTheCallersFirst) {
  EXPECT_EQ(preload_value("/lib/liburoce.so", ""), "/lib/liburoce.so");
  EXPECT_EQ(preload_value("/lib/liburoce.so", "/lib/libasan.so.8"), "/lib/libasan.so.8:/lib/liburoce.so");
}

TEST(SearchPathValue, PutsTheLibrarysDirectoryFirst) {
  EXPECT_EQ(search_path_value("/lib/uroce/liburoce.so", ""), "/lib/uroce") << "no empty word: the current directory";
  EXPECT_EQ(search_path_value("/lib/uroce/liburoce.so", "/opt/a:/opt/b"), "/lib/uroce:/opt/a:/opt/b");
}

}  // namespace
}  // namespace uroce::cli
