// SPDX-License-Identifier: BSD-2-Clause
#include "tests/stress/report.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <unistd.h>

namespace uroce::stress {
namespace {

std::string& command() {
  static auto* const text = new std::string;
  return *text;
}

void print_stack(int) {
  void* frames[40];
  const int count = backtrace(frames, 40);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  static_cast<void>(!write(STDERR_FILENO, "\n", 1));
}

}  // namespace

void set_command(const std::string& text) {
  command() = text;
}

void give_up(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("FAILED: ", stderr);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "\nagain: %s\n", command().c_str());
  std::fflush(nullptr);
  _exit(1);
}

Watchdog::Watchdog(uint32_t limit_seconds) : limit_(limit_seconds) {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs before a signal handler does
  std::signal(SIGUSR2, print_stack);
}

void Watchdog::watch(pthread_t thread, const Activity& activity, const std::string& name) {
  all_.push_back({thread, &activity, name});
}

void Watchdog::check() {
  for (Watched& watched : all_) {
    const uint64_t steps = watched.activity->steps.load(std::memory_order_relaxed);
    watched.seconds_still = steps == watched.last_steps ? watched.seconds_still + 1 : 0;
    watched.last_steps = steps;
    if (watched.seconds_still >= limit_) report(watched);
  }
}

void Watchdog::report(const Watched& stuck) {
  for (const Watched& watched : all_) {
    std::fprintf(stderr, "%s: %s, step %lu\n", watched.name.c_str(),
                 watched.activity->doing.load(std::memory_order_relaxed),
                 static_cast<unsigned long>(watched.activity->steps.load(std::memory_order_relaxed)));
    pthread_kill(watched.thread, SIGUSR2);
    usleep(200'000);
  }
  give_up("%s hangs", stuck.name.c_str());
}

}  // namespace uroce::stress
