// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/host_net.h"

#include "engine/net/device_guid.h"

namespace uroce::net {

void HostNet::read_again() {
  const uint64_t generation = view_.generation();
  if (generation_ == generation) return;
  generation_ = generation;
  addresses_.clear();
  guids_.clear();
  loopback_.reset();
  for (const Netdev& netdev : view_.netdevs()) {
    const auto index = static_cast<uint32_t>(netdev.index);
    if (netdev.type == LinkType::kLoopback) loopback_ = index;
    guids_[index] = wire::Guid{device_guid(netdev)};
    for (const wire::IpAddress& address : netdev.addresses) addresses_.emplace(address.bytes, index);
  }
}

// Of any netdev: 0.
bool HostNet::has(uint32_t netdev, const wire::IpAddress& address) const {
  const auto found = addresses_.lower_bound({address.bytes, netdev});
  return found != addresses_.end() && found->first == address.bytes && (netdev == 0 || found->second == netdev);
}

// What is not there may have come a moment ago.
bool HostNet::has_address(uint32_t netdev, const wire::IpAddress& address) {
  read_again();
  if (has(netdev, address)) return true;
  if (!view_.process_changes()) return false;
  read_again();
  return has(netdev, address);
}

bool HostNet::reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) {
  return netdev_with(remote, netdev).has_value() || view_.route(static_cast<int>(netdev), local, remote).has_value();
}

wire::Guid HostNet::guid(uint32_t netdev) {
  read_again();
  const auto found = guids_.find(netdev);
  return found == guids_.end() ? wire::Guid{} : found->second;
}

std::optional<uint32_t> HostNet::netdev_with(const wire::IpAddress& address, uint32_t from) {
  read_again();
  if (has(from, address)) return from;
  if (from == loopback_) return std::nullopt;
  const auto found = addresses_.lower_bound({address.bytes, 0});
  if (found == addresses_.end() || found->first != address.bytes || address.is_link_local()) return std::nullopt;
  return found->second == loopback_ ? std::nullopt : std::optional(found->second);
}

}  // namespace uroce::net
