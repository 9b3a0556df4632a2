// SPDX-License-Identifier: BSD-2-Clause
// ibv_query_device and ibv_query_device_ex: what the engine really offers.

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <endian.h>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/newer_verbs.h"
#include "abi/verbs/objects.h"

namespace uroce::verbs {
namespace {

using engine::Limits;

// IBTA 11.2.1.2: time to answer is 4.096 us * 2^value at most. 15 is 134 ms: a process may be descheduled for long.
constexpr uint8_t kAckDelay = 15;

// There is no IEEE OUI for this implementation, and borrowing one would make applications take a vendor's code path.
// All ones is what rxe says for "none"; 0 is taken for a device that failed to answer. The part stays 0.
constexpr uint32_t kVendorId = 0xffffff;

// IBV_DEVICE_MEM_MGT_EXTENSIONS: SEND with invalidate and LOCAL_INV, which SPDK asks for. It also stands for the
// registering of memory by work requests, and for a key for all memory, which only the kernel has: libibverbs has no
// call for either.
constexpr unsigned int kCapabilities =
    IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
    IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS |
    IBV_DEVICE_MEM_WINDOW_TYPE_2B;
constexpr uint64_t kNewerCapabilities = kDeviceFlushGlobal | kDeviceAtomicWrite;

// Nothing is pinned, so every operation pages on demand.
constexpr uint32_t kOdpMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr uint32_t kOdpXrc = kOdpMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
constexpr uint32_t kOdpRc = kOdpXrc | kOdpSupportFlush | kOdpSupportAtomicWrite;

void fill_limits(const engine::Engine& engine, ibv_device_attr& attr) {
  const uint32_t max_qp = engine.max_qp(), max_groups = engine.max_multicast_groups();
  attr.max_qp = static_cast<int>(max_qp);
  attr.max_qp_wr = Limits::kMaxWr;
  attr.max_sge = Limits::kMaxSge;
  attr.max_sge_rd = Limits::kMaxSge;
  attr.max_cq = Limits::kMaxCq;
  attr.max_cqe = Limits::kMaxCqe;
  attr.max_mr = memory::MrTable::kMaxRegions;
  attr.max_mw = memory::MrTable::kMaxWindows;
  attr.max_pd = Limits::kMaxPd;
  attr.max_ah = Limits::kMaxAh;
  attr.max_mcast_grp = static_cast<int>(max_groups);
  attr.max_mcast_qp_attach = Limits::kMaxMulticastQps;
  attr.max_total_mcast_qp_attach = static_cast<int>(max_groups * Limits::kMaxMulticastQps);
  attr.max_srq = Limits::kMaxSrq;
  attr.max_srq_wr = Limits::kMaxSrqWr;
  attr.max_srq_sge = Limits::kMaxSrqSge;
  attr.max_qp_rd_atom = Limits::kMaxRdAtomic;
  attr.max_qp_init_rd_atom = Limits::kMaxRdAtomic;
  attr.max_res_rd_atom = static_cast<int>(Limits::kMaxRdAtomic * max_qp);
  attr.max_pkeys = 1;
}

void fill_device_attributes(ibv_context* context, ibv_device_attr& attr) {
  attr = {};
  std::snprintf(attr.fw_ver, sizeof(attr.fw_ver), "%s", UROCE_VERSION);
  attr.node_guid = htobe64(device_of(context).info.guid);
  attr.sys_image_guid = attr.node_guid;
  attr.max_mr_size = UINT64_MAX;
  attr.page_size_cap = ~uint64_t{0xfff};
  attr.vendor_id = kVendorId;
  attr.device_cap_flags = kCapabilities;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.local_ca_ack_delay = kAckDelay;
  attr.phys_port_cnt = 1;
  fill_limits(*from(context).engine, attr);
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t size) {
  if (input != nullptr && input->comp_mask != 0) return answer(EINVAL);
  if (size < sizeof(attr->orig_attr)) return answer(EINVAL);
  ibv_device_attr_ex full{};
  fill_device_attributes(context, full.orig_attr);
  full.completion_timestamp_mask = UINT64_MAX;
  full.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
  full.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  full.odp_caps.per_transport_caps = {kOdpRc, kOdpMessages | IBV_ODP_SUPPORT_WRITE, kOdpMessages};
  full.xrc_odp_caps = kOdpXrc;
  full.max_dm_size = kMaxDeviceMemory;
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags | kNewerCapabilities;
  full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
  full.cq_mod_caps = {Limits::kMaxCqModeration, Limits::kMaxCqModeration};
  // What stays 0 does not exist here: TSO, RSS, packet pacing, raw packets, tag matching, PCI atomics.
  // The application's struct may be older or newer than ours.
  std::memset(attr, 0, size);
  std::memcpy(attr, &full, std::min(size, sizeof(full)));
  return 0;
}

}  // namespace uroce::verbs

extern "C" int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  uroce::verbs::fill_device_attributes(context, *attr);
  return 0;
}
