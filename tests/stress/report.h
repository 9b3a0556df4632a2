// SPDX-License-Identifier: BSD-2-Clause
// How the stress programs give up, and what they were doing when they hang.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <pthread.h>
#include <string>
#include <vector>

namespace uroce::stress {

// Prints the message and how to repeat the run, and ends the process with exit code 1.
[[noreturn]] void give_up(const char* format, ...) __attribute__((format(printf, 1, 2)));
// "stress --seed 1", for that.
void set_command(const std::string& command);

// What a thread is at. Written by the thread, read by the watchdog.
struct Activity {
  std::atomic<const char*> doing{"start"};
  std::atomic<uint64_t> steps{0};

  void at(const char* what) {
    doing.store(what, std::memory_order_relaxed);
    steps.fetch_add(1, std::memory_order_relaxed);
  }
};

// Sees to it that every thread gets on. A thread that makes no step for `limit_seconds` ends the process: what each was
// doing and their stacks go to stderr.
class Watchdog {
 public:
  explicit Watchdog(uint32_t limit_seconds);
  void watch(pthread_t thread, const Activity& activity, const std::string& name);
  // Call about once a second.
  void check();

 private:
  struct Watched {
    pthread_t thread;
    const Activity* activity;
    std::string name;
    uint64_t last_steps = 0;
    uint32_t seconds_still = 0;
  };
  [[noreturn]] void report(const Watched& stuck);

  uint32_t limit_;
  std::vector<Watched> all_;
};

}  // namespace uroce::stress
