// SPDX-License-Identifier: BSD-2-Clause
// How much of the broker's time each user may have. It has one thread, which all others wait for and which takes a core
// from them: who works it all the time gets kShare of it.
#pragma once

#include <algorithm>
#include <map>
#include <sys/types.h>

#include "base/time.h"
#include "broker/server/bounds.h"

namespace uroce::broker {

class TimeBudget {
 public:
  // Whether the user is served now.
  bool has_some(uid_t user, Time now) const { return left(user, now) > Duration::zero(); }
  // When it is again, who is not now.
  Time again(uid_t user, Time now) const {
    return now + kLeastShare - std::min(left(user, now), Duration::zero()) * kShare;
  }
  void spend(uid_t user, Duration time, Time now);

 private:
  struct Account {
    Duration left;
    Time at;
  };
  Duration left(uid_t user, Time now) const;

  std::map<uid_t, Account> accounts_;  // of those who have spent some lately
};

}  // namespace uroce::broker
