// SPDX-License-Identifier: BSD-2-Clause
// Process set-up shared by xsk_bench and socket_bench.
#include "bench/limits_src/process.h"

#include <cerrno>
#include <cstdio>
#include <sched.h>
#include <signal.h>
#include <system_error>

namespace uroce::limits {
namespace {
volatile sig_atomic_t stop_flag = 0;
void on_signal(int) {
  stop_flag = 1;
}
}  // namespace

void pin_to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw std::system_error(errno, std::generic_category(), "pin to CPU");
}

void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // no SA_RESTART: a blocked recv() has to return
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() {
  return stop_flag != 0;
}

void announce_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

}  // namespace uroce::limits
