// SPDX-License-Identifier: BSD-2-Clause
// What a responder remembers of the READs and atomics it accepted: the ones it is still answering, and the finished
// ones whose answers may have been lost (IBTA 9.7.5.1.2, 9.4.5: as many as the depth it granted). The memory for them
// is handed in: the transport allocates none. Owned by the responder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "wire/psn.h"

namespace uroce::transport {

struct ReplayEntry {
  // kBare: FLUSH and ATOMIC WRITE, answered without data.
  enum class Kind : uint8_t { kEmpty, kRead, kAtomic, kBare };

  union {
    uint64_t va = 0;    // READ
    uint64_t original;  // atomic: the value it found
  };
  uint32_t rkey = 0;
  uint32_t pd = 0;        // whose memory is read
  uint32_t length = 0;    // bytes from va on
  uint32_t start = 0;     // READ: response number where the execution in progress began (0 unless replayed)
  uint32_t next = 0;      // READ: response number to send next
  uint32_t furthest = 0;  // READ: the first response that has never been sent
  uint32_t stop = 0;      // READ: bytes from va on where it ends (before `length` for a replay of a part)
  wire::Psn first;        // of the request as it came first
  uint32_t count = 0;     // PSNs it consumed
  Kind kind = Kind::kEmpty;
  bool answering = false;  // responses from `next` up to `stop` have to be sent
  bool replay = false;     // not for the first time
};
static_assert(sizeof(ReplayEntry) == 48);

class ReplayCache {
 public:
  // As many requests as can be remembered; the peer is granted no more.
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

  // From now on they lie in `room`, which is empty and not smaller than what held them so far.
  void move_to(std::span<ReplayEntry> room) {
    std::rotate(entries_.begin(), entries_.begin() + oldest_, entries_.end());
    const auto first = std::find_if(entries_.begin(), entries_.end(), is_used);
    oldest_ = static_cast<uint32_t>(std::copy(first, entries_.end(), room.begin()) - room.begin());
    if (oldest_ == room.size()) oldest_ = 0;
    entries_ = room;
  }

  void reset() {
    std::fill(entries_.begin(), entries_.end(), ReplayEntry{});
    oldest_ = answering_ = first_answers_ = 0;
  }

  // READs and atomics whose responses have not all been sent.
  uint32_t answering() const { return answering_; }
  // Those among them that are answered for the first time: what the peer may have under way by the depth it was
  // granted. Replays do not count, or a peer that asks again after a loss would be told that it asks too much.
  uint32_t first_answers() const { return first_answers_; }

  // A new entry, to be answered. Takes the place of the oldest one, whose first answer has been sent: fewer than size()
  // are answered for the first time.
  ReplayEntry& add() {
    ReplayEntry& entry = entries_[oldest_];
    oldest_ = oldest_ + 1 == size() ? 0 : oldest_ + 1;
    if (entry.answering) answered(entry);
    entry = ReplayEntry{};
    entry.answering = true;
    ++answering_;
    ++first_answers_;
    return entry;
  }

  void answer_again(ReplayEntry& entry) {
    if (!entry.answering) ++answering_;
    entry.answering = true;
  }
  void answered(ReplayEntry& entry) {
    if (!entry.replay) --first_answers_;
    entry.answering = false;
    entry.replay = true;
    --answering_;
  }

  // The entry whose PSN range holds `psn`, or null.
  ReplayEntry* find(wire::Psn psn) {
    for (uint32_t age = 0; age < size(); ++age) {
      ReplayEntry& entry = newest(age);
      if (!is_used(entry)) return nullptr;
      if (psn.offset_from(entry.first) < entry.count) return &entry;
    }
    return nullptr;
  }

  // The first request behind `psn` and before `end`, or null. Entries may be older than half of the PSNs.
  const ReplayEntry* first_between(wire::Psn psn, wire::Psn end) const {
    const auto offset = [psn](wire::Psn other) { return other.offset_from(psn); };
    const ReplayEntry* first = nullptr;
    for (uint32_t age = 0; age < size(); ++age) {
      const ReplayEntry& entry = newest(age);
      if (!is_used(entry)) break;
      if (offset(entry.first) == 0 || offset(entry.first) >= offset(end)) break;
      first = &entry;
    }
    return first;
  }

  // The entry to answer next; null when answering() is 0. Responses leave in PSN order, but those of one READ are not
  // interrupted, not even by the duplicate of an earlier request: a requester would take what follows the interruption
  // for a message without beginning.
  ReplayEntry* next_to_answer() {
    ReplayEntry* oldest = nullptr;
    uint32_t left = answering_;
    for (uint32_t age = 0; age < size() && left > 0; ++age) {
      ReplayEntry& entry = newest(age);
      if (!entry.answering) continue;
      if (entry.next != entry.start) return &entry;
      oldest = &entry;
      --left;
    }
    return oldest;
  }

 private:
  static bool is_used(const ReplayEntry& entry) { return entry.kind != ReplayEntry::Kind::kEmpty; }
  // The newest one for age 0, the one before it for 1 and so on.
  ReplayEntry& newest(uint32_t age) const {
    const uint32_t behind = oldest_ + size() - 1 - age;
    return entries_[behind < size() ? behind : behind - size()];
  }

  std::span<ReplayEntry> entries_;
  uint32_t oldest_ = 0;  // the next to fill
  uint32_t answering_ = 0;
  uint32_t first_answers_ = 0;
};

}  // namespace uroce::transport
