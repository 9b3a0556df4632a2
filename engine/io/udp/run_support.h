// SPDX-License-Identifier: BSD-2-Clause
// Whether packets may leave a UDP socket in runs. A kernel or a path that cannot refuses the first one; then packets
// leave one by one, and runs are tried again after a time that doubles (reference/udp-sockets.md "Segmentation
// offload"). A route with IPsec refuses those of its destinations only, a kernel without the option all.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/io/udp/notices.h"
#include "wire/envelope.h"

namespace uroce::io {

class RunSupport {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::minutes(1);
  static constexpr size_t kDestinations = 16;  // that pause at a time by themselves; one more, and all pause

  using Now = Clock::time_point (*)();
  explicit RunSupport(Notices& notices, Now now = Clock::now) : notices_(notices), now_(now) {}

  bool allowed(const wire::IpAddress& to) const { return nothing_refused() || !pauses(to); }
  // A run was refused. Whether because it was one, tells the next packet there alone.
  void doubt(const wire::IpAddress& to, int error) { doubt_ = {to, error}; }
  void on_alone(const wire::IpAddress& to, bool sent) {
    if (doubt_ && doubt_->to == to) settle(sent);
  }
  void on_run_sent(const wire::IpAddress& to) {
    if (!nothing_refused()) resume(to);
  }
  uint64_t refusals() const { return refusals_; }

 private:
  struct Doubt {
    wire::IpAddress to;
    int error;
  };
  struct Pause {
    Clock::time_point end{};
    Clock::duration next = kFirstPause;
    void extend(Clock::time_point now) {
      end = now + next;
      next = std::min(2 * next, kLongestPause);
    }
  };
  struct Destination {
    wire::IpAddress to;
    Pause pause;
  };

  bool nothing_refused() const { return !doubt_ && count_ == 0 && all_.next == kFirstPause; }
  bool pauses(const wire::IpAddress& to) const;
  void settle(bool sent_alone);
  void resume(const wire::IpAddress& to);
  Pause* pause_of(const wire::IpAddress& to);
  const Destination* find(const wire::IpAddress& to) const;

  Notices& notices_;
  const Now now_;
  std::optional<Doubt> doubt_;
  Pause all_;
  std::array<Destination, kDestinations> destinations_;
  size_t count_ = 0;
  uint64_t refusals_ = 0;
};

}  // namespace uroce::io
