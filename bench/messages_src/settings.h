// SPDX-License-Identifier: BSD-2-Clause
// What one run of messages_bench measures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <infiniband/verbs.h>

namespace uroce::messages {

// Which threads drive the two sides, and on which CPUs.
enum class Place : uint8_t {
  kSides,   // a CPU for each side; as many threads on the one as on the other
  kOne,     // all on one CPU; each thread drives both sides of its QPs
  kSpread,  // likewise, the threads by turns on one CPU and the other
};

struct Settings {
  ibv_wr_opcode op = IBV_WR_RDMA_WRITE;
  uint32_t size = 8;  // bytes of a message
  uint32_t qps = 1;   // used in turn, of all threads together
  uint32_t idle = 0;  // more that are connected and not used
  uint32_t list = 1;  // work requests of one ibv_post_send()
  uint32_t threads = 1;
  uint32_t window = 128;  // messages of one thread under way at a time
  Place place = Place::kSides;
  int cpus[2] = {0, 1};
  uint64_t messages = 200'000;  // of one repetition
  uint32_t repetitions = 5;
  bool split = false;

  uint32_t qps_per_thread() const { return qps / threads; }
  // Work requests that a QP must hold when the window is spread over those of a thread.
  uint32_t depth() const {
    const uint32_t lists = (window / list + qps_per_thread() - 1) / qps_per_thread();
    return std::max(lists, 1u) * list;
  }
  // Whole lists, as many for each thread.
  uint64_t messages_per_thread() const { return std::max<uint64_t>(messages / threads / list, 1) * list; }
  // Threads that share a CPU leave it to each other when a poll finds nothing.
  bool yields() const { return threads > (place == Place::kSpread ? 2 : 1); }
  int cpu(uint32_t thread, bool responder) const {
    if (place == Place::kSides) return cpus[responder ? 1 : 0];
    return cpus[place == Place::kSpread ? thread % 2 : 0];
  }
};

}  // namespace uroce::messages
