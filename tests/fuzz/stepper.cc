// SPDX-License-Identifier: BSD-2-Clause
#include "tests/fuzz/stepper.h"

#include "tests/fuzz/check.h"

namespace uroce::fuzz {

void Stepper::advance(Duration time) {
  const uint64_t step = ++steps_;
  events_.at(events_.now() + time, [this, step] { ended_ = step; });
  uint32_t count = 0;
  events_.run_until(
      [&] {
        check_progress();
        return ended_ == step || ++count > kMaxEvents;
      },
      time);
}

void Stepper::settle() {
  // The slowest rate that congestion control knows still lets a last NAK leave within this time.
  constexpr int kSteps = 20;
  for (int i = 0; i < kSteps; ++i) advance(std::chrono::milliseconds(500));
  for (const Party* party : parties_) {
    check(!party->qp.rc.wants_to_send(events_.now()), "a QP that has ended falls silent");
    check(party->qp.rc.deadline() > events_.now(), "a QP that has ended waits for nothing");
  }
}

// Called before every event.
void Stepper::check_progress() {
  at_once_ = events_.now() == last_ ? at_once_ + 1 : 0;
  last_ = events_.now();
  check(at_once_ < kMaxEventsAtOnce, "time moves on");

  const uint64_t sent = frames();
  bool overdue = false;
  for (const Party* party : parties_) overdue = overdue || party->qp.rc.deadline() < events_.now();
  overdue_ = overdue && sent == last_frames_ ? overdue_ + 1 : 0;
  last_frames_ = sent;
  check(overdue_ < kMaxIdleEvents, "a deadline that has passed has an effect");
}

uint64_t Stepper::frames() const {
  uint64_t sum = 0;
  for (const Party* party : parties_) sum += party->out.counters.sent;
  return sum;
}

}  // namespace uroce::fuzz
