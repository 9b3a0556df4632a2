// SPDX-License-Identifier: BSD-2-Clause
// A queue of records from one process to another, in memory that both can write to. One writer, one reader, no lock.
// Part of Peer (peer.h).
//
// The other side may be hostile. What it can write is read once, checked, then used: its index and the length in front
// of a record. Each side goes by its own index, which it never reads back. A writer whose reader lies sees a full ring;
// a reader whose writer lies sees broken(). The bytes are mapped twice in a row, so that no record is parted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::io {

// In shared memory, which begins with zeros. Bytes are counted from the beginning.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;   // the writer's: what it has written
  alignas(64) std::atomic<uint64_t> head;   // the reader's: what it has read
  alignas(64) std::atomic<uint32_t> awake;  // the reader looks by itself; 0: it is to be woken
  std::atomic<uint32_t> takes_long;         // the reader's: packets may be longer than the path MTU
};

// Room for the window of a QP, 264 packets of 1 KiB. Much more is slower: what is written is to be still in the cache
// when it is read (packet-io.md "On one host").
inline constexpr size_t kRingSize = size_t{512} << 10;

class RingWriter {
 public:
  // `bytes`: the ring, twice in a row.
  RingWriter(RingControl& control, uint8_t* bytes) : control_(control), bytes_(bytes) {}

  // Where a record of so many bytes goes, at least one; null: there is no room now.
  uint8_t* reserve(size_t size);
  // It is complete.
  void add(size_t size);
  // Bytes that the reader has read, by what it said when room was missed last. Whatever it says: not more than a ring
  // less than what was written.
  uint64_t known_read() const { return limit_ - kRingSize; }
  // What the reader says that it has read, and whether that is all.
  uint64_t read() const { return control_.head.load(std::memory_order_relaxed); }
  bool all_read() const { return read() == published_; }
  // The reader takes long packets.
  bool may_be_long() const { return control_.takes_long.load(std::memory_order_relaxed) != 0; }
  // The reader gets to see what was added. True: it sleeps, and the caller is the one to wake it.
  bool publish();

 private:
  RingControl& control_;
  uint8_t* const bytes_;
  uint64_t tail_ = 0, published_ = 0;
  uint64_t limit_ = kRingSize;  // up to where there was room when the reader's index was read last
};

class RingReader {
 public:
  RingReader(RingControl& control, const uint8_t* bytes) : control_(control), bytes_(bytes) {}

  // The oldest record; empty: there is none. It stays until release(), but the writer may go on writing to it: to be
  // copied before it is looked at.
  std::span<const uint8_t> front();
  void pop();
  void take_long(bool taken) { control_.takes_long.store(taken ? 1 : 0, std::memory_order_relaxed); }
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
  RingControl& control_;
  const uint8_t* const bytes_;
  uint64_t head_ = 0, tail_ = 0;  // `tail_`: as it was read last
  size_t front_ = 0;              // bytes that the oldest record takes up
  bool broken_ = false, closed_ = false;
};

}  // namespace uroce::io
