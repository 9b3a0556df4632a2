// One direction of a cable: a queue in front of it, a rate, a delay, and what goes wrong on the way. Frames travel as
// bytes, so that whatever happens to them is seen by the same parsing, ICRC and address checks as on a real wire.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tests/simulator/event_queue.h"

namespace uroce::simulator {

using Frame = std::vector<uint8_t>;  // Ethernet to ICRC, without FCS

struct LinkConfig {
  double bits_per_second = 10e9;
  Duration delay = std::chrono::microseconds(5);
  uint32_t queue_frames = 1024;  // waiting or being sent; more are dropped
  // Probabilities per frame.
  double drop = 0;
  uint32_t drop_burst = 1;  // frames lost in a row when one is
  double duplicate = 0;
  double reorder = 0;  // delayed by up to `reorder_delay`
  double corrupt = 0;  // one bit flipped, anywhere behind the Ethernet header
  Duration reorder_delay = std::chrono::microseconds(40);
  // A switch's marking (ECN, RFC 3168): ECT frames become CE with a probability that rises from 0 to 1 between these
  // queue lengths. 0: never.
  uint32_t mark_from = 0;
  uint32_t mark_all_from = 0;
};

struct LinkCounters {
  uint64_t sent = 0, dropped = 0, overflowed = 0, duplicated = 0, corrupted = 0, reordered = 0, marked = 0;
};

class Link {
 public:
  using Receiver = std::function<void(Frame)>;

  Link(EventQueue& events, std::mt19937_64& random, const LinkConfig& settings)
      : config(settings), events_(events), random_(random) {}

  void connect(Receiver receiver) { receiver_ = std::move(receiver); }
  // Called whenever a frame has left the queue.
  void on_room(std::function<void()> callback) { on_room_ = std::move(callback); }

  // In the queue, in frames.
  uint32_t room() const { return config.queue_frames - std::min(queued_, config.queue_frames); }
  bool full() const { return room() == 0; }
  void send(Frame frame);

  LinkConfig config;
  LinkCounters counters;
  bool down = false;  // everything is lost
  // For tests: sees every frame before chance does; false loses it.
  std::function<bool(const Frame&)> filter;

 private:
  void mark(Frame& frame);
  void deliver(Frame frame, Time at);
  bool chance(double p);
  Duration jitter();

  EventQueue& events_;
  std::mt19937_64& random_;
  Receiver receiver_;
  std::function<void()> on_room_;
  Time free_at_{};
  uint32_t queued_ = 0;
  uint32_t still_dropping_ = 0;
};

}  // namespace uroce::simulator
