// SPDX-License-Identifier: BSD-2-Clause
// Which sockets of this process are channels, that is, open rdma_cm files: asked for every write() that looks like a
// command, and for every fstat(). So it can be read without a lock, also in a signal handler, and in a child after
// fork(), where it still knows what the parent had open.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace uroce::rdma_cm {

// Of a file description, whatever the number of the descriptor: st_dev and st_ino.
struct Identity {
  uint64_t device = 0;
  uint64_t inode = 0;  // 0: none

  // Of an open descriptor; nullopt: it is none. Leaves errno alone.
  static std::optional<Identity> of(int fd);
  friend bool operator==(const Identity&, const Identity&) = default;
};

namespace channel_index {

// There may be a channel. One load.
bool any();
// The process (process_generation()) that opened it; 0: no channel.
uint32_t owner(const Identity& identity);
void add(const Identity& identity, uint32_t owner);  // throws std::bad_alloc
void remove(const Identity& identity);

}  // namespace channel_index
}  // namespace uroce::rdma_cm
