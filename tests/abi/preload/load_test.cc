// SPDX-License-Identifier: BSD-2-Clause
// Loading libraries by hand: libibverbs is ours by whatever name, and whatever else is loaded is searched for as
// without us.
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>

namespace {

// The file from which the handle's ibv_get_device_list comes.
std::string origin_of_verbs(void* handle) {
  Dl_info info{};
  void* verbs = handle == nullptr ? nullptr : dlsym(handle, "ibv_get_device_list");
  return verbs != nullptr && dladdr(verbs, &info) != 0 ? info.dli_fname : "nowhere";
}

class Libibverbs : public testing::TestWithParam<const char*> {};

TEST_P(Libibverbs, IsOurs) {
  void* handle = dlopen(GetParam(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_TRUE(origin_of_verbs(handle).ends_with("/liburoce.so")) << origin_of_verbs(handle);
  dlclose(handle);
}

INSTANTIATE_TEST_SUITE_P(Load, Libibverbs,
                         testing::Values("libibverbs.so.1", "libibverbs.so", SYSTEM_LIBRARY,
                                         "/nonexistent/libibverbs.so.1.14.44.0"));

TEST(Load, OtherLibrariesAreNot) {
  for (const char* name : {"/nonexistent/libibverbs.so.2", "/nonexistent/libibverbs.so.10",
                           "/nonexistent/xlibibverbs.so", "libibverbs.so/other", ""}) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (*name == '\0') {
      EXPECT_NE(handle, nullptr) << "an empty name is the program";
    } else {
      EXPECT_EQ(handle, nullptr) << name;
    }
  }
  EXPECT_NE(dlopen(nullptr, RTLD_NOW), nullptr);
}

// The loader searches the DT_RUNPATH of dlopen()'s caller: it must see this program, not the library with the hook.
TEST(Load, RunpathOfTheCallerCounts) {
  void* handle = dlopen("libfiles_plugin.so", RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
}

}  // namespace
