// SPDX-License-Identifier: BSD-2-Clause
// Judges the requests that the host sends on one connection, with the responses that it receives (IBTA 9.7.3, 9.7.6).
// Called by Connection for every such packet. Sub-judges follow messages, retries and credits.
#pragma once

#include <cstdint>
#include <optional>

#include "oracle/context.h"
#include "oracle/message_sequence.h"
#include "oracle/retry_judge.h"
#include "oracle/send_record.h"

namespace uroce::oracle {

class CompletionJudge;

class RequesterJudge {
 public:
  void on_request(const Packet& packet, Context& context, CompletionJudge& completions);
  void on_response(const Packet& packet, Context& context);

  // True once a NAK has arrived that ends the connection, at fatal_since().
  bool fatal() const { return fatal_; }
  Time fatal_since() const { return fatal_since_; }
  bool started() const { return started_; }
  // A response to `psn` would be one to what was sent and not yet answered.
  bool expects(wire::Psn psn) const { return started_ && sent_.covers(psn); }
  // Messages that were acknowledged, in order from the first; only with a known beginning.
  uint64_t acknowledged_messages() const { return acknowledged_messages_; }

  Time last_progress() const { return last_progress_; }

  // The responses so far were not seen: judge anew from the next request on.
  void forget() { *this = RequesterJudge(); }

 private:
  void start(const Request& request, Context& context);
  void restart(wire::Psn next);
  bool may_hide_reads(int32_t ahead);
  void settle_span(std::optional<wire::Psn> next, Context& context);
  void take_new(const Packet& packet, const Request& request, Context& context, CompletionJudge& completions);
  void take_again(const Packet& packet, const Request& request, Context& context);
  void append(const Packet& packet, const Request& request, Context& context);
  void judge_order(wire::Psn psn, Context& context);
  bool only_long_reads_between(wire::Psn psn, wire::Psn end);
  void judge_window(const Request& request, Context& context) const;
  void judge_read_again(const Sent& sent, const Request& request, Context& context) const;
  void judge_same(const Sent& sent, const Packet& packet, const Request& request, Context& context) const;
  void judge_credits(const Request& request, Context& context);

  void acknowledge_before(wire::Psn psn, Context& context);
  void take_own_response(const Packet& packet, Context& context);
  void finish_first(Context& context);
  void on_nak(const Packet& packet, bool progress, Context& context);
  void note_credits(const wire::Aeth& aeth);

  bool started_ = false;
  bool from_beginning_ = false;           // message numbers are those of the connection
  bool may_jump_ = false;                 // the capture may have begun while the endpoint had gone back
  bool jumped_ = false;                   // it did so to the packet that was sent last
  std::optional<wire::Psn> learnt_from_;  // what was sent before this PSN is not known
  SendRecord sent_;
  MessageSequence sequence_;
  RetryJudge retries_;

  std::optional<wire::Psn> cursor_;  // what comes next if it goes on in order
  bool order_known_ = false;
  std::optional<wire::Psn> interrupted_;  // the cursor before it went back
  uint32_t run_ = 0;                      // packets since it went back
  bool for_nak_ = false;                  // it went back because of a NAK

  uint64_t messages_ = 0;  // begun; the number of the last one, from 1
  uint64_t acknowledged_messages_ = 0;
  uint32_t reads_outstanding_ = 0;    // READs, atomics and the like
  uint64_t credit_limit_ = 0;         // the last message with a credit: the LSN of IBTA 9.7.7.2
  bool credits_known_ = false;        // the endpoint cannot but know some
  wire::Psn message_first_;           // the first PSN of the message begun last
  std::optional<wire::Psn> limited_;  // the last packet of a SEND that went out without a credit

  Time last_progress_{};
  bool fatal_ = false;
  Time fatal_since_{};
};

}  // namespace uroce::oracle
