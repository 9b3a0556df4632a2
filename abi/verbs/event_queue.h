// SPDX-License-Identifier: BSD-2-Clause
// Events on their way to the application, with a descriptor that is readable while there are any. Completion channels
// and the asynchronous events of a context are made of it. push() comes from the engine, under its progress lock.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <mutex>

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

// The oldest event is taken first. A source that has several takes its next place behind the others.
class EventQueue {
 public:
  // As EventDescriptor::open().
  int open(int& application_fd) { return descriptor_.open(application_fd); }

  void push(EventSource& source) noexcept {
    std::lock_guard guard(mutex_);
    if (source.pending_++ == 0) sources_.push_back(source);
    descriptor_.signal();
  }

  // Waits on the application's descriptor and takes the oldest event. `on_take(source)` runs while the event can not
  // yet be missed by purge(). False with errno set.
  template <class OnTake>
  bool take(int application_fd, OnTake&& on_take) {
    while (EventDescriptor::wait(application_fd)) {
      std::lock_guard guard(mutex_);
      if (sources_.empty()) continue;  // what the token stood for has been purged
      EventSource& source = sources_.front();
      sources_.pop_front();
      if (--source.pending_ > 0) sources_.push_back(source);
      on_take(source);
      return true;
    }
    return false;
  }

  // Removes what the source has reported, before the object that it is of is destroyed.
  void purge(EventSource& source) {
    std::lock_guard guard(mutex_);
    if (source.pending_ == 0) return;
    sources_.erase(sources_.iterator_to(source));
    for (; source.pending_ > 0; --source.pending_) descriptor_.retract();
  }

 private:
  LeafMutex mutex_;
  boost::intrusive::list<EventSource, boost::intrusive::constant_time_size<false>> sources_;
  EventDescriptor descriptor_;
};

}  // namespace uroce::verbs
