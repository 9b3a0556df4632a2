// Events on their way to the application, with a descriptor that is readable while there are any. Completion channels
// and the asynchronous events of a context are made of it. push() comes from the engine, under its progress lock.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <new>

#include "verbs_shim/event_descriptor.h"

namespace uroce::verbs {

template <class Event>
class EventQueue {
 public:
  // As EventDescriptor::open().
  int open(int& application_fd) { return descriptor_.open(application_fd); }

  void push(const Event& event) noexcept {
    std::lock_guard guard(mutex_);
    try {
      events_.push_back(event);
    } catch (const std::bad_alloc&) {
      return;  // nobody to report to: the engine is in the middle of an iteration
    }
    descriptor_.signal();
  }

  // Waits on the application's descriptor and takes the oldest event. `on_take(event)` runs while the event can not yet
  // be missed by purge(). False with errno set.
  template <class OnTake>
  bool take(int application_fd, Event& out, OnTake&& on_take) {
    while (EventDescriptor::wait(application_fd)) {
      std::lock_guard guard(mutex_);
      if (events_.empty()) continue;  // what the token stood for has been purged
      out = events_.front();
      events_.pop_front();
      on_take(out);
      return true;
    }
    return false;
  }

  // Removes events that match, before the object they name is destroyed.
  template <class Match>
  void purge(Match&& match) {
    std::lock_guard guard(mutex_);
    for (size_t removed = std::erase_if(events_, match); removed > 0; --removed) descriptor_.retract();
  }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  EventDescriptor descriptor_;
};

}  // namespace uroce::verbs
