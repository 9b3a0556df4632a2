// SPDX-License-Identifier: BSD-2-Clause
// What verbs.h of rdma-core releases after 44 has. Layouts and values are part of the ABI. The names are ours, so that
// this compiles with the header of any release from 44 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

namespace uroce::verbs {

// rdma-core 45: IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, in enum ibv_access_flags.
inline constexpr uint32_t kAccessFlushGlobal = 1u << 8;
inline constexpr uint32_t kAccessFlushPersistent = 1u << 9;

// rdma-core 45: IBV_ODP_SUPPORT_FLUSH and _ATOMIC_WRITE, in enum ibv_odp_transport_cap_bits.
inline constexpr uint32_t kOdpSupportFlush = 1u << 6;
inline constexpr uint32_t kOdpSupportAtomicWrite = 1u << 7;

// The kernel's IB_UVERBS_DEVICE_FLUSH_GLOBAL and _ATOMIC_WRITE, in ibv_device_attr_ex::device_cap_flags_ex.
inline constexpr uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr uint64_t kDeviceAtomicWrite = 1ull << 40;

// rdma-core 59: enum ibv_mr_init_attr_mask, IBV_REG_MR_MASK_*.
enum MrInitMask : uint64_t {
  kMrInitIova = 1 << 0,
  kMrInitAddr = 1 << 1,
  kMrInitFd = 1 << 2,
  kMrInitFdOffset = 1 << 3,
  kMrInitDmah = 1 << 4,
  kMrInitBuf = 1 << 5,
};

// rdma-core 59: struct ibv_mr_init_attr.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;  // MrInitMask
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;  // not in the first release: never read unless its mask bit is set
};
static_assert(offsetof(MrInitAttr, comp_mask) == 16 && offsetof(MrInitAttr, fd_offset) == 48 &&
              offsetof(MrInitAttr, buf) == 64);

// Whether the range lies in the buffer and the buffer is of this protection domain.
bool is_part_of(const ibv_buf& buf, const ibv_pd* pd, const void* address, size_t length);

}  // namespace uroce::verbs
