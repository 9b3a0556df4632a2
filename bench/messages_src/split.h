// SPDX-License-Identifier: BSD-2-Clause
// Where the time goes that one thread spends in calls of verbs, in cycles of the TSC. By call, so that the parts mean
// the same whatever the engine does inside:
//   wire        in the packet I/O (send, receive, flush of the memory link), from whichever call
//   post        the rest of ibv_post_send() and ibv_post_recv(), with the round that a doorbell runs
//   round       the rest of those ibv_poll_cq() that came to the packet I/O: they found no completion and ran a round
//   completion  the other ibv_poll_cq(): they took what was there
#pragma once

#include <cstdint>

namespace uroce::messages {

inline uint64_t cycles() {
  return __builtin_ia32_rdtsc();
}
double cycles_per_nanosecond();  // measured once
uint64_t cycles_of_clock();      // between two readings with nothing between them

// What the calling thread has spent in the packet I/O since it started.
struct Wire {
  uint64_t cycles = 0;
  uint64_t calls = 0;
};
inline thread_local Wire this_threads_wire;

template <class Call>
auto on_wire(Call&& call) {
  const uint64_t begin = cycles();
  const auto result = call();
  this_threads_wire.cycles += cycles() - begin - cycles_of_clock();
  ++this_threads_wire.calls;
  return result;
}

struct Split {
  uint64_t post = 0, round = 0, wire = 0, completion = 0;

  Split& operator+=(const Split& other) {
    post += other.post;
    round += other.round;
    wire += other.wire;
    completion += other.completion;
    return *this;
  }
};

// Measures the calls of one side in one thread, or only makes them.
class Meter {
 public:
  explicit Meter(bool on) : on_(on) {}

  template <class Call>
  int post(Call&& call) {
    return on_ ? measure(call, split_.post, split_.post) : call();
  }
  template <class Call>
  int poll(Call&& call) {
    return on_ ? measure(call, split_.completion, split_.round) : call();
  }
  // Since the last time.
  Split take() {
    const Split taken = split_;
    split_ = {};
    return taken;
  }

 private:
  template <class Call>
  int measure(Call& call, uint64_t& without_wire, uint64_t& with_wire) {
    const Wire before = this_threads_wire;
    const uint64_t begin = cycles();
    const int result = call();
    const uint64_t all = cycles() - begin;
    const uint64_t wire = this_threads_wire.cycles - before.cycles;
    const uint64_t calls = this_threads_wire.calls - before.calls;
    const uint64_t not_ours = wire + (calls + 1) * cycles_of_clock();
    (calls == 0 ? without_wire : with_wire) += all > not_ours ? all - not_ours : 0;
    split_.wire += wire;
    return result;
  }

  const bool on_;
  Split split_;
};

}  // namespace uroce::messages
