// SPDX-License-Identifier: BSD-2-Clause
// Address handles, and addresses made from received packets.

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <endian.h>
#include <memory>
#include <optional>
#include <vector>

#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/values.h"

namespace uroce::verbs {
namespace {

constexpr uint8_t kMaxHops = 0xff;
constexpr uint16_t kNoVlan = 0xffff;

std::optional<uint8_t> gid_index_of(ibv_context* context, const wire::IpAddress& address) {
  if (address.is_unspecified()) return std::nullopt;  // as empty entries are
  const auto gids = from(context).engine->port_status().gids;
  const auto found = std::find(gids.begin(), gids.end(), address);
  if (found == gids.end() || found - gids.begin() > UINT8_MAX) return std::nullopt;
  return static_cast<uint8_t>(found - gids.begin());
}

// 0 or EINVAL: not an address that this port can send from and to.
int check_address(ibv_context* context, const ibv_ah_attr& attr) {
  transport::AddressVector address;
  if (const int error = address_from_verbs(attr, address)) return error;
  const auto gids = from(context).engine->port_status().gids;
  const size_t index = address.source_gid_index;
  return index < gids.size() && !gids[index].is_unspecified() ? 0 : EINVAL;
}

struct NetworkHeader {
  wire::IpAddress source;
  wire::IpAddress destination;
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
};

// The 40 bytes in front of a UD payload: an IPv6 header (the GRH), or an IPv4 header in the last 20 of them (IBTA
// A17.4.5.1).
std::optional<NetworkHeader> parse_network_header(const ibv_grh& grh) {
  constexpr size_t kIpv4Offset = 20;
  uint8_t bytes[sizeof(grh)];
  std::memcpy(bytes, &grh, sizeof(bytes));
  NetworkHeader header;
  if (bytes[0] >> 4 == 6) {
    const uint32_t word = be32toh(grh.version_tclass_flow);
    header.source = gid_from_verbs(grh.sgid);
    header.destination = gid_from_verbs(grh.dgid);
    header.flow_label = word & 0xfffff;
    header.traffic_class = static_cast<uint8_t>(word >> 20);
    return header;
  }
  const uint8_t* ipv4 = bytes + kIpv4Offset;
  if (ipv4[0] != 0x45) return std::nullopt;
  header.source = wire::IpAddress::v4(ipv4 + 12);
  header.destination = wire::IpAddress::v4(ipv4 + 16);
  header.traffic_class = ipv4[1];
  return header;
}

int address_of_sender(ibv_context* context, uint8_t port_num, const ibv_wc& wc, const ibv_grh* grh, ibv_ah_attr& attr) {
  attr = {};
  attr.dlid = wc.slid;
  attr.sl = wc.sl;
  attr.src_path_bits = wc.dlid_path_bits;
  attr.port_num = port_num;
  if (!(wc.wc_flags & IBV_WC_GRH)) return 0;
  const std::optional<NetworkHeader> header = parse_network_header(*grh);
  if (!header) return EINVAL;
  const std::optional<uint8_t> index = gid_index_of(context, header->destination);
  if (!index) return EINVAL;
  attr.is_global = 1;
  attr.grh.dgid = gid_to_verbs(header->source);
  attr.grh.sgid_index = *index;
  attr.grh.flow_label = header->flow_label;
  attr.grh.hop_limit = kMaxHops;
  attr.grh.traffic_class = header->traffic_class;
  return 0;
}

// RFC 1112 and RFC 2464.
wire::MacAddress multicast_mac(const wire::IpAddress& address) {
  const uint8_t* low = &address.bytes[12];
  if (address.is_v4()) return {0x01, 0x00, 0x5e, static_cast<uint8_t>(low[1] & 0x7f), low[2], low[3]};
  return {0x33, 0x33, low[0], low[1], low[2], low[3]};
}

// Asks the kernel for the neighbour and waits for it. 0, ENETUNREACH or EHOSTUNREACH.
int resolve_unicast(ibv_context* context, const wire::IpAddress& source, const wire::IpAddress& destination,
                    wire::MacAddress& mac) {
  constexpr timespec kInterval{0, 10'000'000};
  constexpr int kAttempts = 300;  // three seconds: the kernel gives up after three probes of one second
  const net::Netdev& netdev = device_of(context).info.netdev;
  net::NetView& view = engine::Host::instance()->view();
  const std::optional<net::Route> route = view.route(netdev.index, source, destination);
  if (!route) return ENETUNREACH;
  if (const std::optional<net::Netdev> own = net::netdev_with(view, destination); own || route->local) {
    mac = own ? own->mac : netdev.mac;
    return 0;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const net::Neighbour neighbour = view.neighbour(netdev.index, route->next_hop);
    if (neighbour.state == net::NeighbourState::kUsable || neighbour.state == net::NeighbourState::kStale) {
      mac = neighbour.mac;
      return 0;
    }
    // What failed before we asked means nothing: asking starts anew.
    if (attempt > 0 && neighbour.state == net::NeighbourState::kFailed) break;
    if (attempt == 0) view.resolve_neighbour(netdev.index, route->next_hop);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &kInterval, nullptr);
    view.process_changes();
  }
  return EHOSTUNREACH;
}

int resolve_mac(ibv_context* context, const ibv_ah_attr& attr, wire::MacAddress& mac) {
  if (const int error = check_address(context, attr)) return error;
  const wire::IpAddress destination = gid_from_verbs(attr.grh.dgid);
  if (destination.is_multicast()) {
    mac = multicast_mac(destination);
    return 0;
  }
  const auto gids = from(context).engine->port_status().gids;
  if (attr.grh.sgid_index >= gids.size() || gids[attr.grh.sgid_index].is_unspecified()) return EINVAL;
  return resolve_unicast(context, gids[attr.grh.sgid_index], destination, mac);
}

}  // namespace
}  // namespace uroce::verbs

using namespace uroce::verbs;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (refuses_orphan(pd->context)) return fail(EIO);
  if (!take_quota(pd->context, uroce::engine::ObjectKind::kAh)) return fail(ENOMEM);
  std::unique_ptr<Ah> ah;
  const int error = without_exceptions([&] {
    uroce::transport::AddressVector address;
    if (const int failure = address_from_verbs(*attr, address)) return failure;
    ah = std::make_unique<Ah>();
    return from(pd->context).engine->create_address(address, ah->engine_handle);
  });
  if (error != 0) {
    give_quota(pd->context, uroce::engine::ObjectKind::kAh);
    return fail(error);
  }
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = next_handle();
  ++from(pd).users;
  from(pd->context).ahs.add(ah.get());
  return ah.release();
}

int ibv_destroy_ah(ibv_ah* verbs) {
  Ah& ah = from(verbs);
  if (orphaned(verbs->context)) return forget(ah);
  Context& context = from(verbs->context);
  if (context.ahs.remove(&ah)) context.engine->destroy_address(ah.engine_handle);  // else the device has been closed
  --from(verbs->pd).users;
  give_quota(verbs->context, uroce::engine::ObjectKind::kAh);
  delete &ah;
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
  if (refuses_orphan(context)) return fail_minus_one(EIO);
  const int error = without_exceptions([&] { return address_of_sender(context, port_num, *wc, grh, *attr); });
  return error == 0 ? 0 : fail_minus_one(error);
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

// Returns 0 or an errno value; may wait for address resolution.
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t eth_mac[ETHERNET_LL_SIZE],
                                uint16_t* vid) {
  if (refuses_orphan(context)) return answer(EIO);
  uroce::wire::MacAddress mac{};
  if (const int error = without_exceptions([&] { return resolve_mac(context, *attr, mac); })) return answer(error);
  std::copy(mac.begin(), mac.end(), eth_mac);
  if (vid != nullptr) *vid = device_of(context).info.netdev.vlan_id.value_or(kNoVlan);
  return 0;
}

}  // extern "C"
