// SPDX-License-Identifier: BSD-2-Clause
// Shows the datagrams of QP1 to `uroce capture`, as a process's engine shows its packets (capture/): a tap for each
// netdev with a device. Those between programs of this host are on an interface of their own. While nobody listens it
// costs a load for each datagram.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "broker/server/gsi_counters.h"
#include "capture/tap.h"
#include "cm/types.h"
#include "engine/io/udp/message.h"
#include "engine/net/net_view.h"

namespace uroce::broker {

class GsiCapture {
 public:
  explicit GsiCapture(net::NetView& view) : view_(view) {}
  ~GsiCapture();
  GsiCapture(const GsiCapture&) = delete;
  GsiCapture& operator=(const GsiCapture&) = delete;

  // The netdevs as they are now. Costs nothing where nothing has changed.
  void follow();

  // `packet`: from the BTH to the ICRC. `dropped`: why it was.
  void sent(uint32_t netdev, const wire::Envelope& envelope, std::span<const uint8_t> packet);
  void received(const io::UdpArrival& arrival, std::span<const uint8_t> packet, std::optional<GsiCounter> dropped);
  // It has come to a netdev of this host without having left it.
  void within_host(const cm::Datagram& datagram);

 private:
  // Null: nobody listens there.
  io::CaptureTap* listener(uint32_t netdev) const;

  net::NetView& view_;
  std::optional<uint64_t> generation_;
  std::map<uint32_t, std::shared_ptr<io::CaptureTap>> taps_;
};

}  // namespace uroce::broker
