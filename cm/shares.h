// SPDX-License-Identifier: BSD-2-Clause
// How much of something each user has (Limits).
#pragma once

#include <cstdint>
#include <map>

#include "cm/types.h"

namespace uroce::cm {

class Shares {
 public:
  explicit Shares(uint32_t all) : all_(all) {}

  // Of `all`, where `taken` are taken and `own` of these are the user's: one more can be this account's.
  static bool leaves_enough(uint64_t all, uint64_t taken, uint64_t own, const Account& account) {
    return account.has_reserve ? taken < all : taken + all / Limits::kReserved + own < all;
  }

  bool has_room(const Account& account) const { return leaves_enough(all_, taken_, of(account.user), account); }
  uint32_t of(UserId user) const {
    const auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second;
  }
  uint32_t taken() const { return taken_; }

  void add(UserId user) {
    ++taken_;
    ++users_[user];
  }
  void remove(UserId user) {
    const auto found = users_.find(user);
    --taken_;
    if (--found->second == 0) users_.erase(found);
  }

 private:
  const uint32_t all_;
  uint32_t taken_ = 0;
  std::map<UserId, uint32_t> users_;
};

}  // namespace uroce::cm
