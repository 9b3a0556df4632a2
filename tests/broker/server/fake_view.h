// SPDX-License-Identifier: BSD-2-Clause
// Netdevs of a host that is not there: eth1 with 10.0.0.1, 2001:db8::1 and fe80::1, eth2 with 10.0.1.1. All else is
// reached through eth1.
#pragma once

#include <memory>
#include <optional>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "engine/net/net_view.h"

namespace uroce::broker {

inline constexpr uint32_t kEth1 = 1, kEth2 = 2;

inline wire::IpAddress fake_v4(uint8_t subnet, uint8_t last) {
  const uint8_t four[] = {10, 0, subnet, last};
  return wire::IpAddress::v4(four);
}
inline wire::IpAddress fake_v6(uint8_t last) {
  const uint8_t sixteen[] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(sixteen);
}
inline wire::IpAddress fake_link_local(uint8_t last) {
  const uint8_t sixteen[] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return wire::IpAddress::v6(sixteen);
}

class FakeView final : public net::NetView {
 public:
  FakeView() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    net::Netdev eth1, eth2;
    eth1.index = kEth1;
    eth1.mac = {2, 0, 0, 0, 0, 1};
    eth1.addresses = {fake_v4(0, 1), fake_v6(1), fake_link_local(1)};
    eth2.index = kEth2;
    eth2.mac = {2, 0, 0, 0, 0, 2};
    eth2.addresses = {fake_v4(1, 1)};
    netdevs_ = {eth1, eth2};
  }
  std::vector<net::Netdev> netdevs() override { return netdevs_; }
  std::optional<net::Netdev> netdev(int) override { return std::nullopt; }
  std::optional<net::Route> route(int netdev, const wire::IpAddress&, const wire::IpAddress&) override {
    return netdev == static_cast<int>(kEth1) ? std::optional(net::Route{}) : std::nullopt;
  }
  std::shared_ptr<net::NextHop> next_hop(int, const wire::IpAddress&) override { return nullptr; }
  net::Neighbour neighbour(int, const wire::IpAddress&) override { return {}; }
  void resolve_neighbour(int, const wire::IpAddress&) override {}
  int descriptor() const override { return event_.get(); }
  bool process_changes() override {
    if (!coming_) return false;
    netdevs_ = *std::exchange(coming_, std::nullopt);
    ++generation_;
    return true;
  }
  uint64_t generation() const override { return generation_; }
  uint64_t requests() const override { return 0; }

  // The kernel has news that nobody has read yet.
  void change(std::vector<net::Netdev> netdevs) { coming_ = std::move(netdevs); }

 private:
  const UniqueFd event_;
  std::vector<net::Netdev> netdevs_;
  std::optional<std::vector<net::Netdev>> coming_;
  uint64_t generation_ = 1;
};

}  // namespace uroce::broker
