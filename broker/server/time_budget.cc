// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/time_budget.h"

#include <algorithm>

namespace uroce::broker {

Duration TimeBudget::left(uid_t user, Time now) const {
  const auto account = accounts_.find(user);
  if (account == accounts_.end()) return kMostTime;
  return std::min(account->second.left + (now - account->second.at) / kShare, kMostTime);
}

// Who has got back all that he had spent is forgotten, so that there are few accounts.
void TimeBudget::spend(uid_t user, Duration time, Time now) {
  const Duration rest = left(user, now) - time;  // first: who has no account has all, and g++ makes one before it asks
  accounts_[user] = {rest, now};
  std::erase_if(accounts_, [this, now](const auto& each) { return left(each.first, now) >= kMostTime; });
}

}  // namespace uroce::broker
