// SPDX-License-Identifier: BSD-2-Clause
// The one port of a device and its tables: state, GIDs, P_Keys. All of it follows the netdev.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <optional>
#include <vector>

#include "abi/verbs/dispatch.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"
#include "engine/net/device_identity.h"

namespace uroce::verbs {
namespace {

void fill_port(const engine::PortStatus& status, ibv_port_attr& attr) {
  attr.state = status.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.phys_state = engine::physical_state(status.up, status.active);
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = mtu_to_verbs(status.active_mtu);
  attr.gid_tbl_len = static_cast<int>(engine::gid_table_length(status.gids.size()));
  attr.pkey_tbl_len = 1;
  static_assert(engine::kPortCapabilities == IBV_PORT_IP_BASED_GIDS);
  attr.port_cap_flags = engine::kPortCapabilities;
  attr.max_msg_sz = engine::Limits::kMaxMessage;
  attr.max_vl_num = 1;
  const engine::LinkRate& rate = engine::link_rate(status.speed_mbps);
  attr.active_width = rate.width;
  attr.active_speed = rate.speed;
  attr.bad_pkey_cntr = status.pkey_violations;
  attr.qkey_viol_cntr = status.qkey_violations;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  attr.flags = IBV_QPF_GRH_REQUIRED;
  // There is no subnet manager: no LIDs, no service level mapping, no subnet timeout.
}

// 0 and the address; ENODATA: an empty entry; EINVAL: outside the table.
int gid_at(ibv_context* context, uint32_t port_num, uint32_t index, wire::IpAddress& out) {
  if (refuses_orphan(context)) return EIO;
  if (port_num != 1) return EINVAL;
  return without_exceptions([&] {
    const engine::PortStatus status = from(context).engine->port_status();
    if (index >= engine::gid_table_length(status.gids.size())) return EINVAL;
    if (index >= status.gids.size() || status.gids[index].is_unspecified()) return ENODATA;
    out = status.gids[index];
    return 0;
  });
}

ibv_gid_entry make_entry(ibv_context* context, const wire::IpAddress& address, uint32_t index) {
  ibv_gid_entry entry{};
  entry.gid = gid_to_verbs(address);
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = static_cast<uint32_t>(device_of(context).info.netdev.index);
  return entry;
}

// Writes an entry in the size that the application's header gives it.
void store_entry(const ibv_gid_entry& entry, void* to, size_t entry_size) {
  std::memset(to, 0, entry_size);
  std::memcpy(to, &entry, std::min(entry_size, sizeof(entry)));
}

}  // namespace

int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t size) {
  if (refuses_orphan(context)) return answer(EIO);
  if (port_num != 1) return answer(EINVAL);
  return without_exceptions([&] {
    ibv_port_attr full{};
    fill_port(from(context).engine->port_status(), full);
    // 48 bytes through the symbol, 52 through the dispatch table up to rdma-core 44, 56 from 50.
    std::memset(static_cast<void*>(attr), 0, size);
    std::memcpy(static_cast<void*>(attr), &full, std::min(size, sizeof(full)));
    return 0;
  });
}

}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

// Binaries from before the dispatch table had it: the struct ends before port_cap_flags2.
int ibv_query_port(ibv_context* context, uint8_t port_num, struct _compat_ibv_port_attr* attr) {
  return query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

// rdma-core 62. The rate in units of 100 Mb/s.
int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* port_speed) {
  if (refuses_orphan(context)) return answer(EIO);
  if (port_num != 1) return answer(EINVAL);
  return without_exceptions([&] {
    *port_speed = from(context).engine->port_status().speed_mbps / 100;
    return 0;
  });
}

int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  uroce::wire::IpAddress address;
  const int error = index < 0 ? EINVAL : gid_at(context, port_num, static_cast<uint32_t>(index), address);
  // Older than empty entries with an error of their own: those read as zero.
  if (error != 0 && error != ENODATA) return fail_minus_one(error);
  *gid = gid_to_verbs(address);
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index, ibv_gid_entry* entry, uint32_t flags,
                      size_t entry_size) {
  if (flags != 0) return answer(EOPNOTSUPP);
  uroce::wire::IpAddress address;
  if (const int error = gid_at(context, port_num, gid_index, address)) return answer(error);
  store_entry(make_entry(context, address, gid_index), entry, entry_size);
  return 0;
}

// The number of entries, or a negative errno value.
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries, uint32_t flags,
                             size_t entry_size) {
  if (refuses_orphan(context)) return -answer(EIO);
  if (flags != 0) return -answer(EOPNOTSUPP);
  std::vector<uroce::wire::IpAddress> gids;
  const int error = without_exceptions([&] {
    gids = from(context).engine->port_status().gids;
    return 0;
  });
  if (error != 0) return -error;
  // Empty entries are left out; the others say which they are.
  auto* to = reinterpret_cast<uint8_t*>(entries);
  size_t count = 0;
  for (uint32_t i = 0; i < gids.size(); ++i) {
    if (gids[i].is_unspecified()) continue;
    if (count++ == max_entries) return -answer(EINVAL);
    store_entry(make_entry(context, gids[i], i), to, entry_size);
    to += entry_size;
  }
  return static_cast<ssize_t>(count);
}

// Private to rdma-core, used by ibv_devinfo. 0: RoCE v1 or an empty entry, 1: RoCE v2.
int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index, int* type) {
  uroce::wire::IpAddress address;
  const int error = gid_at(context, port_num, index, address);
  if (error != 0 && error != ENODATA) return fail_minus_one(error);
  *type = error == 0 ? 1 : 0;
  return 0;
}

int ibv_query_pkey(ibv_context*, uint8_t port_num, int index, __be16* pkey) {
  if (port_num != 1 || index != 0) return fail_minus_one(EINVAL);
  *pkey = htobe16(uroce::engine::Limits::kPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context*, uint8_t port_num, __be16 pkey) {
  if (port_num != 1 || pkey != htobe16(uroce::engine::Limits::kPkey)) return fail_minus_one(EINVAL);
  return 0;
}

}  // extern "C"
