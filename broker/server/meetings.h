// SPDX-License-Identifier: BSD-2-Clause
// Who of the broker's clients wants to exchange packets with whom by memory, and who has been brought together. By
// ranges of QP numbers (lease_range.h).
//
// A meeting costs both something for each of their polls. So it takes the wish of both, and the first one's is
// remembered; where one side has no reason to mistrust the other, that one's wish is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "base/time.h"

namespace uroce::broker {

class Meetings {
 public:
  // The client with `range` asks for the one with `other`. True: they are to be brought together now.
  bool wish(uint32_t range, uint32_t other, bool one_is_enough, Time now);
  // The client with `range` could not be told that it meets the other one: until then it does not. What others prepare
  // for a meeting costs them something each time.
  void put_off(uint32_t range, uint32_t other, Time until);
  // The client with `range` does not ask for the other one any more.
  void drop_wish(uint32_t range, uint32_t other);
  // They have been, or are about to be.
  void settle(uint32_t range, uint32_t other);
  // They have not been after all, and have to ask again.
  void unsettle(uint32_t range, uint32_t other);
  // Its client has it no longer.
  void forget(uint32_t range);

  // Those that have been brought together with it.
  const std::set<uint32_t>& met(uint32_t range) const;

 private:
  struct Side {
    std::set<uint32_t> wants, wanted_by, met;
    std::map<uint32_t, Time> put_off;  // until when; kMostWishes: it does not meet anybody
  };
  static bool is_put_off(Side& side, uint32_t other, Time now);

  std::map<uint32_t, Side> sides_;
};

}  // namespace uroce::broker
