// SPDX-License-Identifier: BSD-2-Clause
// What is read from the environment, and from whose.
#include "process/options.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace uroce::engine {
namespace {

constexpr uid_t kNobody = 65534;
// The exit code of this program when it is started to say what it reads (kReadOnly): see ReadsTheEnvironment.
constexpr char kReadOnly[] = "UROCE_OPTIONS_TEST_READ";
constexpr int kNothingRead = 10, kRead = 11, kNotPrivileged = 12;

// Before GoogleTest's main(): the copy that is started below says what it reads, and ends.
[[maybe_unused]] const bool told = [] {
  if (std::getenv(kReadOnly) == nullptr) return false;
  if (getauxval(AT_SECURE) == 0) _exit(kNotPrivileged);
  Options options;
  const bool good = !Options::from_environment(options).has_value();
  _exit(good && options.netdev.empty() && options.capture.empty() ? kNothingRead : kRead);
}();

TEST(Options, ComeFromTheEnvironment) {
  setenv("UROCE_NETDEV", "eth7", 1);
  setenv("UROCE_CAPTURE", "/tmp/x.pcapng", 1);
  Options options;
  EXPECT_EQ(Options::from_environment(options), std::nullopt);
  unsetenv("UROCE_NETDEV");
  unsetenv("UROCE_CAPTURE");
  EXPECT_EQ(options.netdev, "eth7");
  EXPECT_EQ(options.capture, "/tmp/x.pcapng");
}

TEST(Options, PacketIo) {
  using Io = Options::Io;
  const std::tuple<const char*, Io, const char*> good[] = {
      {"", Io::kAuto, ""},   {"auto", Io::kAuto, ""}, {"af_xdp", Io::kAfXdp, ""},
      {"udp", Io::kUdp, ""}, {"dpdk", Io::kDpdk, ""}, {"dpdk:net_tap0,iface=x", Io::kDpdk, "net_tap0,iface=x"}};
  for (const auto& [text, io, devargs] : good) {
    Options options;
    EXPECT_TRUE(Options::parse_io(text, options)) << text;
    EXPECT_EQ(options.io, io) << text;
    EXPECT_EQ(options.dpdk.text(), devargs);
  }
  for (const char* const text : {"dpdk:", "dpdk: ", "dpdk:-h", "dpdkx", "AF_XDP", "udp,", "dpdk:net_null0,queues=99"}) {
    Options options;
    EXPECT_FALSE(Options::parse_io(text, options)) << text;
  }
}

TEST(Options, CongestionControl) {
  using congestion::Algorithm;
  for (const auto& [value, algorithm] :
       {std::pair("auto", Algorithm::kAuto), std::pair("dcqcn", Algorithm::kDcqcn),
        std::pair("delay", Algorithm::kDelay), std::pair("off", Algorithm::kOff), std::pair("", Algorithm::kAuto)}) {
    setenv("UROCE_CC", value, 1);
    Options options;
    EXPECT_EQ(Options::from_environment(options), std::nullopt);
    EXPECT_EQ(options.congestion, algorithm) << value;
  }
  setenv("UROCE_CC", "fast", 1);
  Options options;
  EXPECT_EQ(Options::from_environment(options), "UROCE_CC=fast is not known; use auto, dcqcn, delay or off");
  unsetenv("UROCE_CC");
}

TEST(Options, Patience) {
  Options options;
  EXPECT_EQ(Options::from_environment(options), std::nullopt);
  EXPECT_EQ(options.patience, Duration{}) << "as timeout and retry count say";
  for (const uint32_t seconds : {1, 60, 86400}) {
    setenv("UROCE_PATIENCE", std::to_string(seconds).c_str(), 1);
    EXPECT_EQ(Options::from_environment(options), std::nullopt);
    EXPECT_EQ(options.patience, std::chrono::seconds(seconds));
  }
  for (const char* const wrong : {"0", "-1", "86401", "1.5", "10s", "for ever", "99999999999999999999"}) {
    setenv("UROCE_PATIENCE", wrong, 1);
    EXPECT_EQ(Options::from_environment(options),
              std::string("UROCE_PATIENCE=") + wrong + ": a number from 1 to 86400");
  }
  unsetenv("UROCE_PATIENCE");
}

// Where uroce stands in for libibverbs, a set-user-ID program loads it with the environment of whoever starts it.
TEST(Options, OfAProgramThatGainedPrivilegesDoNotComeFromItsCaller) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: makes a set-user-ID program";
  std::string directory = "/tmp/uroce-options-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  chmod(directory.c_str(), 0755);
  const std::string program = directory + "/copy";
  std::filesystem::copy_file("/proc/self/exe", program);
  chmod(program.c_str(), 04755);
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    setenv(kReadOnly, "1", 1);
    setenv("UROCE_NETDEV", "eth7", 1);
    setenv("UROCE_CAPTURE", "/tmp/x.pcapng", 1);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_NE(WEXITSTATUS(status), kNotPrivileged) << "/tmp ignores set-user-ID bits (mount option nosuid)";
  EXPECT_EQ(WEXITSTATUS(status), kNothingRead);
}

}  // namespace
}  // namespace uroce::engine
