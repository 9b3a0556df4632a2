// SPDX-License-Identifier: BSD-2-Clause
// Addresses: bound, resolved, listened on.
#include <algorithm>
#include <cerrno>

#include "abi/rdma_cm_file/manager.h"
#include "base/clock.h"
#include "cm/timing.h"
#include "wire/cma_header.h"

namespace uroce::rdma_cm {
namespace {

constexpr int32_t kMostBacklog = 1024;
constexpr uint32_t kFlowLabelMask = 0xfffff;

// Of a sockaddr_in6: one that does not fit there is none.
uint16_t size_of_ip(std::span<const uint8_t> bytes) {
  const uint16_t size = address_size(bytes);
  return size <= sizeof(abi::Storage6) ? size : 0;
}

// The port space of a service id of RDMA_PS_IB and the like, as far as its mask says it; 0: it says another one.
uint16_t space_of(const Address& address, uint16_t port_space) {
  constexpr uint64_t kSpaceBits = ~uint64_t{0xffff};
  const uint64_t mask = address.sid_mask & kSpaceBits;
  const auto fits = [&](wire::PortSpace space) {
    const auto own = static_cast<uint16_t>(space);
    if (port_space != own && port_space != static_cast<uint16_t>(wire::PortSpace::kIb)) return false;
    return (address.sid & mask) == (uint64_t{own} << 16 & mask);
  };
  for (const wire::PortSpace space : {wire::PortSpace::kIb, wire::PortSpace::kTcp, wire::PortSpace::kUdp}) {
    if (fits(space)) return static_cast<uint16_t>(space);
  }
  return 0;
}

bool misses_scope(const Address& address) {
  return address.family == Family::kV6 && address.ip.is_link_local() && address.scope == 0;
}

}  // namespace

// --- bind ------------------------------------------------------------------------------------------------------------

int Manager::bind_ip(const abi::BindIp& command, const Call& call) {
  if (size_of_ip(command.addr) == 0) return EINVAL;
  const Owned owned = find(command.id, call);
  return owned.id ? bind_to(*owned.id, parse_address(command.addr)) : owned.error;
}

int Manager::bind(const abi::Bind& command, const Call& call) {
  if (command.reserved != 0 || command.addr_size == 0 || command.addr_size != address_size(command.addr)) return EINVAL;
  const Owned owned = find(command.id, call);
  return owned.id ? bind_to(*owned.id, parse_address(command.addr)) : owned.error;
}

int Manager::bind_to(CmId& id, const Address& address) {
  if (id.state != State::kIdle || misses_scope(address)) return EINVAL;
  if (address.family == Family::kIb) return bind_gid(id, address);
  if (wire::PortSpace{id.port_space} == wire::PortSpace::kIpoib) return EINVAL;  // on Ethernet
  BoundDevice device;
  if (!is_wildcard(address)) {
    const auto netdev = rdma_cm::netdev_of(*environment_.view, address);
    if (!netdev) return EADDRNOTAVAIL;
    if (const int error = bind_to_device(id, static_cast<uint32_t>(netdev->index)); error != 0) return error;
    std::swap(device, id.device);
  }
  id.source = address;
  id.v6_only = address.family == Family::kV6 && environment_.binds_v6_only();
  if (const int error = bind_port(id); error != 0) {
    id.source = {};
    return error;
  }
  id.device = device;
  id.destination = {.family = address.family};
  if (address.family == Family::kV4) id.destination.ip = wire::IpAddress::v4(std::array<uint8_t, 4>{}.data());
  id.state = State::kBound;
  return 0;
}

// Of AF_IB only the wildcard: GIDs of RoCE are IP addresses, for which there are families. The port comes with LISTEN.
int Manager::bind_gid(CmId& id, const Address& address) {
  if (!address.ip.is_unspecified()) return ENODEV;
  const uint16_t space = space_of(address, id.port_space);
  if (space == 0) return EPROTONOSUPPORT;
  id.source = address;
  id.source.sid = uint64_t{space} << 16 | address.port;
  id.source.sid_mask = UINT64_MAX;
  id.destination = {.family = Family::kIb};
  id.state = State::kBound;
  return 0;
}

// The port of the address that it has; also again, of a new connection manager.
int Manager::bind_port(CmId& id) {
  const Address& address = id.source;
  const bool v6 = address.family != Family::kV4;
  cm::BindRequest request;
  request.bind.space = address.family == Family::kIb ? wire::PortSpace{static_cast<uint16_t>(address.sid >> 16)}
                                                     : wire::PortSpace{id.port_space};
  if (!is_wildcard(address)) request.bind.address = address.ip;
  request.bind.v4 = !v6;
  request.bind.v6_only = v6 && id.takes_v6_only();
  request.bind.netdev = address.ip.is_link_local() ? address.scope : 0;
  request.bind.port = address.port;
  request.bind.reuse_address = id.reuse_address;
  const cm::Reply reply = ask(request);
  if (reply.error != 0) return reply.error;
  id.binding = reply.binding;
  id.source.port = reply.port;
  if (address.family == Family::kIb) id.source.sid = (id.source.sid & ~uint64_t{0xffff}) | reply.port;
  return 0;
}

// --- listen ----------------------------------------------------------------------------------------------------------

int Manager::listen(const abi::Listen& command, const Call& call) {
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  CmId& id = *owned.id;
  if (id.state == State::kIdle) {
    const Address any{.family = Family::kV4, .ip = wire::IpAddress::v4(std::array<uint8_t, 4>{}.data())};
    if (const int error = bind_to(id, any); error != 0) return error;
  }
  if (id.state != State::kBound) return EINVAL;
  id.backlog = command.backlog > 0 && command.backlog < kMostBacklog ? command.backlog : kMostBacklog;
  if (id.binding == cm::kNoBinding) {
    if (const int error = bind_port(id); error != 0) return error;
  }
  if (const int error = start_listener(id); error != 0) return error;
  id.state = State::kListen;
  by_cm_[id.cm] = owned.id;
  return 0;
}

int Manager::start_listener(CmId& id) {
  const Address& address = id.source;
  cm::ListenRequest request;
  request.binding = id.binding;
  cm::Listen& listen = request.listen;
  listen.service = address.family == Family::kIb ? wire::ServiceId{address.sid}
                                                 : wire::service_id(wire::PortSpace{id.port_space}, address.port);
  listen.ip = address.family != Family::kIb;
  listen.datagrams = id.is_datagram();
  if (!is_wildcard(address)) {
    listen.address = address.ip;
    listen.netdev = address.ip.is_link_local() ? address.scope : 0;
  }
  listen.takes_v4 = address.family != Family::kV6 || !id.takes_v6_only();
  listen.takes_v6 = address.family != Family::kV4;
  listen.backlog = static_cast<uint32_t>(id.backlog);
  const cm::Reply reply = ask(request);
  if (reply.error == 0) {
    id.cm = reply.id;
    id.service = listen.service;
  }
  return reply.error;
}

// --- resolve ---------------------------------------------------------------------------------------------------------

int Manager::resolve_ip(const abi::ResolveIp& command, const Call& call) {
  uint16_t source_family = 0;
  std::copy_n(command.src_addr.begin(), sizeof(source_family), reinterpret_cast<uint8_t*>(&source_family));
  if ((source_family != 0 && size_of_ip(command.src_addr) == 0) || size_of_ip(command.dst_addr) == 0) return EINVAL;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  return resolve(owned.id, parse_address(command.src_addr), parse_address(command.dst_addr), command.timeout_ms);
}

int Manager::resolve_addr(const abi::ResolveAddr& command, const Call& call) {
  const bool bad_source = command.src_size != 0 && command.src_size != address_size(command.src_addr);
  const bool bad_destination = command.dst_size == 0 || command.dst_size != address_size(command.dst_addr);
  if (command.reserved != 0 || bad_source || bad_destination) return EINVAL;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  const Address source = command.src_size == 0 ? Address{} : parse_address(command.src_addr);
  return resolve(owned.id, source, parse_address(command.dst_addr), command.timeout_ms);
}

int Manager::resolve(const IdPtr& id, const Address& source, const Address& destination, uint32_t timeout_ms) {
  if (id->state != State::kIdle && id->state != State::kBound) return EINVAL;
  if (destination.family == Family::kIb) return ENODEV;
  Address from = id->source;
  if (id->state == State::kIdle) {
    from = source;
    if (from.family == Family::kNone) {
      from.family = destination.family;
      if (from.family == Family::kV4) from.ip = wire::IpAddress::v4(std::array<uint8_t, 4>{}.data());
    }
  }
  if (from.family != destination.family || misses_scope(destination)) return EINVAL;
  const bool loopback_device = (from.is_loopback() || destination.is_loopback()) && has_loopback_device();
  const Resolution way = find_way(*environment_.view, from, destination, loopback_device);
  if (way.error != 0) return way.error;
  if (id->state == State::kIdle) {
    if (const int error = bind_to(*id, from); error != 0) return error;
  }
  id->destination = destination;
  id->resolution = way;
  return start_resolving(id, timeout_ms);
}

int Manager::start_resolving(const IdPtr& id, uint32_t timeout_ms) {
  if (id->resolution->complete()) {
    end_resolving(id);
    return 0;
  }
  id->state = State::kAddrQuery;
  id->resolve_until = monotonic_now() + std::chrono::milliseconds(timeout_ms);
  id->ask_again = {};
  resolving_.insert(id);
  mailbox_->wake();
  return 0;
}

// The next hop is known.
void Manager::end_resolving(const IdPtr& id) {
  resolving_.erase(id);
  const Resolution& way = *id->resolution;
  uint32_t netdev = static_cast<uint32_t>(way.netdev);
  wire::IpAddress source = way.source;
  if (way.anywhere) {
    const auto devices = environment_.devices();
    if (devices.empty()) return fail_resolving(id, ENODEV);
    netdev = static_cast<uint32_t>(devices.front().netdev.index);
    source = id->destination.ip;
  }
  if (const int error = bind_to_device(*id, netdev); error != 0) return fail_resolving(id, error);
  id->source.ip = source;
  if (source.is_link_local()) id->source.scope = netdev;
  id->state = State::kAddrResolved;
  queue(id, abi::EventKind::kAddrResolved);
}

// Applications try again.
void Manager::fail_resolving(const IdPtr& id, int error) {
  resolving_.erase(id);
  id->resolution.reset();
  id->state = State::kBound;
  queue(id, abi::EventKind::kAddrError, -error);
}

int Manager::resolve_route(const abi::ResolveRoute& command, const Call& call) {
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  if (command.timeout_ms == 0 || owned.id->state != State::kAddrResolved) return EINVAL;
  if (const int error = make_path(*owned.id); error != 0) return error;
  owned.id->state = State::kRouteResolved;
  queue(owned.id, abi::EventKind::kRouteResolved);
  return 0;
}

int Manager::make_path(CmId& id) const {
  const auto netdev = netdev_of(id);
  if (!id.resolution || id.resolution->anywhere || !netdev) return ENODEV;
  const net::Route& route = id.resolution->route;
  cm::Path& path = id.path;
  path = {};
  path.netdev = id.device.netdev;
  path.ca_guid = wire::Guid{id.device.guid};
  path.local = id.source.ip;
  path.remote = id.destination.ip;
  path.flow_label = (id.source.port * 31u + id.destination.port) & kFlowLabelMask;
  if (id.destination.family == Family::kV6 && (id.destination.flow_info & kFlowLabelMask) != 0) {
    path.flow_label = id.destination.flow_info & kFlowLabelMask;
  }
  path.traffic_class = id.tos;
  path.hop_limit = route.hop_limit;
  path.mtu = path_mtu_code(std::min(route.mtu != 0 ? route.mtu : netdev->mtu, netdev->mtu));
  path.ack_timeout = id.ack_timeout.value_or(cm::ack_timeout(0, cm::kLifetime));
  id.has_path = true;
  return 0;
}

}  // namespace uroce::rdma_cm
