// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace uroce::verbs {

// By this data of its member the descriptor of a completion channel is known among epoll sets (/proc/PID/fdinfo).
inline constexpr uint64_t kChannelMark = 0x75726f6365636371;

}  // namespace uroce::verbs
