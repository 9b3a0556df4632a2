// When to send again without having been asked to, and when to give up.
//
// Two clocks run while anything is unacknowledged. The transport timer of the QP (IBTA 9.7.6.1.3: 4.096 us * 2^timeout,
// expiry between 1x and 4x) spends the retry budget. Before it, a few probes go out after multiples of the measured
// round trip; they spend nothing themselves, a NAK that answers them does (ConnectX probes early as well, wire.md
// "Adaptive retransmission"). What is sent then is the completer's matter. Probes have a budget per destination
// (probe_budget.h): one that it refuses is put off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/base/time.h"

namespace uroce::transport {

class RetryTimer {
 public:
  // Shorter than the time for which a peer that nobody polls may leave packets unattended (engine/datapath/progress.h),
  // so probes may turn out to be unnecessary.
  static constexpr Duration kMinProbe = std::chrono::microseconds(200);
  static constexpr Duration kMaxProbe = std::chrono::milliseconds(64);
  static constexpr Duration kInitialProbe = std::chrono::milliseconds(1);
  static constexpr int kMaxProbes = 8;
  static constexpr int kMaxPatience = 6;

  static Duration transport_timeout(uint8_t code) { return Duration(4096) * (int64_t{1} << (code & 31)); }

  // Something was sent while nothing was outstanding, the peer made progress, or the timer expired and everything is
  // sent again: both clocks start anew.
  void restart(Time now, uint8_t timeout_code) {
    probes_ = put_off_ = 0;
    const bool off = timeout_code == 0;
    expires_at_ = off ? kNever : now + transport_timeout(timeout_code);
    expires_at_latest_ = off ? kNever : now + 4 * transport_timeout(timeout_code);
    probe_at_ = now + probe_interval();
  }
  // The peer is alive, and busy with what it was asked for too often: the clocks start anew, but the timer expires in
  // the time that IBTA gives it all the same.
  void postpone(Time now, uint8_t timeout_code) {
    probes_ = put_off_ = 0;
    if (timeout_code != 0) {
      expires_at_ = std::min(std::max(expires_at_, now + transport_timeout(timeout_code)), expires_at_latest_);
    }
    probe_at_ = std::max(probe_at_, now + probe_interval());
  }
  void stop() { expires_at_ = probe_at_ = kNever; }

  bool expired(Time now) const { return now >= expires_at_; }
  bool probe_due(Time now) const { return now >= probe_at_; }
  // The waits double; between probes that make the peer do much work they quadruple.
  void probed(Time now, bool dear = false) {
    ++probes_;
    doubted_ = true;
    const Duration wait = probe_interval() * (1 << (dear ? 2 : 1) * probes_);
    probe_at_ = probes_ >= kMaxProbes ? kNever : now + std::min<Duration>(wait, kMaxProbe);
  }
  // The probe that is due may not be sent now. The waits double as between probes and vary by half, by `whose` and from
  // time to time, so that those who were put off together do not come back together. As often as necessary: what was
  // not sent does not count as a probe.
  void put_off(Time now, uint32_t whose) {
    const Duration wait = std::min<Duration>(probe_interval() * (1 << std::min(++put_off_, 8u)), kMaxProbe);
    const uint32_t mixed = (whose + put_off_ * 0x9e3779b9) * 0x85ebca6b;
    constexpr uint32_t kParts = 1024;
    probe_at_ = now + wait / 2 + wait * ((mixed ^ mixed >> 16) % kParts) / kParts;
  }
  Time deadline() const { return std::min(expires_at_, probe_at_); }

  // One round trip was measured on a packet that was sent only once (Karn).
  // Mean and deviation are smoothed as TCP does it (RFC 6298).
  void sample(Duration rtt) {
    if (patience_ > 0) --patience_;
    if (smoothed_.count() == 0) {
      smoothed_ = rtt;
      deviation_ = rtt / 2;
      return;
    }
    deviation_ += (std::chrono::abs(rtt - smoothed_) - deviation_) / 4;
    smoothed_ += (rtt - smoothed_) / 8;
  }
  // Something was answered twice. True if that is the first news of the last probe: the peer had lost nothing.
  bool doubted_wrongly() { return std::exchange(doubted_, false); }
  // The peer pauses for longer than its round trip says: twice the time.
  void gain_patience() { patience_ = std::min(patience_ + 1, kMaxPatience); }
  // Packets do get lost.
  void lose_patience() {
    patience_ = 0;
    doubted_ = false;
  }
  void forget() {
    smoothed_ = deviation_ = Duration{};
    lose_patience();
  }

 private:
  Duration probe_interval() const {
    const Duration measured = smoothed_.count() == 0 ? kInitialProbe : 2 * smoothed_ + 4 * deviation_;
    return std::clamp<Duration>(std::max(measured, kMinProbe) * (1 << patience_), kMinProbe, kMaxProbe);
  }

  Duration smoothed_{};  // round trip; 0: not measured yet
  Duration deviation_{};
  Time expires_at_ = kNever;
  Time expires_at_latest_ = kNever;  // however often it is postponed
  Time probe_at_ = kNever;
  int probes_ = 0;
  uint32_t put_off_ = 0;  // times
  int patience_ = 0;      // waits are doubled as often
  bool doubted_ = false;  // a probe was sent, and nothing has been learnt from it yet
};

}  // namespace uroce::transport
