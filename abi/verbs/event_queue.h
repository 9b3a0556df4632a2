// SPDX-License-Identifier: BSD-2-Clause
// Events on their way to the application, with a descriptor that is readable while there are any. Completion channels
// and the asynchronous events of a context are made of it. push() comes from the engine, under its progress lock. There
// is a token in the descriptor for each event, but for one that the very thread that reports it is about to take.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <mutex>
#include <utility>

#include "abi/verbs/event_descriptor.h"
#include "base/lock_watch.h"

namespace uroce::verbs {

// One kind of event of one object. Its place in the queue is part of the object: reporting allocates nothing, so no
// event is lost for want of memory. It leaves the queue by purge() before it ends; in a forked child, which has no
// queue, it just ends.
class EventSource
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

 private:
  friend class EventQueue;
  uint32_t pending_ = 0;  // events that are to be taken
};

// Of several queues together.
struct EventCounts {
  std::atomic<int> pending{0};    // that are to be taken
  std::atomic<uint32_t> ever{0};  // that there have been; modulo 2^32
  uint32_t taken() const {
    return ever.load(std::memory_order_relaxed) - static_cast<uint32_t>(pending.load(std::memory_order_relaxed));
  }
};

// The oldest event is taken first. A source that has several takes its next place behind the others.
class EventQueue {
 public:
  EventQueue() = default;
  // `counts`: the events of this and other queues, which outlive it.
  explicit EventQueue(EventCounts& counts) : counts_(&counts) {}

  // As EventDescriptor::open().
  int open(int& application_fd) { return descriptor_.open(application_fd); }
  int open() { return descriptor_.open(); }
  int descriptor() const { return descriptor_.fd(); }

  void push(EventSource& source) noexcept {
    std::lock_guard guard(mutex_);
    if (source.pending_++ == 0) sources_.push_back(source);
    count(1);
    if (taker_ == this && !without_token_) {
      without_token_ = true;
    } else {
      descriptor_.signal();
    }
  }

  // The calling thread runs rounds until there is an event, and then takes it (try_take): that one needs no token,
  // which would cost two system calls.
  class Taker {
   public:
    explicit Taker(const EventQueue& queue) { taker_ = &queue; }
    ~Taker() { taker_ = nullptr; }
    Taker(const Taker&) = delete;
    Taker& operator=(const Taker&) = delete;
  };
  bool pending() {
    std::lock_guard guard(mutex_);
    return !sources_.empty();
  }
  // As take(), without waiting. False: there is no event, or another thread has just got its token.
  template <class OnTake>
  bool try_take(OnTake&& on_take) {
    std::lock_guard guard(mutex_);
    if (sources_.empty() || (!std::exchange(without_token_, false) && !descriptor_.retract())) return false;
    hand_out(on_take);
    return true;
  }

  // Waits on the application's descriptor and takes the oldest event. `on_take(source)` runs while the event can not
  // yet be missed by purge(). False with errno set.
  template <class OnTake>
  bool take(int application_fd, OnTake&& on_take) {
    while (EventDescriptor::wait(application_fd)) {
      std::lock_guard guard(mutex_);
      if (sources_.empty()) continue;  // what the token stood for has been purged
      hand_out(on_take);
      return true;
    }
    return false;
  }

  // Removes what the source has reported, before the object that it is of is destroyed.
  void purge(EventSource& source) {
    std::lock_guard guard(mutex_);
    if (source.pending_ == 0) return;
    sources_.erase(sources_.iterator_to(source));
    for (; source.pending_ > 0; --source.pending_) {
      count(-1);
      if (!std::exchange(without_token_, false)) descriptor_.retract();
    }
  }

 private:
  template <class OnTake>
  void hand_out(OnTake&& on_take) {
    EventSource& source = sources_.front();
    sources_.pop_front();
    count(-1);
    if (--source.pending_ > 0) sources_.push_back(source);
    on_take(source);
  }

  void count(int change) {
    if (counts_ == nullptr) return;
    counts_->pending.fetch_add(change, std::memory_order_relaxed);
    if (change > 0) counts_->ever.fetch_add(1, std::memory_order_relaxed);
  }

  // The queue for which this thread runs rounds.
  [[gnu::tls_model("initial-exec")]] static inline thread_local const EventQueue* taker_ = nullptr;

  LeafMutex mutex_;
  boost::intrusive::list<EventSource, boost::intrusive::constant_time_size<false>> sources_;
  EventDescriptor descriptor_;
  EventCounts* const counts_ = nullptr;
  bool without_token_ = false;  // one of the events, on top of those for which there are tokens
};

}  // namespace uroce::verbs
