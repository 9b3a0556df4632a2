// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/port_view.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "engine/net/multicast_mac.h"

namespace uroce::net {
namespace {

UniqueFd make_event() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

}  // namespace

PortView::PortView(PortFile file)
    : file_(std::move(file)),
      event_(make_event()),
      netdev_(netdev_of(file_)),
      resolution_(netdev_.mac, netdev_.addresses) {}

std::vector<Netdev> PortView::netdevs() {
  const std::lock_guard guard(lock_);
  return {netdev_};
}

std::optional<Netdev> PortView::netdev(int index) {
  const std::lock_guard guard(lock_);
  return index == netdev_.index ? std::optional(netdev_) : std::nullopt;
}

std::optional<Route> PortView::route(int netdev_index, const wire::IpAddress& source,
                                     const wire::IpAddress& destination) {
  const auto netdev = this->netdev(netdev_index);
  const auto& own = netdev ? netdev->addresses : std::vector<wire::IpAddress>();
  const auto has = [&](const wire::IpAddress& address) {
    return std::find(own.begin(), own.end(), address) != own.end();
  };
  static constexpr uint8_t kAll[4] = {255, 255, 255, 255};
  if (!netdev || destination.is_unspecified() || destination == wire::IpAddress::v4(kAll)) return std::nullopt;
  if (!source.is_unspecified() && !has(source)) return std::nullopt;
  Route route{.next_hop = destination, .mtu = netdev->mtu};
  route.local = has(destination);
  const bool on_link = destination.is_multicast() || destination.is_link_local() ||
                       std::any_of(file_.addresses.begin(), file_.addresses.end(),
                                   [&](const Prefix& network) { return network.covers(destination); });
  if (route.local || on_link) return route;
  const auto gateway = std::find_if(file_.gateways.begin(), file_.gateways.end(),
                                    [&](const wire::IpAddress& each) { return each.is_v4() == destination.is_v4(); });
  if (gateway == file_.gateways.end()) return std::nullopt;
  route.next_hop = *gateway;
  return route;
}

std::optional<Departure> PortView::departure(const wire::IpAddress& destination) {
  const auto way = route(netdev_.index, {}, destination);
  if (!way) return std::nullopt;
  if (way->local) return Departure{netdev_.index, destination, true};
  const wire::IpAddress* source = nullptr;  // of the network that the next hop is in, else any of the IP version
  for (const Prefix& own : file_.addresses) {
    if (own.address.is_v4() != destination.is_v4()) continue;
    if (source == nullptr || own.covers(way->next_hop)) source = &own.address;
  }
  return source == nullptr ? std::nullopt : std::optional(Departure{netdev_.index, *source, false});
}

// Caller holds `lock_`.
Neighbour PortView::neighbour_now(const wire::IpAddress& address) const {
  if (address.is_multicast()) return {NeighbourState::kUsable, multicast_mac(address)};
  return resolution_.neighbour(address);
}

std::shared_ptr<NextHop> PortView::next_hop(int netdev_index, const wire::IpAddress& address) {
  const std::lock_guard guard(lock_);
  auto hop = hops_.find(netdev_index, address);
  return hop ? hop : hops_.add(netdev_index, address, neighbour_now(address));
}

Neighbour PortView::neighbour(int, const wire::IpAddress& address) {
  const std::lock_guard guard(lock_);
  return neighbour_now(address);
}

void PortView::resolve_neighbour(int, const wire::IpAddress& address) {
  const std::lock_guard guard(lock_);
  if (address.is_multicast()) return;
  resolution_.want(address, monotonic_now());
  has_frames_.store(resolution_.has_frames(), std::memory_order_release);
  ring();  // there is a deadline, and what has changed
}

Time PortView::due() const {
  const std::lock_guard guard(lock_);
  return resolution_.due();
}

bool PortView::process_changes() {
  News news;
  bool was_rung = false;
  {
    const std::lock_guard guard(lock_);
    uint64_t rung = 0;
    was_rung = read(event_.get(), &rung, sizeof(rung)) > 0;
    resolution_.on_time(monotonic_now());
    has_frames_.store(resolution_.has_frames(), std::memory_order_release);
    news.next_hops = apply_changes();
    const bool link = link_.load(std::memory_order_acquire);
    news.netdevs = std::exchange(netdev_.running, link) != link;
    if (news.netdevs) generation_.fetch_add(1, std::memory_order_acq_rel);
  }
  // Who sleeps hears of a new deadline and of frames, too: this may be another thread, and has taken what woke it.
  if (news || was_rung) tell_listeners(news);
  return static_cast<bool>(news);
}

// Caller holds `lock_`. True: somebody waits for one of them.
bool PortView::apply_changes() {
  bool awaited = false;
  for (const wire::IpAddress& address : resolution_.take_changed()) {
    if (const auto hop = hops_.find(netdev_.index, address)) awaited |= hop->set(neighbour_now(address));
  }
  return awaited;
}

// A next hop that has been found is told at once: datagrams wait only for a moment.
void PortView::take_frame(std::span<const uint8_t> frame) {
  News news;
  {
    const std::lock_guard guard(lock_);
    if (resolution_.take(frame, monotonic_now())) {
      ring();  // there is another deadline
      news.next_hops = apply_changes();
    }
    has_frames_.store(resolution_.has_frames(), std::memory_order_release);
  }
  if (news) tell_listeners(news);
}

size_t PortView::next_frame(std::span<uint8_t> out) {
  if (!has_frames_.load(std::memory_order_acquire)) return 0;
  const std::lock_guard guard(lock_);
  const size_t size = resolution_.next_frame(out);
  has_frames_.store(resolution_.has_frames(), std::memory_order_release);
  return size;
}

void PortView::set_link(bool up) {
  if (link_.exchange(up, std::memory_order_acq_rel) != up) ring();
  if (announced_.exchange(up, std::memory_order_acq_rel) || !up) return;
  {
    const std::lock_guard guard(lock_);
    resolution_.announce(monotonic_now());
    has_frames_.store(resolution_.has_frames(), std::memory_order_release);
  }
  ring();  // there is a deadline
}

void PortView::ring() const {
  const uint64_t once = 1;
  static_cast<void>(!write(event_.get(), &once, sizeof(once)));
}

std::shared_ptr<NetView> open_view(const std::string& file) {
  if (file.empty()) return NetView::open();
  auto read = read_port_file(file);
  if (const auto* const problem = std::get_if<std::string>(&read)) throw std::runtime_error(*problem);
  return std::make_shared<PortView>(std::move(std::get<PortFile>(read)));
}

}  // namespace uroce::net
