// SPDX-License-Identifier: BSD-2-Clause
// When a requester may send again, must, and must no longer: RNR waits, PSN NAKs and the two retry budgets (IBTA
// 9.7.5.2.8, 9.7.6.1, 9.9.2). Held by RequesterJudge, which tells what arrived and what was sent.
#pragma once

#include <cstdint>
#include <optional>

#include "oracle/context.h"

namespace uroce::oracle {

class RetryJudge {
 public:
  // Something new was acknowledged; `unacknowledged` is the first PSN that was not.
  void on_progress(wire::Psn unacknowledged, const Context& context);
  // A response to `psn` or something behind it.
  void on_response(wire::Psn psn);
  // `psn` is outstanding. `progress`: this NAK acknowledged something; `fresh`: it was sent once so far.
  void on_psn_nak(wire::Psn psn, bool progress, bool fresh, const Context& context);
  void on_rnr_nak(wire::Psn psn, uint8_t timer_code, const Context& context);

  // True if a NAK for just this PSN waits for an answer, and cannot be one that was honoured already.
  bool waits_for(wire::Psn psn) const { return nak_ && nak_->psn == psn && nak_->binding; }

  // A request goes out, new or again. `idle`: nothing is outstanding.
  void on_send(wire::Psn psn, bool again, bool idle, Context& context);

 private:
  struct RnrWait {
    wire::Psn psn;
    Time from, until;
    bool counts = true;  // its answer has not been counted yet
  };
  struct Nak {
    wire::Psn psn;
    Time time;
    bool progress;
    bool binding;  // the endpoint must go back
    bool answered = false;
  };

  void judge_rnr(wire::Psn psn, Context& context);
  void judge_nak(wire::Psn psn, Context& context);
  void judge_time(bool again, bool idle, Context& context);
  void note_sign(Time at);

  std::optional<RnrWait> rnr_;
  std::optional<Nak> nak_;
  uint32_t rnr_answers_ = 0;  // since the last progress
  uint32_t nak_answers_ = 0;
  Time last_sign_{};        // from when the transport timer's periods count
  Time last_sent_{};        // a request
  Duration stood_still_{};  // since the last sign the requester has, most likely: such time does not count
};

}  // namespace uroce::oracle
