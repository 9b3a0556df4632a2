// SPDX-License-Identifier: BSD-2-Clause
// What a device knows of its netdev and the network around it, and how it follows changes: addresses, link state,
// routes, neighbours, and the events that tell applications.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "engine/device/device.h"
#include "engine/device/say.h"

namespace uroce::engine {

namespace {

// Between two looks at what routes have become, however many come and go: each costs questions to the kernel.
constexpr Duration kRefreshInterval = std::chrono::milliseconds(50);

bool has(const net::Netdev& netdev, const wire::IpAddress& address) {
  return std::find(netdev.addresses.begin(), netdev.addresses.end(), address) != netdev.addresses.end();
}

}  // namespace

// What the kernel says of the netdev now, for a call that depends on it. Packets for an address that the call may use
// are taken from here on; all else that is new is left to the background thread. Caller holds `setup`.
void Device::learn_netdev() {
  view_->process_changes();
  const auto netdev = view_->netdev(netdev_index_);
  if (!netdev) return;
  const bool moved = netdev->addresses != netdev_.addresses || netdev->mac != netdev_.mac;
  netdev_ = *netdev;
  if (moved || !steered_) steer_addresses();
  if (moved) tell_host_addresses();
}

PortStatus Device::port_status() {
  view_->process_changes();
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
  status.gids = netdev->gids;
  return status;
}

// --- routes and next hops: never under the progress lock -----------------------------------------------------------

// What packets with this address vector share with all others of the shard between the same addresses; its route is
// looked up unless nothing has changed since that was done last. 0, EINVAL (no such GID, families differ) or
// ENETUNREACH. Caller holds `setup`.
int Device::find_destination(const transport::AddressVector& address, uint32_t shard,
                             std::shared_ptr<Destination>& to) {
  if (address.source_gid_index >= netdev_.gids.size()) return EINVAL;
  const wire::IpAddress& source = netdev_.gids[address.source_gid_index];
  if (source.is_unspecified() || address.destination.is_unspecified() || source.is_v4() != address.destination.is_v4())
    return EINVAL;
  std::shared_ptr<Destination> found = destinations_[shard].get(source, address.destination);
  const uint64_t generation = view_->generation();
  if (found->generation != generation) {
    Destination::Route route;
    if (const int error = look_up_route(*view_, netdev_, source, address.destination, route); error != 0) return error;
    apply(*found, std::move(route), generation);
  }
  const auto& hop = found->route.next_hop;
  if (hop && !kernel_routes_ && hop->ask_now(monotonic_now())) view_->resolve_neighbour(netdev_index_, hop->address);
  to = std::move(found);
  return 0;
}

// Caller holds `setup`.
void Device::apply(Destination& to, Destination::Route&& route, uint64_t generation) {
  to.generation = generation;
  Progress::Guard guard(progress);
  std::swap(to.route, route);
  // Whoever waits may wait for another one now.
  for_each_datapath([](Datapath& datapath) { datapath.next_hops().note_change(); });
}

// One destination after the other, so that traffic goes on in between. A route that is gone for the moment leaves it
// as it is: the retry budget decides. So does an address of ours that is gone.
void Device::refresh_routes(const net::News& news) {
  std::lock_guard setting_up(setup);
  if (!present_) return;
  for (const Destinations& destinations : destinations_) {
    for (const std::shared_ptr<Destination>& to : destinations.held()) {
      if (!news.concern_route_to(to->address) || !has(netdev_, to->source)) continue;
      const uint64_t generation = view_->generation();
      Destination::Route route;
      if (look_up_route(*view_, netdev_, to->source, to->address, route) == 0) apply(*to, std::move(route), generation);
    }
  }
}

// Next hops that there are packets for.
void Device::ask_for_next_hops() {
  for_each_datapath([this](Datapath& datapath) {
    if (!datapath.next_hops().wants_some()) return;
    wanted_.clear();
    wanted_.reserve(NextHopWaits::kMostWanted);
    {
      Progress::Guard guard(progress);
      datapath.next_hops().take_wanted(wanted_);
    }
    for (const auto& hop : wanted_) view_->resolve_neighbour(hop->netdev_index, hop->address);
    wanted_.clear();
  });
}

// --- changes --------------------------------------------------------------------------------------------------------

// Called by whichever thread has read it.
void Device::note(const net::News& news) {
  if (news.next_hops) for_each_datapath([](Datapath& datapath) { datapath.next_hops().note_change(); });
  {
    std::lock_guard guard(news_lock_);
    news_ += news;
  }
  progress.wake();
}

// In the background thread, without the progress lock. Returns when it has something to do again, if nothing happens.
Time Device::look_at_network(bool readable) {
  if (readable || view_->due() <= monotonic_now()) view_->process_changes();
  ask_for_next_hops();
  bool netdevs = false;
  net::News routes;
  {
    std::lock_guard guard(news_lock_);
    netdevs = std::exchange(news_.netdevs, false);
    if (netdevs) news_.add_all_routes();  // they lead through netdevs, and to addresses of this host
    if (!news_.all_routes && news_.routes.empty()) {
      news_ = {};
    } else if (monotonic_now() >= next_refresh_) {
      routes = std::exchange(news_, {});
    }
  }
  if (netdevs) follow_netdev();
  if (netdevs || monotonic_now() >= io_due_.load()) follow_io();
  if (routes) {
    refresh_routes(routes);
    next_refresh_ = monotonic_now() + kRefreshInterval;
  }
  const bool reported = report();
  std::lock_guard guard(news_lock_);
  const Time again = reported ? kNever : monotonic_now() + kRefreshInterval;
  return std::min({news_ ? next_refresh_ : kNever, view_->due(), again, io_due_.load()});
}

// What the packet I/O has to say. False: it is to be asked later, as a set-up call is under way. No lock is held while
// the terminal takes its time.
bool Device::report() {
  std::vector<std::string> texts;
  {
    const std::unique_lock setting_up(setup, std::try_to_lock);
    if (!setting_up) return false;
    if (!opened_.report) return true;
    uint64_t runs_paused = 0;
    for_each_datapath([&](const Datapath& datapath) { runs_paused += datapath.counters().get(Counter::kRunsPaused); });
    texts = opened_.report(runs_paused);
  }
  for (const std::string& text : texts) say(name_, text);
  return true;
}

void Device::follow_netdev() {
  std::lock_guard setting_up(setup);
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
    now_netdev.gids.clear();
  }
  netdev_ = now_netdev;
  const net::Netdev before = std::exchange(announced_, std::move(now_netdev));
  if (before.addresses != netdev_.addresses || before.mac != netdev_.mac || !steered_) steer_addresses();
  tell_host_addresses();
  announce(before, netdev_, was_present && !present_);
}

// The packet I/O may have to be opened anew. Set-up calls wait for that, packets of other ways go on.
void Device::follow_io() {
  std::lock_guard setting_up(setup);
  if (!opened_.follow) return io_due_.store(kNever);
  const auto exclusively = [this](const std::function<void()>& step) {
    {
      Progress::Guard guard(progress);
      step();
      max_udp_length_.store(progress.shard(0).datapath().wire()->max_udp_length());
    }
    progress.forget_descriptors();
  };
  io_due_.store(opened_.follow(netdev_, exclusively));
  progress.wake();  // perhaps it has other descriptors now
}

// A netdev that is gone takes its device along, as pulling a NIC does: everything stays callable and gets nowhere.
void Device::announce(const net::Netdev& before, const net::Netdev& after, bool gone) {
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
void Device::add_event_handler(EventHandler* handler) {
  {
    std::lock_guard guard(handlers_lock_);
    handlers_.push_back(handler);
  }
  std::lock_guard setting_up(setup);
  progress.start();
}

void Device::remove_event_handler(EventHandler* handler) {
  std::lock_guard guard(handlers_lock_);
  std::erase(handlers_, handler);
}

}  // namespace uroce::engine
