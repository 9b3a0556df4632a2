// One direction of a network link: rate, delay, queue, and what goes wrong on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tests/simulator/event_queue.h"

namespace uroce::simulator {

struct LinkConfig {
  double bits_per_second = 10e9;
  Duration delay = std::chrono::microseconds(5);
  uint32_t queue_packets = 1024;  // more are dropped
  double drop = 0;                // probabilities per packet
  double duplicate = 0;
  double reorder = 0;  // delayed by up to `reorder_delay`
  double corrupt = 0;  // one bit flipped
  Duration reorder_delay = std::chrono::microseconds(40);
};

class Link {
 public:
  using Bytes = std::vector<uint8_t>;
  using Receiver = std::function<void(const Bytes&)>;

  Link(EventQueue& events, std::mt19937_64& random, LinkConfig settings)
      : config(settings), events_(events), random_(random) {}

  void connect(Receiver receiver) { receiver_ = std::move(receiver); }

  void send(Bytes packet) {
    if (filter && !filter(packet)) return;
    if (chance(config.drop) || queued_ >= config.queue_packets) return;
    const bool twice = chance(config.duplicate);
    if (chance(config.corrupt)) packet[random_() % packet.size()] ^= static_cast<uint8_t>(1 << random_() % 8);
    const auto serialisation =
        Duration(static_cast<int64_t>(8e9 * static_cast<double>(packet.size() + 50) / config.bits_per_second));
    free_at_ = std::max(free_at_, events_.now()) + serialisation;
    deliver(packet, free_at_ + config.delay + jitter());
    if (twice) deliver(packet, free_at_ + config.delay + jitter());
  }

  LinkConfig config;
  // For tests: sees every packet before chance does; false loses it.
  std::function<bool(const Bytes&)> filter;

 private:
  void deliver(const Bytes& packet, Time at) {
    ++queued_;
    events_.at(at, [this, packet] {
      --queued_;
      receiver_(packet);
    });
  }
  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random_) < p; }
  Duration jitter() {
    if (!chance(config.reorder)) return Duration{};
    return Duration(static_cast<int64_t>(random_() % static_cast<uint64_t>(config.reorder_delay.count())));
  }

  EventQueue& events_;
  std::mt19937_64& random_;
  Receiver receiver_;
  Time free_at_{};
  uint32_t queued_ = 0;
};

}  // namespace uroce::simulator
