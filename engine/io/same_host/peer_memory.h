// SPDX-License-Identifier: BSD-2-Clause
// What one side of a pair of peers (peer.h) writes, and nobody else: its words (ring.h), and the ring with its records.
//
// The broker makes it and passes it to its writer first, who maps it and seals it; from then on nobody maps it for
// writing, takes pages of it away (FALLOC_FL_PUNCH_HOLE) or changes its size. Whoever touches pages that are taken away
// waits for that, 0.1 s for each 60000 mappings, and memory that shrinks is a SIGBUS. So the other side, which need not
// trust the writer, maps it when it has seen the seals, for reading. To seal takes a lock that whoever has the memory
// may keep for as long as he likes, but then it is the writer alone who has it; to ask for the seals takes none.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "engine/io/same_host/ring.h"

namespace uroce::io {

class PeerMemory {
 public:
  // The broker's part. 0 or an errno value.
  static int make(UniqueFd& memory);
  // Its writer has sealed it; `all_there`: and made all its pages, which whoever reads it would else.
  static bool is_sealed(int memory, bool all_there = false);

  // Null: it is not what make() makes, is sealed already, or cannot be mapped. Children do not have it. `of_stranger`:
  // its pages are made now, and so are this process's to pay for (memory cgroups), not those of who touches them first;
  // and nobody can have them moved together (base/page_hold.h).
  static std::unique_ptr<PeerMemory> for_writing(int memory, bool of_stranger = false);
  // Null: likewise, or not sealed, or not all there.
  static std::unique_ptr<const PeerMemory> for_reading(int memory, bool of_stranger = false);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  PeerWords& words() { return *reinterpret_cast<PeerWords*>(base_); }
  const PeerWords& words() const { return *reinterpret_cast<const PeerWords*>(base_); }
  // Twice in a row.
  uint8_t* ring() { return base_ + kWordsSize; }
  const uint8_t* ring() const { return base_ + kWordsSize; }

 private:
  static constexpr size_t kWordsSize = 4096;
  PeerMemory() = default;
  bool map(int memory, int protection);
  bool make_all();
  bool hold();

  uint8_t* base_ = nullptr;
  UniqueFd hold_;  // closed in children (ForkGuard)
};

}  // namespace uroce::io
