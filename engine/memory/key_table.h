// SPDX-License-Identifier: BSD-2-Clause
// A hash table of what keys name: memory regions by all 32 bits of their key, memory windows by the upper 24. Keys are
// random, so their bits are their hash. The upper bits choose a segment, and every segment grows by itself: with a
// million entries an insertion moves some thousand at worst, and the data path, which looks up for every packet under
// the same lock, never waits for long. Used by MrTable and WindowTable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace uroce::memory {

// Entry: movable, with a member `key`; 0 marks an empty slot. The low `kIgnoredBits` of keys do not count, and the rest
// of no key is 0.
template <class Entry, unsigned kIgnoredBits>
class KeyTable {
 public:
  size_t size() const { return size_; }

  Entry* find(uint32_t key) {
    Segment& s = segment(key);
    if (s.slots.empty()) return nullptr;
    const size_t mask = s.slots.size() - 1;
    for (size_t i = home(key) & mask;; i = (i + 1) & mask) {
      if (s.slots[i].key == 0) return nullptr;
      if (home(s.slots[i].key) == home(key)) return &s.slots[i];
    }
  }
  const Entry* find(uint32_t key) const { return const_cast<KeyTable*>(this)->find(key); }

  // `entry.key` must not be there. May throw std::bad_alloc, and has changed nothing then.
  void insert(Entry entry) {
    Segment& s = segment(entry.key);
    if ((s.used + 1) * 4 > s.slots.size() * 3) grow(s);
    place(s.slots, std::move(entry));
    ++s.used;
    ++size_;
  }

  // `entry` is one that find() gave.
  void erase(Entry* entry) {
    Segment& s = segment(entry->key);
    const size_t mask = s.slots.size() - 1;
    // Backward-shift deletion keeps probe sequences without gaps.
    auto hole = static_cast<size_t>(entry - s.slots.data());
    for (size_t i = (hole + 1) & mask; s.slots[i].key != 0; i = (i + 1) & mask) {
      const size_t wanted = home(s.slots[i].key) & mask;
      if (((i - wanted) & mask) < ((i - hole) & mask)) continue;
      s.slots[hole] = std::move(s.slots[i]);
      hole = i;
    }
    s.slots[hole] = Entry{};
    --s.used;
    --size_;
  }

 private:
  static constexpr unsigned kSegmentBits = 10;
  static constexpr size_t kFirstSize = 8;  // slots of a segment; always a power of two

  struct Segment {
    std::vector<Entry> slots;  // open addressing
    size_t used = 0;
  };

  static size_t home(uint32_t key) { return key >> kIgnoredBits; }
  Segment& segment(uint32_t key) { return segments_[key >> (32 - kSegmentBits)]; }

  static void place(std::vector<Entry>& slots, Entry entry) {
    const size_t mask = slots.size() - 1;
    size_t i = home(entry.key) & mask;
    while (slots[i].key != 0) i = (i + 1) & mask;
    slots[i] = std::move(entry);
  }
  static void grow(Segment& s) {
    std::vector<Entry> larger(s.slots.empty() ? kFirstSize : s.slots.size() * 2);
    for (Entry& entry : s.slots) {
      if (entry.key != 0) place(larger, std::move(entry));
    }
    s.slots.swap(larger);
  }

  std::vector<Segment> segments_ = std::vector<Segment>(size_t{1} << kSegmentBits);
  size_t size_ = 0;
};

}  // namespace uroce::memory
