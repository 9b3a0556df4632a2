// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/wait_policy.h"

#include <algorithm>

namespace uroce::engine {

namespace {

constexpr Duration kSpinTime = std::chrono::microseconds(30);
// A process whose threads have not polled for this long is a passive target: spinning for it takes nothing from them.
constexpr Duration kPassive = std::chrono::milliseconds(1);
// How long a thread that finds packets all the time goes without a look at its descriptors.
constexpr Duration kLookInterval = std::chrono::milliseconds(10);
// How long a polling application is not relied on after packets were found unattended grows up to this while deferring
// to it turns out wrong again and again.
constexpr Duration kMaxDistrust = std::chrono::seconds(1);

}  // namespace

WaitPolicy::Wait WaitPolicy::after(const Turn& turn) {
  const bool polled = turn.round == Round::kBusy || turn.attended || turn.ended - turn.polled < kAttended;
  judge(turn, polled);
  if (turn.round == Round::kMoved) busy_at_ = turn.ended;
  deferred_ = polled && turn.ended >= trust_from_;
  if (deferred_) return Wait::kDefer;
  if (turn.round == Round::kBusy) return Wait::kMakeWay;
  if (turn.ended - turn.looked >= kLookInterval) return Wait::kLook;
  const bool passive = !turn.attended && turn.ended - turn.polled >= kPassive;
  const bool may_spin = passive && turn.ended - busy_at_ < kSpinTime;
  return may_spin && (turn.has_spare_cpu == nullptr || turn.has_spare_cpu(turn.ended)) ? Wait::kSpin : Wait::kSleep;
}

void WaitPolicy::judge(const Turn& turn, bool polled) {
  if (turn.sleep_expected) trust_from_ = turn.ended + kMinDistrust;
  if (turn.round == Round::kMoved && turn.began - turn.polled_before >= kAttended) {  // nobody came for the packets
    if (turn.attended && turn.polled_before >= missed_at_) {  // it has been there since the last time
      missed_at_ = turn.ended;
      return;
    }
    if (deferred_) distrust_ = std::min<Duration>(4 * distrust_, kMaxDistrust);
    trust_from_ = turn.ended + distrust_;
  } else if (deferred_ && polled) {
    distrust_ = kMinDistrust;
  }
}

}  // namespace uroce::engine
