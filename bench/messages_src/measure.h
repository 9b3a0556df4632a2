// SPDX-License-Identifier: BSD-2-Clause
// One configuration measured: repetitions of the same number of messages, after one that does not count.
#pragma once

#include <string>
#include <vector>

#include "bench/messages_src/settings.h"
#include "bench/messages_src/split.h"

namespace uroce::messages {

struct Times {
  double seconds = 0;      // from the first post to the last completion
  double cpu_seconds = 0;  // of the whole process meanwhile
};

struct Repetition {
  Times times;
  Split requester, responder;  // of all threads
};

struct Result {
  std::vector<Repetition> repetitions;
  std::string counters;  // of both engines, the set-up and the first repetition included
};

Result measure(const Settings& settings);

// What a connected QP without traffic takes of the resident memory in bytes, the shim's part included.
struct IdleMemory {
  double smallest;  // one work request of one SGE in each queue
  double deep;      // 128 of 4 SGEs
};
IdleMemory idle_memory(uint32_t qps);

}  // namespace uroce::messages
