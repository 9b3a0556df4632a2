// SPDX-License-Identifier: BSD-2-Clause
// Virtual time: events in order of their time, then of their making. Nothing here knows the real clock, so a run is a
// function of its seed.
//
// Simulations of a thousand hosts make hundreds of millions of events. So the heap has small keys only, and an event
// lies where it was put until it is run; one of up to 40 bytes is not allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/time.h"

namespace uroce::simulator {

class EventQueue {
 public:
  EventQueue() = default;
  ~EventQueue() {
    for (const Key& key : heap_) slots_[key.slot].drop();
  }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  Time now() const { return now_; }
  uint64_t count() const { return sequence_ - heap_.size(); }  // events that have been run

  template <class Event>
  void at(Time time, Event&& event) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].put(std::forward<Event>(event));
    heap_.push_back({std::max(time, now_), sequence_++, slot});
    std::push_heap(heap_.begin(), heap_.end());
  }
  template <class Event>
  void after(Duration delay, Event&& event) {
    at(now_ + delay, std::forward<Event>(event));
  }

  // Runs events until done() or nothing is left or `limit` has passed. True if done().
  template <class Done>
  bool run_until(Done&& done, Duration limit) {
    const Time end = now_ + limit;
    while (!done()) {
      if (heap_.empty() || heap_.front().time > end) return false;
      run_first();
    }
    return true;
  }
  void run_for(Duration time) {
    const Time end = now_ + time;
    run_until([] { return false; }, time);
    now_ = end;
  }

 private:
  struct Key {
    Time time;
    uint64_t sequence;
    uint32_t slot;
    // The heap's first is its largest.
    bool operator<(const Key& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  class Slot {
   public:
    template <class Event>
    void put(Event&& event) {
      using Given = std::decay_t<Event>;
      using Stored = std::conditional_t<sizeof(Given) <= sizeof(bytes_), Given, std::function<void()>>;
      static_assert(sizeof(Stored) <= sizeof(bytes_) && alignof(Stored) <= alignof(std::max_align_t));
      new (bytes_) Stored(std::forward<Event>(event));
      finish_ = [](std::byte* bytes, bool run) {
        Stored& stored = *std::launder(reinterpret_cast<Stored*>(bytes));
        if (run) stored();
        std::destroy_at(&stored);
      };
    }
    void run() { finish_(bytes_, true); }
    void drop() { finish_(bytes_, false); }

   private:
    alignas(std::max_align_t) std::byte bytes_[40];
    void (*finish_)(std::byte* bytes, bool run) = nullptr;
  };

  void run_first() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Key first = heap_.back();
    heap_.pop_back();
    now_ = first.time;
    slots_[first.slot].run();
    free_.push_back(first.slot);
  }

  Time now_{std::chrono::seconds(1)};
  uint64_t sequence_ = 0;
  std::vector<Key> heap_;
  std::deque<Slot> slots_;  // they stay where they are while others are added
  std::vector<uint32_t> free_;
};

}  // namespace uroce::simulator
