// SPDX-License-Identifier: BSD-2-Clause
// Descriptors that one process passes to another one with bytes over a UNIX socket (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"

namespace uroce {

// The kernel takes so many with a message.
inline constexpr size_t kMostPassedDescriptors = 253;

// 0 or an errno value; EINVAL: more than kMostPassedDescriptors. A signal does not end it. No SIGPIPE.
int send_with_descriptors(int socket, std::span<const uint8_t> bytes, std::span<const int> descriptors);

struct ReceivedBytes {
  int error = 0;  // errno value, EAGAIN included
  size_t size = 0;
  size_t descriptors = 0;
  bool bytes_lost = false;        // there were more than there is room for
  bool descriptors_lost = false;  // likewise, or the process may open no more
};
// `flags` as for recvmsg(). No more descriptors come than `room` has room for, from its first element on,
// close-on-exec. With MSG_PEEK they are copies.
ReceivedBytes receive_with_descriptors(int socket, std::span<uint8_t> bytes, std::span<UniqueFd> room, int flags);

}  // namespace uroce
