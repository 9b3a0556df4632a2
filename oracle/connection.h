// SPDX-License-Identifier: BSD-2-Clause
// One connection of the judged host, or one direction of it as long as the other is not known. Gives each packet to the
// judge of the host's part in it: requester, responder, and what ends both. Owned by ConnectionTable.
#pragma once

#include "oracle/completion_judge.h"
#include "oracle/context.h"
#include "oracle/requester_judge.h"
#include "oracle/responder_judge.h"

namespace uroce::oracle {

class Connection {
 public:
  Connection(Findings& findings, const Options& options, const ConnectionName& name)
      : context_{.findings = findings, .options = options, .name = name} {
    context_.attributes.path_mtu = options.path_mtu;
  }

  // Begins anew with these attributes.
  void declare(const Attributes& attributes);
  void end() { ended_ = true; }
  // The same, as the connection manager says it; nothing is known of the QP behind its end.
  void agree(const Attributes& attributes);
  void end_agreed();
  // Only the connection manager knows of it.
  bool unused() const { return agreed_ && context_.counts.packets_out + context_.counts.packets_in == 0; }

  // A usable RC packet. A response before the other direction is known is only counted.
  void on_packet(const Packet& packet, bool out);
  // Inbound, without effect on an endpoint.
  void on_unusable(const Packet& packet);

  void posted(uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length);
  void completed(uint64_t wr_id, Outcome outcome, uint64_t number, Time now);
  void finish(Time end);

  bool paired() const { return name().local_qpn && name().remote_qpn; }
  bool has_out() const { return name().remote_qpn.has_value(); }
  // Whether an inbound response to `psn` can be one to the requests of this direction; for outbound, the same.
  bool expects_response(wire::Psn psn) const { return requester_.expects(psn); }
  bool can_answer(wire::Psn psn) const { return responder_.answers(psn); }
  // The other direction of this one.
  void join(const Connection& other);

  const ConnectionName& name() const { return context_.name; }
  ConnectionSummary summary() const;

 private:
  void judge_packet(const Packet& packet, bool out);
  bool may_send(const Packet& packet);

  Context context_;
  RequesterJudge requester_;
  ResponderJudge responder_;
  CompletionJudge completions_;
  std::optional<uint16_t> pkey_;                                 // of outbound packets
  uint64_t responses_missed_out_ = 0, responses_missed_in_ = 0;  // before it was paired
  Time last_out_{};
  bool ended_ = false;
  bool agreed_ = false;  // agree() was called, and not declare()
  bool told_after_fatal_ = false;
};

}  // namespace uroce::oracle
