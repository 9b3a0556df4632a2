// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/connection.h"

namespace uroce::oracle {

void Connection::declare(const Attributes& attributes) {
  const auto path_mtu = attributes.path_mtu ? attributes.path_mtu : context_.options.path_mtu;
  context_.attributes = attributes;
  context_.attributes.path_mtu = path_mtu;
  context_.declared = true;
  requester_ = RequesterJudge();
  responder_ = ResponderJudge();
  completions_ = CompletionJudge();
  pkey_.reset();
  ended_ = agreed_ = told_after_fatal_ = false;
}

void Connection::agree(const Attributes& attributes) {
  declare(attributes);
  agreed_ = true;
}

void Connection::end_agreed() {
  if (!agreed_) return;
  ended_ = true;
  context_.declared = false;
  context_.attributes.sq_psn.reset();
  context_.attributes.rq_psn.reset();
}

void Connection::on_packet(const Packet& packet, bool out) {
  context_.packet = packet.number();
  context_.now = packet.time();
  ++(out ? context_.counts.packets_out : context_.counts.packets_in);
  if (out) last_out_ = packet.time();

  if (out && pkey_.value_or(packet.bth().pkey) != packet.bth().pkey) {
    context_.violation(Rule::kPkey, text("P_Key 0x%04x, was 0x%04x", packet.bth().pkey, *pkey_));
  }
  if (out) pkey_ = packet.bth().pkey;
  if (!packet.info().request && !paired()) {
    ++(out ? responses_missed_out_ : responses_missed_in_);
    return;
  }
  if (!out || may_send(packet)) judge_packet(packet, out);
}

void Connection::judge_packet(const Packet& packet, bool out) {
  if (out && packet.info().request) {
    requester_.on_request(packet, context_, completions_);
  } else if (out) {
    responder_.on_response(packet, context_);
  } else if (packet.info().request) {
    responder_.on_request(packet, context_);
  } else {
    requester_.on_response(packet, context_);
  }
}

// A NAK that ends the connection ends both directions: the QP is in the error state and sends nothing (IBTA 9.9.2).
bool Connection::may_send(const Packet& packet) {
  const bool refused = responder_.fatal();
  const bool was_refused = requester_.fatal() && requester_.fatal_since() + context_.options.slack < packet.time();
  if (!refused && !was_refused) return true;
  // Without declarations a request out of any order is the first of another connection with the same numbers.
  if (!context_.declared && packet.info().request && !requester_.expects(packet.bth().psn)) {
    requester_.forget();
    responder_.forget();
    return true;
  }
  if (!told_after_fatal_) {
    context_.violation(Rule::kSendsAfterFatal, text("%s PSN %u after a NAK that it %s", packet.info().name,
                                                    packet.bth().psn.value(), refused ? "sent" : "received"));
  }
  told_after_fatal_ = true;
  return false;
}

void Connection::on_unusable(const Packet& packet) {
  ++context_.counts.packets_in;
  ++context_.counts.not_received;
  responder_.on_unusable(packet);
}

void Connection::posted(uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length) {
  completions_.posted(wr_id, signaled, kind, length);
}

void Connection::completed(uint64_t wr_id, Outcome outcome, uint64_t number, Time now) {
  context_.packet = number;
  context_.now = now;
  completions_.completed(wr_id, outcome, requester_.acknowledged_messages(), context_);
}

void Connection::finish(Time end) {
  context_.now = end;
  if (!paired()) {
    context_.cannot_judge("what depends on the other direction: it was not found");
  }
  if (ended_ || responder_.fatal() || requester_.fatal()) return;
  // Of a connection that nobody declared the end is not known either: as long as it sends, it is not dead.
  if (paired()) responder_.finish(context_.declared && !agreed_ ? end : last_out_, context_);
  const bool settled = requester_.last_progress() + context_.options.answer_within < end;
  completions_.finish(settled ? requester_.acknowledged_messages() : 0, context_);
}

void Connection::join(const Connection& other) {
  const bool this_is_out = has_out();
  const Connection& out = this_is_out ? *this : other;
  const Connection& in = this_is_out ? other : *this;
  const ConnectionName joined = {.local = out.name().local,
                                 .remote = out.name().remote,
                                 .local_qpn = in.name().local_qpn,
                                 .remote_qpn = out.name().remote_qpn};
  const uint64_t missed_out = out.responses_missed_out_, missed_in = in.responses_missed_in_;
  Counts counts = out.context_.counts;
  counts += in.context_.counts;
  const auto path_mtu =
      out.context_.attributes.path_mtu ? out.context_.attributes.path_mtu : in.context_.attributes.path_mtu;
  if (this_is_out) {
    responder_ = other.responder_;
  } else {
    requester_ = other.requester_;
    pkey_ = other.pkey_;
    last_out_ = other.last_out_;
  }
  for (const std::string& what : other.context_.not_judged) context_.cannot_judge(what);
  context_.name = joined;
  context_.counts = counts;
  context_.attributes.path_mtu = path_mtu;
  if (missed_in > 0) requester_.forget();
  if (missed_out > 0) responder_.forget();
  if (missed_in + missed_out > 0)
    context_.cannot_judge("the beginning: which directions belong together was not clear");
}

ConnectionSummary Connection::summary() const {
  return {.name = context_.name, .counts = context_.counts, .not_judged = context_.not_judged};
}

}  // namespace uroce::oracle
