// SPDX-License-Identifier: BSD-2-Clause
// Libraries and programs of the distribution load with liburoce.so in the place of libibverbs and find its device.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <memory>
#include <string>

#include "fixture.h"

namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

// Runs with this process's environment: preloaded and in its network namespace.
Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("LD_BIND_NOW=1 " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  outcome.status = pclose(pipe);
  return outcome;
}

bool installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

TEST(Libraries, ProvidersLoadAndDisownTheDevice) {
  for (const auto& [library, question] : {std::pair{"libmlx5.so.1", "mlx5dv_is_supported"},
                                          std::pair{"libmlx4.so.1", ""}, std::pair{"libefa.so.1", ""}}) {
    void* handle = dlopen(library, RTLD_NOW);
    if (handle == nullptr && std::string(dlerror()).find("No such file") != std::string::npos) continue;
    ASSERT_NE(handle, nullptr) << library;
    if (*question == '\0') continue;
    const auto is_supported = reinterpret_cast<bool (*)(ibv_device*)>(dlsym(handle, question));
    ASSERT_NE(is_supported, nullptr);
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT_FALSE(is_supported(list[0])) << library;
    ibv_free_device_list(list);
  }
}

TEST(Programs, PerftestStarts) {
  for (const char* program : {"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_read_lat",
                              "ib_send_lat", "ib_atomic_lat"}) {
    if (!installed(program)) GTEST_SKIP() << program << " is not installed";
    const Outcome outcome = run(std::string(program) + " --version");
    EXPECT_THAT(outcome.output, testing::HasSubstr("Version")) << program;
    EXPECT_THAT(outcome.output, testing::Not(testing::HasSubstr("symbol lookup error"))) << program;
  }
}

TEST(Programs, DevinfoShowsTheDevice) {
  if (!installed("ibv_devinfo")) GTEST_SKIP() << "ibv_devinfo is not installed";
  const Outcome outcome = run("ibv_devinfo -v");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, testing::HasSubstr("uroce_rdma0"));
  EXPECT_THAT(outcome.output, testing::HasSubstr("PORT_ACTIVE"));
  EXPECT_THAT(outcome.output, testing::HasSubstr("GID[  0]:\t\t::ffff:192.0.2.1, RoCE v2"));
}

}  // namespace
