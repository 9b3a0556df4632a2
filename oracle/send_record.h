// SPDX-License-Identifier: BSD-2-Clause
// What a requester has sent and not yet seen acknowledged, in PSN order without holes; what was acknowledged stays for
// the slack, in which the endpoint need not know it yet. Held by RequesterJudge.
//
// An ACK covers SENDs and WRITEs up to its PSN, but READs and atomics only end by their own responses: what lies behind
// an unanswered one counts as unacknowledged (IBTA 9.7.6.1, implied NAK).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "oracle/context.h"

namespace uroce::oracle {

struct Sent {
  Request request;
  uint32_t span = 1;      // PSNs it consumes; 0: a READ before the path MTU is known
  uint32_t answered = 0;  // of them, if it is a READ
  uint32_t digest = 0;
  bool whole = true;  // the digest is known
  uint64_t times_sent = 1;
  uint64_t message_size = 0;  // of a message's last packet
  Time acknowledged_at{};     // meaningful below first_unacknowledged

  wire::Psn end() const { return request.psn + span; }
};

class SendRecord {
 public:
  void restart(wire::Psn next) {
    sent_.clear();
    acknowledged_ = 0;
    next_ = next;
  }

  wire::Psn next() const { return next_; }  // the PSN of the next new request
  // The first PSN that is not answered, inside a READ too; next() if there is none.
  wire::Psn unacknowledged() const {
    if (all_acknowledged()) return next_;
    return sent_[acknowledged_].request.psn + sent_[acknowledged_].answered;
  }
  bool all_acknowledged() const { return acknowledged_ == sent_.size(); }
  size_t outstanding() const { return sent_.size() - acknowledged_; }
  bool covers(wire::Psn psn) const {
    return wire::Psn::distance(unacknowledged(), psn) >= 0 && wire::Psn::distance(psn, end()) > 0;
  }
  // next(), or where it may be at most while the span of a READ is not known.
  wire::Psn end() const {
    const bool known = sent_.empty() || sent_.back().span != 0;
    return known ? next_ : next_ + Context::largest_span(sent_.back().request.length);
  }

  Sent& append(const Sent& sent) {
    sent_.push_back(sent);
    next_ = sent.end();
    return sent_.back();
  }
  // The last one, while its span is not known; else null.
  Sent* unknown_span() { return !sent_.empty() && sent_.back().span == 0 ? &sent_.back() : nullptr; }
  void set_last_span(uint32_t span) {
    sent_.back().span = span;
    next_ = sent_.back().end();
  }

  // The packet that has `psn` among its own, or null. Acknowledged ones only as long as the slack lasts.
  Sent* find(wire::Psn psn) {
    if (sent_.empty() || wire::Psn::distance(sent_.front().request.psn, psn) < 0) return nullptr;
    const auto behind = std::upper_bound(sent_.begin(), sent_.end(), psn, [](wire::Psn p, const Sent& sent) {
      return wire::Psn::distance(sent.request.psn, p) < 0;
    });
    Sent& found = *std::prev(behind);
    return wire::Psn::distance(found.request.psn, psn) < static_cast<int32_t>(std::max(found.span, 1u)) ? &found
                                                                                                        : nullptr;
  }
  bool is_acknowledged(const Sent& sent) const {
    return !all_acknowledged() ? wire::Psn::distance(sent.request.psn, sent_[acknowledged_].request.psn) > 0 : true;
  }
  Sent* first_unacknowledged() { return all_acknowledged() ? nullptr : &sent_[acknowledged_]; }

  void acknowledge_first(Time now) { sent_[acknowledged_++].acknowledged_at = now; }
  // Forgets what was acknowledged before `time`, and the oldest beyond `most`.
  void trim(Time time, size_t most) {
    while (acknowledged_ > 0 && sent_.front().acknowledged_at < time) drop_front();
    while (sent_.size() > most) drop_front();
  }

 private:
  void drop_front() {
    sent_.pop_front();
    if (acknowledged_ > 0) --acknowledged_;
  }

  std::deque<Sent> sent_;
  size_t acknowledged_ = 0;  // at the front of sent_
  wire::Psn next_;
};

}  // namespace uroce::oracle
