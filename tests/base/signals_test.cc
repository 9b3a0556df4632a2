// SPDX-License-Identifier: BSD-2-Clause
#include "base/signals.h"

#include <csignal>
#include <gtest/gtest.h>

namespace uroce {
namespace {

void on_signal(int) {}

class Signals : public testing::TestWithParam<int> {
 protected:
  void install(int flags) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    ASSERT_EQ(sigaction(GetParam(), &action, nullptr), 0);
  }
  void SetUp() override { ASSERT_EQ(sigaction(GetParam(), nullptr, &before_), 0); }
  void TearDown() override { sigaction(GetParam(), &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_P(Signals, CallsGoOnAfterHandlersThatWereInstalledSo) {
  EXPECT_TRUE(calls_go_on_after_signals());
  install(SA_RESTART);
  EXPECT_TRUE(calls_go_on_after_signals());
  install(0);
  EXPECT_FALSE(calls_go_on_after_signals());
}

INSTANTIATE_TEST_SUITE_P(, Signals, testing::Values(SIGHUP, SIGALRM, SIGUSR1, SIGTERM, SIGRTMIN, SIGRTMAX));

TEST(Faults, DoNotCount) {
  struct sigaction action {
  }, before{};
  action.sa_handler = on_signal;
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  EXPECT_TRUE(calls_go_on_after_signals());
  sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace
}  // namespace uroce
