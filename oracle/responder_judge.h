// SPDX-License-Identifier: BSD-2-Clause
// Judges the responses that the host sends on one connection, with the requests that it receives (IBTA 9.7.4, 9.7.5).
// Called by Connection for every such packet.
//
// What a responder makes of a request shows only in its responses, maybe much later. So requests that arrive in order
// count as accepted, and stay on record until a response covers them: an RNR NAK shows that the request and all behind
// it were not accepted after all. Whether the same request that arrived once more meanwhile was accepted shows later
// still.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "oracle/context.h"
#include "oracle/message_sequence.h"
#include "oracle/read_judge.h"

namespace uroce::oracle {

class ResponderJudge {
 public:
  void on_request(const Packet& packet, Context& context);
  // Something for this connection arrived that no endpoint may accept.
  void on_unusable(const Packet& packet);
  void on_response(const Packet& packet, Context& context);
  // The end of the run; the host has not failed.
  void finish(Time end, Context& context);

  // True once it has sent a NAK that ends the connection.
  bool fatal() const { return fatal_; }
  bool started() const { return started_; }
  // `psn` is one of those that arrived and were not acknowledged, or the last that was.
  bool answers(wire::Psn psn) const;

  // The responses so far were not seen: judge anew from the next request on.
  void forget() { *this = ResponderJudge(); }

 private:
  struct Accepted {
    wire::Psn psn;
    uint32_t span = 1;
    bool span_guessed = false;     // by the next request that came
    uint64_t messages_before = 0;  // completed before it
    bool completes = false;        // a message
    size_t arrival = 0;            // its number among all arrivals
    MessageSequence before;        // the state without it
  };
  struct Owed {
    wire::Psn psn;
    Time since;
    uint64_t packet;
  };

  void start(wire::Psn psn, bool first, const Context& context);
  void restart(wire::Psn expected);
  void arrive(const Request& request, size_t arrival, Context& context);
  void accept(const Request& request, size_t arrival, Context& context);
  void take_duplicate(const Request& request, const Context& context);
  void settle_span(const Context& context, std::optional<wire::Psn> next);
  void roll_back(wire::Psn psn, Context& context);
  void note_spares(const Accepted& from);
  void take_spares(Context& context);
  void forget_answered(wire::Psn psn);
  void forget_arrivals();
  Accepted* find(wire::Psn psn);

  void correct_span(const Packet& packet, Context& context);
  void judge_aeth(const Packet& packet, Context& context) const;
  void judge_msn(wire::Psn psn, wire::Msn msn, bool completed_there, Context& context);
  void learn_msn(wire::Msn msn, bool exact, bool right);
  std::optional<uint64_t> least_messages(wire::Psn psn, bool completed_there);
  void on_ack(const Packet& packet, Context& context);
  void on_psn_nak(const Packet& packet, Context& context);
  void on_rnr_nak(const Packet& packet, Context& context);
  void on_fatal_nak(const Packet& packet, Context& context);
  void owe(const Request& request, wire::Psn last);

  bool started_ = false;
  bool may_jump_ = false;                 // the capture may have begun with duplicates
  std::optional<wire::Psn> learnt_from_;  // what was requested before this PSN is not known
  bool msn_known_ = false;
  bool msn_confirmed_ = false;  // else msn_offset_ is a guess: perhaps only duplicates were seen so far
  wire::Psn expected_;
  bool span_unknown_ = false;  // of the READ that is the last accepted: expected_ is still that READ's PSN
  uint64_t messages_ = 0;      // completed before expected_
  wire::Msn learnt_msn_;       // the one that msn_offset_ was taken from
  uint32_t msn_offset_ = 0;    // MSN is messages_ + this: 0 but in captures that begin in the middle
  MessageSequence sequence_;
  std::deque<Accepted> accepted_;           // not covered by a response yet
  std::deque<Request> arrivals_;            // since the first of those
  size_t first_arrival_ = 0;                // number of arrivals_.front()
  std::optional<size_t> spare_from_;        // arrivals from this one on may have been taken after an RNR NAK
  wire::Psn spare_psn_;                     // for this request
  std::optional<Packet::Finding> refusal_;  // why the request at expected_ must be refused
  std::optional<wire::Psn> malformed_;      // a request that cannot be parsed; some endpoints refuse it
  ReadJudge reads_;
  std::deque<Owed> owed_;  // acknowledgements, in PSN order

  struct Gap {
    wire::Psn psn;
    bool reported;
  };
  std::optional<Gap> gap_;              // something ahead of expected_ arrived
  std::deque<wire::Psn> closed_gaps_;   // filled before they were reported; the NAK may still come
  std::optional<wire::Psn> reported_;   // the last one that was, and is filled
  std::optional<wire::Psn> not_ready_;  // RNR NAK sent, the request has not come back
  bool fatal_ = false;
};

}  // namespace uroce::oracle
