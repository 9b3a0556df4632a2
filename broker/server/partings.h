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
  // The client with range `other` has read all that it was told.
  using HasRead = std::function<bool(uint32_t other)>;

  // The client with range `other` is told at once, if it listens; `ends`: until when it may be told later, and read it.
  void add(uint32_t other, uint32_t range, Time ends, const Tell& tell);
  // Sees who has read it, and tells those that could not be told yet; of each that still does not listen it asks once.
  void look(Time now, const HasRead& has_read, const Tell& tell);
  bool any() const { return !waiting_.empty(); }
  // The client with range `other` has not been told yet.
  bool is_untold(uint32_t other, uint32_t range) const;
  // Somebody has still to read of it.
  bool are_of(uint32_t range) const { return counts_.contains(range); }

 private:
  struct Parting {
    uint32_t range;
    Time ends;
    bool told;
  };
  void forget(uint32_t range);

  std::map<uint32_t, std::deque<Parting>> waiting_;  // by `other`, in the order in which they are told
  std::map<uint32_t, size_t> counts_;                // by range
};

}  // namespace uroce::broker
