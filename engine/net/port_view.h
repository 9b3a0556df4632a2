// SPDX-License-Identifier: BSD-2-Clause
// NetView of a port that the kernel does not see: one netdev, with the addresses that a file gives, the routes that
// follow from them, and neighbours found by frames that the port's packet I/O moves (resolution.h).
//
// The three functions about frames are called by the packet I/O, under the lock of its shard; they take a lock of their
// own for as long as a frame takes. take_frame() also tells the listeners that a next hop has been found.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "engine/net/net_view.h"
#include "engine/net/port_file.h"
#include "engine/net/resolution.h"

namespace uroce::net {

class PortView final : public NetView {
 public:
  // Throws std::system_error where no descriptor is to be had.
  explicit PortView(PortFile file);

  std::vector<Netdev> netdevs() override;
  std::optional<Netdev> netdev(int index) override;
  std::optional<Route> route(int netdev_index, const wire::IpAddress& source,
                             const wire::IpAddress& destination) override;
  std::optional<Departure> departure(const wire::IpAddress& destination) override;
  std::shared_ptr<NextHop> next_hop(int netdev_index, const wire::IpAddress& address) override;
  Neighbour neighbour(int netdev_index, const wire::IpAddress& address) override;
  void resolve_neighbour(int netdev_index, const wire::IpAddress& address) override;
  int descriptor() const override { return event_.get(); }
  Time due() const override;
  bool process_changes() override;
  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  uint64_t requests() const override { return 0; }

  // A frame that is no RoCE packet.
  void take_frame(std::span<const uint8_t> frame);
  // The next frame to send, into `out` of Resolution::kLongestFrame bytes; its size, 0: none.
  size_t next_frame(std::span<uint8_t> out);
  // Every time that it comes, neighbours are told of the addresses.
  void set_link(bool up);

 private:
  Neighbour neighbour_now(const wire::IpAddress& address) const;
  bool apply_changes();
  void ring() const;

  const PortFile file_;
  const UniqueFd event_;
  std::atomic<uint64_t> generation_{1};
  std::atomic<bool> has_frames_{false};
  std::atomic<bool> link_{true};
  std::atomic<bool> announced_{false};  // since it has its link
  mutable std::mutex lock_;
  Netdev netdev_;
  Resolution resolution_;
  NextHops hops_;
};

}  // namespace uroce::net
