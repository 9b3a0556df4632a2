// Congestion control of one sending QP: when it may send, given the CNPs it got. RcQp owns one by value.
//
//   may_send(now)       before every packet that carries or asks for data; ACKs, NAKs and CNPs are not asked about
//   on_sent(bytes, now) after it, retransmissions and READ responses included; bytes as on the wire, or any measure
//                       that is the same for every packet
//   resume_at()         when to come back after a refusal. Of interest only to a QP that has something to send: an idle
//                       one needs no timer
//   on_cnp(now)         a CNP for this QP arrived, its checks passed
//
// A QP that never got a CNP is not paced at all: no limit, no division, no deadline, and no opinion on the speed of the
// port, which nobody may know. The first CNP finds the rate at which the QP has really been sending and begins from
// there; only where there is nothing to measure, in the first millisecond after a pause, it begins from `line`. That
// may be too high: each factor of two costs one more CNP, 4 us later. It should not be too low. The rate to begin from
// is also where control ends, so the QP goes back to doing what it did before.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/time.h"
#include "engine/congestion/dcqcn.h"
#include "engine/congestion/pacer.h"
#include "engine/congestion/rate.h"
#include "engine/congestion/rate_meter.h"

namespace uroce::congestion {

class CongestionControl {
 public:
  static constexpr Rate kUnknownLine = Rate::gbit(100);

  // `parameters` outlive this.
  explicit CongestionControl(Rate line = kUnknownLine, const DcqcnParameters& parameters = kDcqcnFirmwareDefaults)
      : line_(line), dcqcn_(parameters) {}
  CongestionControl(Rate, const DcqcnParameters&&) = delete;

  bool may_send(Time now) {
    if (!dcqcn_.controlled()) return true;
    pacer_.set_rate(dcqcn_.rate(now), now);
    return now >= pacer_.resume_at();
  }

  // may_send() is false before, and worth asking again from then on. Later than `now` after may_send(now) was false.
  Time resume_at() const {
    return dcqcn_.controlled() ? std::min(pacer_.resume_at(), dcqcn_.next_rise()) : Time::min();
  }

  void on_sent(uint32_t bytes, Time now) {
    meter_.on_sent(bytes, now);
    if (!dcqcn_.controlled()) return;
    dcqcn_.on_sent(bytes, now);
    pacer_.set_rate(dcqcn_.rate(), now);
    pacer_.on_sent(bytes, now);
  }

  void on_cnp(Time now) { dcqcn_.on_cnp(meter_.rate().value_or(line_), now); }

  // Unlimited while the QP is not paced.
  Rate rate(Time now) { return dcqcn_.rate(now); }

 private:
  Rate line_;
  Dcqcn dcqcn_;
  Pacer pacer_;
  RateMeter meter_;
};

}  // namespace uroce::congestion
