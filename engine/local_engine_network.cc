// What the engine knows of the netdev and the network around it, and how it follows changes: addresses, link state,
// routes, neighbours, and the events that tell applications.

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/clock.h"
#include "engine/local_engine.h"

namespace uroce::engine {

namespace {

// QPs and address handles stay with the address they were made with, also when others come and go and it has another
// place in the GID table. False: it is gone.
bool keep_source(const net::Netdev& netdev, const Path& path, transport::AddressVector& address) {
  const auto& gids = netdev.addresses;
  const auto found = std::find(gids.begin(), gids.end(), path.envelope.source);
  if (found == gids.end() || found - gids.begin() > UINT8_MAX) return false;
  address.source_gid_index = static_cast<uint8_t>(found - gids.begin());
  return true;
}

}  // namespace

// Reads what the kernel has to say now. If there is news, whoever read it, the background thread has to act on it.
void LocalEngine::follow_network() {
  view_->process_changes();
  if (view_->generation() != seen_generation_.load()) progress_.wake();
}

// What the kernel says of the netdev now, for a call that depends on it. Packets for an address that the call may use
// are taken from here on; all else that is new is left to the background thread. Caller holds setup_.
void LocalEngine::learn_netdev() {
  follow_network();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev) return;
  const bool moved = netdev->addresses != netdev_.addresses || netdev->mac != netdev_.mac;
  netdev_ = *netdev;
  if (moved) steer_addresses();
}

PortStatus LocalEngine::port_status() {
  follow_network();
  const auto netdev = view_->netdev(netdev_index_);
  PortStatus status;
  status.pkey_violations = static_cast<uint32_t>(counters().get(Counter::kDropWrongPkey));
  status.qkey_violations = static_cast<uint32_t>(counters().get(Counter::kDropWrongQkey));
  if (!netdev) return status;
  status.up = netdev->up;
  status.active = netdev->up && netdev->running;
  status.netdev_mtu = netdev->mtu;
  status.active_mtu = largest_path_mtu(netdev->mtu, max_udp_length_.load());
  status.speed_mbps = netdev->speed_mbps;
  status.gids = netdev->addresses;
  return status;
}

// Under the progress lock, for packets whose next hop has no address yet.
void LocalEngine::resolve(Path& path) {
  follow_network();
  find_neighbour(path);
}

void LocalEngine::find_neighbour(Path& path) {
  if (kernel_routes_) {
    path.resolved = true;
  } else {
    resolve_neighbour(*view_, netdev_index_, monotonic_now(), path);
  }
}

// In the background thread, without the progress lock.
void LocalEngine::look_at_network(bool news) {
  if (news) view_->process_changes();
  if (view_->generation() == seen_generation_.load()) return;
  std::lock_guard setup(setup_);
  seen_generation_ = view_->generation();
  net::Netdev now_netdev = netdev_;
  const bool was_present = present_;
  const auto netdev = view_->netdev(netdev_index_);
  present_ = was_present && netdev;
  if (present_) {
    now_netdev = *netdev;
  } else {
    if (was_present) close_io();
    now_netdev.up = now_netdev.running = false;
    now_netdev.addresses.clear();
  }
  netdev_ = now_netdev;
  const net::Netdev before = std::exchange(announced_, std::move(now_netdev));
  if (before.addresses != netdev_.addresses || before.mac != netdev_.mac) steer_addresses();
  refresh_paths(netdev_);
  refresh_handles(netdev_);
  announce(before, netdev_, was_present && !present_);
}

// Routes and neighbours of all connected QPs anew. Route look-ups ask the kernel, so equal destinations share one.
void LocalEngine::refresh_paths(const net::Netdev& netdev) {
  Progress::Guard guard(progress_);
  const Time now = monotonic_now();
  std::unordered_map<std::string, Path> known;
  datapath_.for_each_qp([&](Qp& qp) {
    const transport::QpAttributes& attr = qp.transport->attributes();
    if (attr.state != transport::QpState::kRtr && attr.state != transport::QpState::kRts) return;
    transport::AddressVector address = attr.address;
    if (!keep_source(netdev, qp.path, address)) return;
    const auto bytes = [](const wire::IpAddress& ip) {
      return std::string(reinterpret_cast<const char*>(ip.bytes.data()), ip.bytes.size());
    };
    const std::string key = bytes(address.destination) + bytes(qp.path.envelope.source);
    auto it = known.find(key);
    if (it == known.end()) {
      Path path;
      // A route that is gone for the moment leaves the QP where it is: the retry budget decides.
      if (resolve_route(*view_, netdev, address, qp.transport->qpn(), attr.dest_qpn, path) != 0) return;
      path.asked_at = qp.path.asked_at;
      find_neighbour(path);
      it = known.emplace(key, path).first;
    }
    const uint16_t port = qp.path.envelope.source_port;
    const uint8_t traffic_class = qp.path.envelope.traffic_class;
    const uint32_t flow_label = qp.path.envelope.flow_label;
    qp.path = it->second;
    qp.path.envelope.source_port = port;
    qp.path.envelope.traffic_class = traffic_class;
    qp.path.envelope.flow_label = flow_label;
    datapath_.reschedule(qp, now);
  });
}

// The same for address handles.
void LocalEngine::refresh_handles(const net::Netdev& netdev) {
  Progress::Guard guard(progress_);
  datapath_.address_handles().for_each([&](AddressHandle& handle) {
    Path path;
    transport::AddressVector address = handle.address;
    if (!keep_source(netdev, handle.path, address)) return;
    if (resolve_route(*view_, netdev, address, path) != 0) return;
    path.asked_at = handle.path.asked_at;
    find_neighbour(path);
    handle.path = path;
  });
}

// A netdev that is gone takes its device along, as pulling a NIC does: everything stays callable and gets nowhere.
void LocalEngine::announce(const net::Netdev& before, const net::Netdev& after, bool gone) {
  using transport::AsyncEvent;
  const bool was_active = before.up && before.running;
  const bool is_active = after.up && after.running;
  std::lock_guard guard(handlers_lock_);
  for (EventHandler* handler : handlers_) {
    if (was_active != is_active) (*handler)({is_active ? AsyncEvent::kPortActive : AsyncEvent::kPortError});
    if (before.addresses != after.addresses) (*handler)({AsyncEvent::kGidChange});
    if (gone) (*handler)({AsyncEvent::kDeviceFatal});
  }
}

// From now on somebody wants to know what happens to the netdev, with or without QPs. Where no thread can be had for
// that, the first QP reports it.
void LocalEngine::add_event_handler(EventHandler* handler) {
  {
    std::lock_guard guard(handlers_lock_);
    handlers_.push_back(handler);
  }
  std::lock_guard setup(setup_);
  progress_.start();
}

void LocalEngine::remove_event_handler(EventHandler* handler) {
  std::lock_guard guard(handlers_lock_);
  std::erase(handlers_, handler);
}

}  // namespace uroce::engine
