// SPDX-License-Identifier: BSD-2-Clause
// One direction of a cable: a queue in front of it, a rate, a delay, and what goes wrong on the way. Frames travel as
// bytes, so that whatever happens to them is seen by the same parsing, ICRC and address checks as on a real wire.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "tests/simulator/event_queue.h"
#include "tests/simulator/frame.h"

namespace uroce::simulator {

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
  // A switch's marking (ECN, RFC 3168): ECT frames become CE with a probability that rises from 0 to `mark_at_most`
  // between these queue lengths, and all of them beyond (Kmin, Kmax and Pmax of DCQCN's paper). 0: never.
  uint32_t mark_from = 0;
  uint32_t mark_all_from = 0;
  double mark_at_most = 1;
};

struct LinkCounters {
  uint64_t sent = 0, dropped = 0, overflowed = 0, duplicated = 0, corrupted = 0, reordered = 0, marked = 0;
};

// How many frames were in a queue, as those found it that came to it.
class QueueLengths {
 public:
  void add(uint32_t length) {
    if (length >= seen_.size()) seen_.resize(length + 1);
    ++seen_[length];
    ++count_;
    sum_ += length;
  }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  uint32_t longest() const { return seen_.empty() ? 0 : static_cast<uint32_t>(seen_.size() - 1); }
  // The length that this share of the frames found, or a shorter one.
  uint32_t quantile(double share) const {
    uint64_t left = static_cast<uint64_t>(share * static_cast<double>(count_));
    uint32_t length = 0;
    while (length < longest() && left >= seen_[length]) left -= seen_[length++];
    return length;
  }

 private:
  std::vector<uint64_t> seen_;  // by length
  uint64_t count_ = 0, sum_ = 0;
};

class Link {
 public:
  using Receiver = std::function<void(Frame)>;

  Link(EventQueue& events, std::mt19937_64& random, const LinkConfig& settings)
      : config(settings), events_(events), random_(random) {}

  void connect(Receiver receiver) { receiver_ = std::move(receiver); }

  // In the queue, in frames.
  uint32_t room() const { return config.queue_frames - std::min(queued(), config.queue_frames); }
  bool full() const { return room() == 0; }
  // When the next frame leaves the queue, which is not empty.
  Time room_at() const { return leaving_.front(); }
  void send(Frame frame);

  LinkConfig config;
  LinkCounters counters;
  bool down = false;                // everything is lost
  QueueLengths* lengths = nullptr;  // what to count the queue's lengths in, if anybody wants to know
  // For tests: sees every frame before chance does; false loses it.
  std::function<bool(const Frame&)> filter;

 private:
  struct Arrival {
    Time at;
    Frame frame;
  };

  uint32_t queued() const;
  void mark(Frame& frame);
  void deliver(Frame frame, Time at);
  void deliver_first();
  bool chance(double p);
  Duration jitter();

  EventQueue& events_;
  std::mt19937_64& random_;
  Receiver receiver_;
  Time free_at_{};
  mutable std::deque<Time> leaving_;  // when the frames in the queue will have left it; those that have may be there
  std::deque<Arrival> under_way_;     // in order of their arrival; an event waits for the first
  uint32_t still_dropping_ = 0;
};

}  // namespace uroce::simulator
