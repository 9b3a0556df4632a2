// SPDX-License-Identifier: BSD-2-Clause
// Judges the responses that READs and atomics get (FLUSH and ATOMIC WRITE too): place, size, order, replays
// (IBTA 9.7.5). Held by ResponderJudge, which tells what arrived and in which order it counts.
#pragma once

#include <cstdint>
#include <deque>

#include "oracle/context.h"

namespace uroce::oracle {

class ReadJudge {
 public:
  // A READ, atomic or the like arrived in order; `span` of its PSNs, 0 if not known yet.
  void on_new(const Request& request, uint32_t span);
  // One that was accepted before arrived again, maybe for a part of a READ.
  void on_duplicate(const Request& request, uint32_t span);
  // What was accepted from `psn` on never was: the responder was not ready.
  void roll_back(wire::Psn psn);

  // A READ response or atomic ACK goes out.
  void on_response(const Packet& packet, Context& context);
  // Some response for `psn` goes out: all READs and atomics before it must have been answered.
  void judge_order(wire::Psn psn, const char* response, Context& context);

  // The span of the last READ became known; others with the path MTU.
  void settle_span(uint32_t span);
  // That of the READ at `psn` is another one.
  void correct_span(wire::Psn psn, uint32_t span);
  // The request that waits longest for its response; null if none does.
  const Request* oldest_unanswered() const { return unanswered_.empty() ? nullptr : &unanswered_.front().request; }

 private:
  struct Job {
    Request request;
    uint32_t span = 1;
    uint32_t next = 0;      // index of the next response, if it goes on
    uint32_t answered = 0;  // responses from the first on that have been sent, for this job or others
    uint64_t in_front = 0;  // requests that waited for responses when it arrived
    bool repeated = false;

    bool is_read() const { return !request.is_atomic(); }
    bool contains(wire::Psn psn) const {
      return wire::Psn::distance(request.psn, psn) >= 0 && wire::Psn::distance(psn, request.psn + span) > 0;
    }
  };
  struct AtomicAnswer {
    wire::Psn psn;
    uint64_t original;
  };

  void settle_spans(const Packet& packet, Context& context);
  Job* continued_by(const Packet& packet);
  Job* begun_by(const Packet& packet);
  void judge_read_response(const Packet& packet, Context& context);
  void judge_shape(const Job& job, const Packet& packet, Context& context) const;
  void judge_atomic(const Packet& packet, Context& context);
  void count_answer(wire::Psn psn, Context& context);
  void complete_front(Context& context);
  Job* unanswered(wire::Psn psn);

  std::deque<Job> unanswered_;  // in PSN order, the first is the oldest
  std::deque<Job> repeated_;    // may be answered once more, or not
  std::deque<AtomicAnswer> atomic_answers_;
};

}  // namespace uroce::oracle
