// SPDX-License-Identifier: BSD-2-Clause
// What went otherwise than it has to. Thrown anywhere, caught in main.cc.
#pragma once

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace uroce::memory_faults {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(bool condition, const std::string& text) {
  if (!condition) throw Failure(text);
}

// Of a system or verbs call.
[[noreturn]] inline void fail_call(const std::string& call, int error) {
  throw Failure(call + ": " + std::strerror(error));
}

// A limit for everything that is waited for: a hang becomes a failure that says what was waited for.
class Deadline {
 public:
  void check(const char* what) const {
    if (Clock::now() > end_) throw Failure(std::string("waited too long for ") + what);
  }
  int milliseconds() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end_ = Clock::now() + std::chrono::seconds(20);
};

}  // namespace uroce::memory_faults
