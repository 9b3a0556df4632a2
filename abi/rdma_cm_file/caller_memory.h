// SPDX-License-Identifier: BSD-2-Clause
// Memory that an application points to in a command. It may point anywhere.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "engine/memory/memory_access.h"

namespace uroce::rdma_cm {

// 0 or EFAULT.
inline int copy_in(void* to, const void* from, size_t size) {
  return size == 0 || memory::copy(to, from, size) ? 0 : EFAULT;
}
inline int copy_in(void* to, uint64_t from, size_t size) {
  return copy_in(to, reinterpret_cast<const void*>(static_cast<uintptr_t>(from)), size);
}
inline int copy_out(uint64_t to, const void* from, size_t size) {
  return size == 0 || memory::copy(reinterpret_cast<void*>(static_cast<uintptr_t>(to)), from, size) ? 0 : EFAULT;
}

}  // namespace uroce::rdma_cm
