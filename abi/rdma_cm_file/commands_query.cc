// SPDX-License-Identifier: BSD-2-Clause
// What is known of an id: addresses, path, GIDs.
#include <cerrno>
#include <cstring>
#include <endian.h>

#include "abi/rdma_cm_file/manager.h"
#include "cm/timing.h"

namespace uroce::rdma_cm {
namespace {

constexpr uint16_t kDefaultPkey = 0xffff;
constexpr uint8_t kExactly = 2;  // selector of mtu, rate, lifetime

uint8_t lifetime_of(const CmId& id) {
  return id.ack_timeout && *id.ack_timeout > 0 ? static_cast<uint8_t>(*id.ack_timeout - 1) : cm::kLifetime;
}

abi::PathRecord user_path(const CmId& id) {
  abi::PathRecord record{};
  record.pkey = htobe16(kDefaultPkey);
  record.sgid = id.source.ip.bytes;
  record.dgid = id.destination.ip.bytes;
  if (!id.has_path) return record;
  record.flow_label = htobe32(id.path.flow_label);
  record.reversible = 1;
  record.mtu = id.path.mtu;
  record.hop_limit = id.path.hop_limit;
  record.traffic_class = id.path.traffic_class;
  record.numb_path = 1;
  record.sl = id.path.sl;
  record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
  record.rate = id.path.rate;
  record.packet_life_time = lifetime_of(id);
  return record;
}

// The SA's PathRecord (IBTA 15.2.5.16).
std::array<uint8_t, 64> sa_path(const CmId& id) {
  std::array<uint8_t, 64> record{};
  const auto put = [&record](size_t at, const auto& value) { std::memcpy(&record[at], &value, sizeof(value)); };
  put(8, id.destination.ip.bytes);
  put(24, id.source.ip.bytes);
  put(44, htobe32(id.path.flow_label << 8 | id.path.hop_limit));
  record[48] = id.path.traffic_class;
  record[49] = 0x80;  // reversible
  put(50, htobe16(kDefaultPkey));
  put(52, htobe16(id.path.sl));
  record[54] = static_cast<uint8_t>(kExactly << 6 | id.path.mtu);
  record[55] = static_cast<uint8_t>(kExactly << 6 | id.path.rate);
  record[56] = static_cast<uint8_t>(kExactly << 6 | lifetime_of(id));
  return record;
}

void fill_device(const CmId& id, abi::QueryAddrAnswer& out) {
  if (id.device.netdev == 0) return;
  out.node_guid = htobe64(id.device.guid);
  out.port_num = 1;
  out.pkey = htobe16(kDefaultPkey);
  out.ibdev_index = id.device.netdev;
}

abi::QueryAddrAnswer addresses_of(const CmId& id) {
  abi::QueryAddrAnswer out{};
  fill_device(id, out);
  out.src_size = id.source.size();
  out.dst_size = id.destination.size();
  store_address(id.source, out.src_addr);
  store_address(id.destination, out.dst_addr);
  return out;
}

abi::QueryAddrAnswer gids_of(const CmId& id) {
  abi::QueryAddrAnswer out{};
  fill_device(id, out);
  out.src_size = out.dst_size = sizeof(abi::SockaddrIb);
  const abi::SockaddrIb source = as_gid(id.source, id.port_space), destination = as_gid(id.destination, id.port_space);
  std::memcpy(out.src_addr.data(), &source, sizeof(source));
  std::memcpy(out.dst_addr.data(), &destination, sizeof(destination));
  return out;
}

abi::QueryPathAnswer path_of(const CmId& id) {
  abi::QueryPathAnswer out{};
  if (!id.has_path) return out;
  out.num_paths = 1;
  out.path_data[0].flags = abi::kPathFlags;
  out.path_data[0].path_rec = sa_path(id);
  return out;
}

}  // namespace

int Manager::query_route(const abi::QueryRoute& command, const Call& call) {
  if (call.out < offsetof(abi::QueryRouteAnswer, ibdev_index)) return ENOSPC;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  const CmId& id = *owned.id;
  abi::QueryRouteAnswer out{};
  store_address(id.source, out.src_addr);
  store_address(id.destination, out.dst_addr);
  if (id.device.netdev != 0) {
    out.node_guid = htobe64(id.device.guid);
    out.port_num = 1;
    out.ibdev_index = id.device.netdev;
    out.num_paths = id.has_path ? 1 : 0;
    out.ib_route[0] = user_path(id);
  }
  return answer(command.response, &out, sizeof(out), call);
}

int Manager::query(const abi::Query& command, const Call& call) {
  if (command.option > abi::kQueryGid) return ENOSYS;
  const bool path = command.option == abi::kQueryPath;
  const size_t least = path ? offsetof(abi::QueryPathAnswer, path_data) : offsetof(abi::QueryAddrAnswer, ibdev_index);
  if (call.out < least) return ENOSPC;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  if (path) {
    const abi::QueryPathAnswer out = path_of(*owned.id);
    return answer(command.response, &out, sizeof(out), call);
  }
  const abi::QueryAddrAnswer out = command.option == abi::kQueryGid ? gids_of(*owned.id) : addresses_of(*owned.id);
  return answer(command.response, &out, sizeof(out), call);
}

}  // namespace uroce::rdma_cm
