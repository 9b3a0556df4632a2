// SPDX-License-Identifier: BSD-2-Clause
// Who has sockets open, of processes that this one may look into. How many sockets, processes and descriptors there
// are, users decide: all processes are looked at once, and not for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace uroce {

struct SocketHolder {
  uint64_t inode = 0;   // of a socket that it has
  std::string process;  // "1234 (ib_write_bw)"; the name can be printed
};

struct SocketHolders {
  std::vector<SocketHolder> processes;  // a socket that several have counts for the first one
  size_t sockets_left = 0;              // that none of them has
  bool is_whole = true;                 // all processes were looked at
};

// Looks until `end` for who has sockets with these inodes, and for `most` processes at most. Of one with more than
// 65,536 descriptors it does not see all.
SocketHolders find_socket_holders(std::vector<uint64_t> inodes, size_t most, Time end);

}  // namespace uroce
