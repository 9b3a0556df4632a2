// SPDX-License-Identifier: BSD-2-Clause
// What verbs.h of newer rdma-core releases has and the header that this is built with (44) has not. Layouts and values
// are part of the ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>

// rdma-core 45, enum ibv_access_flags.
inline constexpr uint32_t IBV_ACCESS_FLUSH_GLOBAL = 1u << 8;
inline constexpr uint32_t IBV_ACCESS_FLUSH_PERSISTENT = 1u << 9;

// rdma-core 45, enum ibv_odp_transport_cap_bits.
inline constexpr uint32_t IBV_ODP_SUPPORT_FLUSH = 1u << 6;
inline constexpr uint32_t IBV_ODP_SUPPORT_ATOMIC_WRITE = 1u << 7;

// The kernel's IB_UVERBS_DEVICE_FLUSH_GLOBAL and _ATOMIC_WRITE, in ibv_device_attr_ex::device_cap_flags_ex.
inline constexpr uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr uint64_t kDeviceAtomicWrite = 1ull << 40;

struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_buf;

enum ibv_mr_init_attr_mask {
  IBV_REG_MR_MASK_IOVA = 1 << 0,
  IBV_REG_MR_MASK_ADDR = 1 << 1,
  IBV_REG_MR_MASK_FD = 1 << 2,
  IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
  IBV_REG_MR_MASK_DMAH = 1 << 4,
  IBV_REG_MR_MASK_BUF = 1 << 5,
};

struct ibv_mr_init_attr {
  size_t length;
  int access;
  uint64_t comp_mask;  // enum ibv_mr_init_attr_mask
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;  // not in the first release: never read unless its mask bit is set
};
static_assert(offsetof(ibv_mr_init_attr, comp_mask) == 16 && offsetof(ibv_mr_init_attr, fd_offset) == 48 &&
              offsetof(ibv_mr_init_attr, buf) == 64);

namespace uroce::verbs {

// Whether the range lies in the buffer and the buffer is of this protection domain.
bool is_part_of(const ibv_buf& buf, const ibv_pd* pd, const void* address, size_t length);

}  // namespace uroce::verbs
