// SPDX-License-Identifier: BSD-2-Clause
// What an RC QP makes of lost packets: acknowledgements, NAKs and timers go in, a decision comes out. Owns all of the
// state of recovery; sends nothing itself. Owned by Requester.
//
// Two timers run while anything is unacknowledged. The retransmission timer of the QP (IBTA 9.7.6.1.3: 4.096 us *
// 2^timeout, expiry between 1x and 4x) spends the retry budget. To find losses early is not its work, so it expires at
// 4x: a peer that pauses or moves to another machine is waited for as long as the attributes allow. Losses are found by
// probes, which go out after multiples of the measured round trip (the tail loss probe of RFC 8985): a few soon, then
// ever fewer as long as the peer is silent. They spend nothing themselves, a NAK that answers them does (ConnectX
// probes early as well, wire.md "Adaptive retransmission"). Probes have a budget per destination (probe_budget.h): one
// that it refuses is put off.
//
// The budget counts time in which this host ran. on_pause() tells of time in which it did not.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/time.h"
#include "engine/io/send_reason.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/reliable/send_window.h"

namespace uroce::transport {

// The measured round trip; mean and deviation are smoothed as TCP does it (RFC 6298).
class RoundTrip {
 public:
  void sample(Duration rtt) {
    if (smoothed_.count() == 0) {
      smoothed_ = rtt;
      deviation_ = rtt / 2;
      return;
    }
    deviation_ += (std::chrono::abs(rtt - smoothed_) - deviation_) / 4;
    smoothed_ += (rtt - smoothed_) / 8;
  }
  // After this time an answer is overdue. `unknown`: as long as nothing was measured.
  Duration overdue(Duration unknown) const { return smoothed_.count() == 0 ? unknown : 2 * smoothed_ + 4 * deviation_; }

 private:
  Duration smoothed_{};
  Duration deviation_{};
};

enum class Timer : uint8_t {
  kReceiverNotReady,  // the wait that an RNR NAK asked for
  kProbe,
  kRetransmission,
};

class TimerTable {
 public:
  TimerTable() { stop(); }
  void stop() { at_.fill(kNever); }
  void stop(Timer timer) { set(timer, kNever); }
  void set(Timer timer, Time at) { at_[static_cast<size_t>(timer)] = at; }
  Time at(Timer timer) const { return at_[static_cast<size_t>(timer)]; }
  bool expired(Timer timer, Time now) const { return now >= at(timer); }
  Time next_timer() const { return *std::min_element(at_.begin(), at_.end()); }

 private:
  std::array<Time, 3> at_;
};

class LossRecovery {
 public:
  enum class Decision : uint8_t {
    kNothing,
    kRewind,  // send everything from the oldest unacknowledged packet on again
    kProbe,   // send the oldest and the newest packet in flight again
    kGiveUp,  // the budget of retries is spent
  };
  enum class Probe : uint8_t { kNone, kOldest, kNewest };

  // Shorter than the time for which a peer that nobody polls may leave packets unattended (engine/datapath/progress.h),
  // so probes may turn out to be unnecessary.
  static constexpr Duration kMinProbe = std::chrono::microseconds(200);
  static constexpr Duration kMaxProbe = std::chrono::milliseconds(64);
  // On the way through memory of this host nothing is lost before the peer has not read for so long (io/same_host/):
  // one that does not answer is waiting for a core.
  static constexpr Duration kMinProbeThroughMemory = std::chrono::milliseconds(10);
  static constexpr Duration kInitialProbe = std::chrono::milliseconds(1);
  static constexpr int kMaxProbes = 8;  // that follow each other so fast; then the peer is away, not busy
  static constexpr Duration kMaxSlowProbe = std::chrono::seconds(1);
  static constexpr int kMaxBackoff = 6;
  static constexpr uint8_t kManyProbes = 32;

  static Duration transport_timeout(uint8_t code) { return Duration(4096) * (int64_t{1} << (code & 31)); }

  explicit LossRecovery(QpContext& qp) : qp_(qp) {}

  void reset();
  void stop() { timers_.stop(); }

  // --- what happens -------------------------------------------------------------------------------------------------
  // Request packet `psn` has left. `was_idle`: nothing was outstanding before. `first`: nothing was in flight.
  // `measurable`: its answer tells the round trip. A packet that was sent more than once does not (Karn's rule).
  void on_sent(wire::Psn psn, bool was_idle, bool first, bool measurable, Time now);
  // The oldest packets were acknowledged: `window` has moved on.
  void on_progress(const SendWindow& window, Time now);
  // A NAK, or an answer to something later that implies one: packets were lost.
  Decision on_loss(io::SendReason cause, Time now);
  // An answer to something later came. It is news once: a peer that acknowledges duplicates with the last PSN that it
  // has executed (rxe) says so in front of every answer that it repeats, and each would spend a retry.
  Decision on_overtaken(Time now);
  Decision on_rnr_nak(uint8_t code, Time now);
  // Something was answered twice: what was sent again had not been lost. `read_responses`: so many PSNs; the peer is at
  // a READ that was asked for once more than necessary. 0: it was no READ.
  void on_spurious(uint32_t read_responses, bool idle, Time now);
  // The next timer is `late` by so much because this host stood still: its process was stopped, a debugger had it, the
  // machine slept. Comes before on_timer().
  void on_pause(Duration late, Time now);
  // Whatever is sent again makes the peer send all that is left of a long READ.
  struct LongRead {
    uint32_t responses;  // that are left
    wire::Psn end;       // behind the last of them
  };
  Decision on_timer(const std::optional<LongRead>& read, Time now);

  // --- what to do ---------------------------------------------------------------------------------------------------
  // What the packets that are sent again are sent for.
  io::SendReason cause() const { return cause_; }
  // A timer has made sending go back, and there was no progress since.
  bool timer_has_expired() const {
    return cause_ == io::SendReason::kTimeout ? episode_.retries > 0
                                              : cause_ == io::SendReason::kProbe && probes_sent_ > 0;
  }
  // The peer has asked for a pause.
  bool waits(Time now) const {
    const Time until = timers_.at(Timer::kReceiverNotReady);
    return until != kNever && now < until;
  }
  // False: it waits. Else sending goes on, and the wait is over.
  bool may_send(Time now) {
    if (waits(now)) return false;
    timers_.stop(Timer::kReceiverNotReady);
    return true;
  }
  Time next_timer() const { return timers_.next_timer(); }
  Time retransmission_timer() const { return timers_.at(Timer::kRetransmission); }

  // The packets of a probe that are still to be sent. To begin with, and while both are, the oldest.
  void begin_probe(wire::Psn oldest, wire::Psn newest);
  void probe_newest() { probe_ = Probe::kNewest; }
  bool probe_due() const { return probe_ != Probe::kNone; }
  Probe take_probe() { return std::exchange(probe_, Probe::kNone); }

 private:
  // Until the next progress of the peer.
  struct Episode {
    uint8_t retries = 0;
    uint8_t rnr_retries = 0;
    bool rewound = false;    // went back for a NAK, and no timer expired since: more of the same change nothing
    bool overtaken = false;  // the same for an answer to something later, whatever was probed since
  };
  struct Sample {
    wire::Psn psn;  // of a READ: its first response
    Time sent_at;
  };

  Decision rewind(io::SendReason cause);
  Decision probe(bool long_read, Time now);
  void ask_to_repeat(const std::optional<LongRead>& read);
  void restart_timers(Time from);
  void postpone_probe(Time now);
  void put_off_probe(Time now);
  Duration probe_timeout() const;
  Duration first_probe() const;
  Duration retransmission_time() const;

  QpContext& qp_;
  TimerTable timers_;
  Episode episode_;
  io::SendReason cause_ = io::SendReason::kFirst;
  Probe probe_ = Probe::kNone;  // what is to be sent of it next
  uint8_t probes_sent_ = 0;     // since the timers were started; no more is counted than kManyProbes
  uint8_t backoff_ = 0;         // probe timeouts are doubled as often: the peer pauses for longer than a round trip
  bool probe_unanswered_ = false;
  // The peer has missed packets since it last answered a probe twice. Where packets are lost, answers to probes are
  // lost as well, and sending everything again takes fewer round trips; a peer that has everything and is only slow
  // would drown in it.
  bool lossy_ = false;
  // Responses of a long READ that the peer was asked for once more, and has not repeated. It may be that they were not
  // lost, only late: then it does nothing else until it has repeated them, and asking again makes them more.
  uint32_t repeats_asked_ = 0;
  uint8_t read_probes_ = 0;      // that asked for them, since it was seen last that packets are lost
  wire::Psn repeats_end_{};      // an answer to what lies behind comes after all of them
  bool paused_ = false;          // this host has, since the timers were started
  uint32_t probes_put_off_ = 0;  // times since the timers were started
  RoundTrip round_trip_;
  std::optional<Sample> sample_;  // the round trip that is being measured
};

}  // namespace uroce::transport
