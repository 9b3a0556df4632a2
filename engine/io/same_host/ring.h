// SPDX-License-Identifier: BSD-2-Clause
// A queue of records from one process to another, in shared memory. One writer, one reader, no lock. What a side writes
// is in memory of its own, which the other one can only read (peer_memory.h). Part of Peer (peer.h).
//
// The other side may be hostile. What it writes is read once, checked, then used: its index and the length in front of
// a record. A writer whose reader lies sees a full ring; a reader whose writer lies sees broken(). The bytes are mapped
// twice in a row, so that no record is parted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::io {

// What one side says, of the ring that it writes to and of the one that it reads from. In shared memory, which begins
// with zeros. Bytes are counted from the beginning.
struct PeerWords {
  alignas(64) std::atomic<uint64_t> tail;    // what it has written
  alignas(64) std::atomic<uint64_t> head;    // what it has read
  alignas(64) std::atomic<uint32_t> sleeps;  // how often it has said that it is to be woken, which is once each time
  std::atomic<uint32_t> takes_long;          // packets may be longer than the path MTU
};

// Room for the window of a QP, 264 packets of 1 KiB. Much more is slower: what is written is to be still in the cache
// when it is read (packet-io.md "On one host").
inline constexpr size_t kRingSize = size_t{512} << 10;

class RingWriter {
 public:
  // `bytes`: the ring, twice in a row.
  RingWriter(PeerWords& own, const PeerWords& theirs, uint8_t* bytes) : own_(own), theirs_(theirs), bytes_(bytes) {}

  // Where a record of so many bytes goes, at least one; null: there is no room now.
  uint8_t* reserve(size_t size);
  // It is complete.
  void add(size_t size);
  // Bytes that the reader has read, by what it said when room was missed last. Whatever it says: not more than a ring
  // less than what was written.
  uint64_t known_read() const { return limit_ - kRingSize; }
  // What the reader says that it has read, and whether that is all.
  uint64_t read() const { return theirs_.head.load(std::memory_order_relaxed); }
  bool all_read() const { return read() == published_; }
  // The reader takes long packets.
  bool may_be_long() const { return theirs_.takes_long.load(std::memory_order_relaxed) != 0; }
  // The reader gets to see what was added. True: it sleeps, and the caller is the one to wake it.
  bool publish();

 private:
  PeerWords& own_;
  const PeerWords& theirs_;
  uint8_t* const bytes_;
  uint64_t tail_ = 0, published_ = 0;
  uint32_t woken_ = ~0u;        // how often it had said so when it was woken last; it begins asleep
  uint64_t limit_ = kRingSize;  // up to where there was room when the reader's index was read last
};

class RingReader {
 public:
  RingReader(PeerWords& own, const PeerWords& theirs, const uint8_t* bytes)
      : own_(own), theirs_(theirs), bytes_(bytes) {}

  // The oldest record; empty: there is none. It stays until release(), but the writer may go on writing to it: to be
  // copied before it is looked at.
  std::span<const uint8_t> front();
  void pop();
  void take_long(bool taken) { own_.takes_long.store(taken ? 1 : 0, std::memory_order_relaxed); }
  // The writer has room again, where the records were that pop() has left behind.
  void release();
  bool empty() { return front().empty(); }
  // What is written from now on does not come.
  void close();
  // Nobody looks any more until publish() says so. False: there is a record.
  bool sleep();
  // What the writer says cannot be true. Nothing comes any more.
  bool broken() const { return broken_; }

 private:
  PeerWords& own_;
  const PeerWords& theirs_;
  const uint8_t* const bytes_;
  uint32_t sleeps_ = 0;
  uint64_t head_ = 0, tail_ = 0;  // `tail_`: as it was read last
  size_t front_ = 0;              // bytes that the oldest record takes up
  bool broken_ = false, closed_ = false;
};

}  // namespace uroce::io
