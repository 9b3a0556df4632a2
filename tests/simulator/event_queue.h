// Virtual time: events in order of their time, then of their making. Nothing here knows the real clock, so a run is a
// function of its seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "engine/base/time.h"

namespace uroce::simulator {

class EventQueue {
 public:
  Time now() const { return now_; }

  void at(Time time, std::function<void()> event) {
    events_.emplace(std::make_pair(time < now_ ? now_ : time, sequence_++), std::move(event));
  }
  void after(Duration delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }

  // Runs events until done() or nothing is left or `limit` has passed. True if done().
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const Time end = now_ + limit;
    while (!done()) {
      if (events_.empty() || events_.begin()->first.first > end) return false;
      auto node = events_.extract(events_.begin());
      now_ = node.key().first;
      node.mapped()();
    }
    return true;
  }
  void run_for(Duration time) {
    const Time end = now_ + time;
    run_until([] { return false; }, time);
    now_ = end;
  }

 private:
  Time now_{std::chrono::seconds(1)};
  uint64_t sequence_ = 0;
  std::map<std::pair<Time, uint64_t>, std::function<void()>> events_;
};

}  // namespace uroce::simulator
