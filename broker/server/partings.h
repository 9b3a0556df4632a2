// SPDX-License-Identifier: BSD-2-Clause
// Who is to be told that a range of QP numbers (lease_range.h) has gone from the client that it met (meetings.h). Until
// then nobody else is to have the range, as what is sent for it goes to the memory of the one who had it; but who does
// not listen for long is not waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "base/time.h"

namespace uroce::broker {

class Partings {
 public:
  // Tells the client with range `other` that `range` has gone. False: not now, it does not listen.
  using Tell = std::function<bool(uint32_t other, uint32_t range)>;

  // The client with range `other` is told at once, if it listens; `ends`: until when it may be told later.
  void add(uint32_t other, uint32_t range, Time ends, const Tell& tell);
  // Tells those that could not be told yet; of each that still does not listen it asks once.
  void tell_all(Time now, const Tell& tell);
  bool any() const { return !waiting_.empty(); }
  // Somebody has still to hear of it.
  bool are_of(uint32_t range) const { return counts_.contains(range); }

 private:
  struct Parting {
    uint32_t range;
    Time ends;
  };
  void forget(uint32_t range);

  std::map<uint32_t, std::deque<Parting>> waiting_;  // by `other`, those that end first in front
  std::map<uint32_t, size_t> counts_;                // by range
};

}  // namespace uroce::broker
