// SPDX-License-Identifier: BSD-2-Clause
// What the two sides tell each other, in a file that both map: they are processes of one machine, in whatever network
// namespaces. So nothing but the messages goes over the transport.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <infiniband/verbs.h>
#include <stdexcept>
#include <string>
#include <thread>

namespace uroce::data_in_order {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(bool condition, const std::string& text) {
  if (!condition) throw Failure(text);
}

struct Address {
  ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t memory;
};

struct Shared {
  struct Side {
    Address address;
    std::atomic<uint32_t> told;  // the address is there
    std::atomic<uint32_t> connected;
    std::atomic<uint32_t> failed;
  };
  Side sides[2];
  alignas(64) std::atomic<uint32_t> filled;    // messages whose bytes the source has put there
  alignas(64) std::atomic<uint32_t> allowed;   // messages for which the destination is ready
  alignas(64) std::atomic<uint32_t> seen_all;  // the destination has
  std::atomic<uint32_t> all_complete;          // the source's work requests are: both may go
};

// A limit for what is waited for: a hang says what that was.
class Patience {
 public:
  void check(const Shared& shared, const char* what) const {
    if (Clock::now() > end_) throw Failure("waited too long for " + std::string(what));
    if (shared.sides[0].failed.load() + shared.sides[1].failed.load() != 0) throw Failure("the other side has failed");
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end_ = Clock::now() + std::chrono::seconds(60);
};

// Waits for a condition, and gives the core away. `turn` is done meanwhile.
template <class Condition, class Turn>
void wait_for(const Shared& shared, const char* what, Condition condition, Turn turn) {
  if (condition()) return;
  const Patience patience;
  for (uint32_t turns = 1; !condition(); ++turns) {
    turn();
    if (turns % 64 == 0) std::this_thread::yield();
    if (turns % 4096 == 0) patience.check(shared, what);
  }
}

}  // namespace uroce::data_in_order
