// SPDX-License-Identifier: BSD-2-Clause
// One link that several senders share, on virtual time: a queue of limited length in front of it, a sender at each end
// of a path with a base round trip of its own. What the laws of congestion control are tried on; the transport is not
// in it (tests/simulator is where it is). A packet that finds the queue full is lost, and its sender learns of it when
// the next packet's acknowledgement comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "engine/congestion/controller.h"

namespace uroce::congestion::test {

class Bottleneck {
 public:
  struct Config {
    Rate link = Rate::gbit(10);
    uint32_t queue = 256;    // packets
    uint32_t mark_from = 0;  // packets; 0: marks nothing
    Algorithm algorithm = Algorithm::kDcqcn;
    std::function<Duration()> noise = [] { return Duration{}; };  // of each acknowledgement
  };
  static constexpr uint32_t kPacket = 1100;

  struct Sender {
    Sender(Algorithm algorithm, Duration its_base) : control(algorithm), base(its_base) {}
    Controller control;
    Turn turn;
    Duration base;
    bool active = true;
    uint32_t in_flight = 0;
    uint64_t lost = 0, delivered = 0, cuts = 0;  // packets; times
    Time cnp_at{};
    bool stepping = false;
  };

  explicit Bottleneck(const Config& settings) : config(settings) {}

  Sender& add(Duration base) {
    senders.push_back(std::make_unique<Sender>(config.algorithm, base));
    step(*senders.back());
    return *senders.back();
  }

  void run(Duration time) {
    const Time end = now + time;
    while (!events_.empty() && events_.top().at <= end) {
      Event event = events_.top();
      events_.pop();
      now = event.at;
      event.what();
    }
    now = end;
  }
  void forget_counts() {
    for (auto& sender : senders) sender->delivered = sender->lost = sender->cuts = 0;
  }
  uint64_t delivered() const {
    uint64_t sum = 0;
    for (const auto& sender : senders) sum += sender->delivered;
    return sum;
  }
  double jain() const {
    double sum = 0, squares = 0;
    for (const auto& sender : senders) {
      sum += static_cast<double>(sender->delivered);
      squares += static_cast<double>(sender->delivered) * static_cast<double>(sender->delivered);
    }
    return sum * sum / (static_cast<double>(senders.size()) * squares);
  }
  // The share of the link that was used for what arrived, since forget_counts() `time` ago.
  double used(Duration time) const {
    return static_cast<double>(delivered() * kPacket * 8) / static_cast<double>(config.link.bits_per_second()) /
           (static_cast<double>(time.count()) / 1e9);
  }
  void start(Sender& sender) {
    sender.active = true;
    step(sender);
  }

  Config config;
  Time now{std::chrono::seconds(1)};
  std::vector<std::unique_ptr<Sender>> senders;

 private:
  struct Event {
    Time at;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::pair(at, number) > std::pair(other.at, other.number); }
  };
  void at(Time time, std::function<void()> what) { events_.push({time, ++number_, std::move(what)}); }

  // Sends what may be sent, at twice the speed of the link at most.
  void step(Sender& sender) {
    if (sender.stepping || !sender.active) return;
    if (sender.in_flight >= sender.control.window(kPacket).value_or(Controller::kWindow)) return;
    sender.stepping = true;
    Time next = now + config.link.time_for(kPacket / 2);
    if (sender.control.may_send(sender.turn, kPacket, now)) {
      sender.control.on_sent(sender.turn, kPacket, now);
      send(sender);
    } else {
      next = std::max(sender.control.resume_at(sender.turn), now + Duration(1));
    }
    at(next, [this, &sender] {
      sender.stepping = false;
      step(sender);
    });
  }

  void send(Sender& sender) {
    ++sender.in_flight;
    const Time sent = now;
    const Duration packet_time = config.link.time_for(kPacket);
    const auto queued = static_cast<uint32_t>((std::max(free_at_, now) - now) / packet_time);
    const bool lost = queued >= config.queue;
    if (!lost) free_at_ = std::max(free_at_, now) + packet_time;
    const bool marked = config.mark_from > 0 && queued >= config.mark_from && !lost;
    const Duration noise = config.noise();
    at(free_at_ + sender.base + noise, [this, &sender, sent, lost, marked] {
      --sender.in_flight;
      if (lost) {
        ++sender.lost;
        sender.cuts += sender.control.on_lost(now);
      } else {
        ++sender.delivered;
        sender.cuts += sender.control.on_acknowledged(kPacket, now - sent, now);
      }
      if (marked && now >= sender.cnp_at) {
        sender.cnp_at = now + std::chrono::microseconds(4);
        sender.control.on_cnp(now);
      }
      step(sender);
    });
  }

  std::priority_queue<Event> events_;
  uint64_t number_ = 0;
  Time free_at_{};
};

}  // namespace uroce::congestion::test
