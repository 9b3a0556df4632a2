// SPDX-License-Identifier: BSD-2-Clause
// The memory that AF_XDP moves packets in: one area of fixed-size chunks, and the pool of those that are free to send
// from. Owned by AfXdp; the area outlives the sockets that are bound to it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace uroce::io {

// An anonymous mapping. A child after fork() does not inherit it: the kernel goes on writing into it.
class UmemArea {
 public:
  UmemArea() = default;
  ~UmemArea();
  UmemArea(const UmemArea&) = delete;
  UmemArea& operator=(const UmemArea&) = delete;

  // Returns 0 or an errno value.
  int map(size_t size);

  uint8_t* data(uint64_t address) const {
    assert(address < size_);
    return base_ + address;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
};

// Slots of the area to build frames in. A slot is one chunk, or several neighbouring ones when a frame needs them: the
// frame is contiguous for us, and one descriptor per chunk for the kernel. A slot is free again when as many chunks of
// it have been completed as were sent.
class TxSlots {
 public:
  TxSlots() = default;
  TxSlots(uint64_t first_address, uint32_t slot_count, uint32_t chunk_size, uint32_t chunks_per_slot);

  bool empty() const { return free_.empty(); }
  size_t available() const { return free_.size(); }
  uint32_t slot_size() const { return slot_size_; }

  // Takes a slot that will be sent as `chunks` descriptors; its address.
  uint64_t take(uint32_t chunks) {
    assert(!free_.empty());
    const uint32_t slot = free_.back();
    free_.pop_back();
    chunks_under_way_[slot] = static_cast<uint8_t>(chunks);
    return first_address_ + uint64_t{slot} * slot_size_;
  }

  // The kernel is done with the chunk at `address`. False: it had no such chunk of us.
  bool complete(uint64_t address) {
    const uint64_t slot = (address - first_address_) / slot_size_;  // huge below the first one
    if (slot >= chunks_under_way_.size() || chunks_under_way_[slot] == 0) return false;
    if (--chunks_under_way_[slot] == 0) free_.push_back(static_cast<uint32_t>(slot));
    return true;
  }

 private:
  uint64_t first_address_ = 0;
  uint32_t slot_size_ = 0;
  std::vector<uint8_t> chunks_under_way_;  // by slot; 0 = free
  std::vector<uint32_t> free_;             // last in, first out: the cache-warm slot next
};

}  // namespace uroce::io
