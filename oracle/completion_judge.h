// SPDX-License-Identifier: BSD-2-Clause
// Judges the completions of a QP's send requests against what was posted and what the wire says: exactly once, in
// order, success not before the acknowledgement. Only where somebody tells posts and completions: the simulator.
// Held by Connection.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "oracle/context.h"

namespace uroce::oracle {

class CompletionJudge {
 public:
  void posted(uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length);
  // `acknowledged`: messages that the peer has acknowledged so far.
  void completed(uint64_t wr_id, Outcome outcome, uint64_t acknowledged, Context& context);

  // The last packet of message `number` (from 1) goes out for the first time. `size` in bytes, if it is known.
  void on_message(uint64_t number, const Request& last_packet, std::optional<uint64_t> size, Context& context);
  // The end of the run: `settled` messages were acknowledged long enough ago.
  void finish(uint64_t settled, Context& context);

 private:
  struct Work {
    uint64_t wr_id;
    uint64_t message;  // the last one that it or its predecessors send
    uint64_t length;
    WorkKind kind;
    bool signaled;
  };

  bool used_ = false;
  bool failed_ = false;    // a completion said so: all that follow are flushed
  uint64_t messages_ = 0;  // posted
  std::deque<Work> work_;  // not completed
};

}  // namespace uroce::oracle
