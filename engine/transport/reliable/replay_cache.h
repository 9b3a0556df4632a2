// What a responder remembers of the READs and atomics it accepted: the ones it is still answering, and the finished
// ones whose answers may have been lost (IBTA 9.7.5.1.2, 9.4.5: as many as the depth it granted). Owned by the
// responder.
#pragma once

#include <array>
#include <cstdint>

#include "engine/queue/work_queue.h"
#include "wire/psn.h"

namespace uroce::transport {

struct ReplayEntry {
  // kBare: FLUSH and ATOMIC WRITE, answered without data.
  enum class Kind : uint8_t { kEmpty, kRead, kAtomic, kBare };

  Kind kind = Kind::kEmpty;
  bool answering = false;  // responses from `next` to `end` have to be sent
  bool replay = false;     // not for the first time
  wire::Psn first;         // of the request as it came first
  uint32_t count = 0;      // PSNs it consumed
  uint64_t va = 0;         // READ
  uint32_t rkey = 0;
  uint32_t pd = 0;        // whose memory is read
  uint32_t length = 0;    // bytes from va on
  uint32_t start = 0;     // READ: response number where the execution in progress began (0 unless replayed)
  uint32_t next = 0;      // READ: response number to send next
  uint32_t furthest = 0;  // READ: the first response that has never been sent
  uint32_t end = 0;       // READ: response number where it ends (before `count` for a replay of a part)
  uint32_t stop = 0;      // READ: bytes from va on where it ends (before `length` for a replay of a part)
  uint64_t original = 0;  // atomic: the value it found
};

class ReplayCache {
 public:
  static constexpr uint32_t kSize = 16;  // the largest max_dest_rd_atomic

  void reset() {
    entries_ = {};
    newest_ = 0;
    answering_ = first_answers_ = 0;
  }

  // READs and atomics whose responses have not all been sent.
  uint32_t answering() const { return answering_; }
  // Those among them that are answered for the first time: what the peer may have under way by the depth it was
  // granted. Replays do not count, or a peer that asks again after a loss would be told that it asks too much.
  uint32_t first_answers() const { return first_answers_; }

  // A new entry, to be answered. Takes the place of the oldest one.
  ReplayEntry& add() {
    ReplayEntry& entry = entries_[newest_++ % kSize];
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
    for (uint32_t i = 0; i < kSize; ++i) {
      ReplayEntry& entry = entries_[(newest_ - 1 - i) % kSize];
      if (entry.kind == ReplayEntry::Kind::kEmpty) return nullptr;
      if (((psn.value() - entry.first.value()) & wire::kMask24) < entry.count) return &entry;
    }
    return nullptr;
  }

  // The first request behind `psn` and before `end`, or null. Entries may be older than half of the PSNs.
  const ReplayEntry* first_between(wire::Psn psn, wire::Psn end) const {
    const auto offset = [psn](wire::Psn other) { return (other.value() - psn.value()) & wire::kMask24; };
    const ReplayEntry* first = nullptr;
    for (uint32_t i = 0; i < kSize; ++i) {
      const ReplayEntry& entry = entries_[(newest_ - 1 - i) % kSize];
      if (entry.kind == ReplayEntry::Kind::kEmpty) break;
      if (offset(entry.first) == 0 || offset(entry.first) >= offset(end)) break;
      first = &entry;
    }
    return first;
  }

  // The entry to answer next; null when answering() is 0. Responses leave in PSN order, but those of one READ are not
  // interrupted, not even by the duplicate of an earlier request: a requester would take what follows the interruption
  // for a message without beginning.
  ReplayEntry* next_to_answer() {
    if (answering_ == 0) return nullptr;
    ReplayEntry* oldest = nullptr;
    for (uint32_t i = 0; i < kSize; ++i) {
      ReplayEntry& entry = entries_[(newest_ + i) % kSize];
      if (!entry.answering) continue;
      if (entry.next != entry.start) return &entry;
      if (oldest == nullptr) oldest = &entry;
    }
    return oldest;
  }

 private:
  std::array<ReplayEntry, kSize> entries_{};
  uint32_t newest_ = 0;  // counts up; index of the next entry to fill
  uint32_t answering_ = 0;
  uint32_t first_answers_ = 0;
};

}  // namespace uroce::transport
