// SPDX-License-Identifier: BSD-2-Clause
// Who has sockets on UDP port 4791 in this network namespace.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"

namespace uroce::broker {

struct PortHolder {
  uint32_t inode = 0;  // 0: a socket of the kernel
  uint32_t uid = 0;
  int ifindex = 0;  // of the netdev that it is bound to, or 0

  // It may be of an earlier broker of this user: who is neither a lone process on its netdev nor the kernel.
  bool may_be_inherited() const;
};

// 65,536 or a few more at most. Nothing: the kernel does not tell.
std::optional<std::vector<PortHolder>> port_holders();

// The port cannot be had because of these: who one of them is, as far as can be found out, and what to do. EAGAIN:
// perhaps another user's broker, which may end.
io::IoError port_taken(std::span<const PortHolder> holders);

}  // namespace uroce::broker
