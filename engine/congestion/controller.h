// SPDX-License-Identifier: BSD-2-Clause
// Congestion control of one destination (architecture.md, decision 7; congestion.md): when its senders may send, given
// what they tell it. The destination owns one by value; all QPs and address handles to it share it.
//
//   may_send(turn, bytes, now)       before every packet that carries or asks for data; ACKs, NAKs and CNPs are not
//                                    asked about. Each sender has a Turn; `bytes`: of an ordinary packet
//   on_sent(turn, bytes, now)        after it, retransmissions and READ responses included; bytes as on the wire
//   resume_at(turn)                  when a sender that was refused is to come back
//   window(bytes)                    packets of so many bytes that one sender may have in flight; none: no opinion
//   on_acknowledged(bytes, rtt, now) bytes of requests have arrived
//   on_lost(now)                     packets are sent again because one of them was lost; this and the one above say
//                                    whether the rate is lower than before
//   on_cnp(now)                      a CNP from there arrived, its checks passed
//
// Two controls side by side; the lower rate counts. Dcqcn obeys CNPs; DelayControl round-trip times and losses, with
// kAuto after a CNP, with kDelay always. A destination from which no such signal has come is not paced at all: no
// limit, no division, no deadline, and no opinion on the speed of the port, which nobody may know.
//
// The first CNP finds the rate at which packets have really been sent and begins from there; only where there is
// nothing to measure, in the first millisecond after a pause, it begins from `line`. That may be too high: each factor
// of two costs one more CNP, 4 us later. It should not be too low: it is also where DCQCN's control ends. After a loss
// delay control begins from `line`, and knows after one round trip how fast packets arrive: who sends little and loses
// a packet is not held back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "engine/congestion/dcqcn.h"
#include "engine/congestion/delay_control.h"
#include "engine/congestion/pacer.h"
#include "engine/congestion/rate.h"
#include "engine/congestion/rate_meter.h"

namespace uroce::congestion {

enum class Algorithm : uint8_t { kAuto, kDcqcn, kDelay, kOff };

class Controller {
 public:
  static constexpr Rate kUnknownLine = Rate::gbit(100);
  static constexpr uint32_t kWindow = 128;  // the largest, packets

  explicit Controller(Algorithm algorithm = Algorithm::kAuto, Rate line = kUnknownLine)
      : algorithm_(algorithm), line_(line) {}

  bool may_send(Turn& turn, uint32_t bytes, Time now) {
    if (!controlled()) return true;
    const Rate limit = rate(now);
    if (!controlled()) return true;
    pacer_.set_rate(limit, now);
    return pacer_.may_send(turn, bytes, now);
  }

  // May be too late where the rate has risen since, but not later than that of the next rise of DCQCN.
  Time resume_at(const Turn& turn) const {
    return controlled() && turn.taken ? std::min(pacer_.resume_at(turn), dcqcn_.next_rise()) : Time::min();
  }

  void on_sent(Turn& turn, uint32_t bytes, Time now) {
    meter_.on_sent(bytes, now);
    if (!controlled()) {
      turn = {};
      return;
    }
    dcqcn_.on_sent(bytes, now);
    if (controlled()) pacer_.set_rate(rate(), now);
    pacer_.on_sent(turn, bytes, now);
  }

  // So many that twice the welcome queueing does not stop the sender; one can always be in flight.
  std::optional<uint32_t> window(uint32_t bytes) const {
    if (!delay_.controlled()) return std::nullopt;
    const auto time = static_cast<uint64_t>(2 * delay_.target().count());
    const uint64_t packets = scaled(delay_.rate().bits_per_second(), time, uint64_t{bytes} * 8'000'000'000) + 1;
    return static_cast<uint32_t>(std::min<uint64_t>(packets, kWindow));
  }

  bool on_acknowledged(uint64_t bytes, Duration rtt, Time now) {
    if (algorithm_ != Algorithm::kDelay && !delay_.controlled()) return false;
    const bool cut = delay_.on_acknowledged(bytes, rtt, now);
    if (cut || algorithm_ != Algorithm::kDelay || !delay_.queueing()) return cut;
    return begin_delay_control(meter_.rate().value_or(line_), now);
  }
  bool on_lost(Time now) {
    if (delay_.controlled()) return delay_.on_lost(now);
    return algorithm_ == Algorithm::kDelay && begin_delay_control(line_, now);
  }
  void on_cnp(Time now) {
    if (algorithm_ == Algorithm::kOff) return;
    const bool first = !controlled();
    const Rate sending = meter_.rate().value_or(line_);
    dcqcn_.on_cnp(sending, now);
    if (first) pacer_.begin(rate(), now);
    if (algorithm_ != Algorithm::kDcqcn) begin_delay_control(sending, now);
  }

  // The destination is paced.
  bool controlled() const { return dcqcn_.controlled() || delay_.controlled(); }
  // Unlimited while the destination is not paced.
  Rate rate(Time now) { return std::min(dcqcn_.rate(now), delay_.rate()); }

 private:
  Rate rate() const { return std::min(dcqcn_.rate(), delay_.rate()); }
  bool begin_delay_control(Rate from, Time now) {
    if (delay_.controlled()) return false;
    const bool first = !controlled();
    delay_.start(from, now);
    if (first) pacer_.begin(rate(), now);
    return true;
  }

  Algorithm algorithm_;
  Rate line_;
  Dcqcn dcqcn_;
  DelayControl delay_;
  Pacer pacer_;
  RateMeter meter_;
};

}  // namespace uroce::congestion
