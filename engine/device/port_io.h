// SPDX-License-Identifier: BSD-2-Clause
// The packet I/O of a device, as whoever opens it hands it over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "engine/io/packet_io.h"
#include "engine/net/net_view.h"
#include "engine/objects/limits.h"
#include "engine/objects/qpn_space.h"

namespace uroce::engine {

struct OpenedIo {
  // For each shard that the device gets, a power of two and io::kMaxShards at most.
  std::vector<std::unique_ptr<io::PacketIo>> io;
  // Likewise, between QPs of the device; empty: the engine makes them.
  std::vector<std::unique_ptr<io::PacketIo>> loops{};
  // The QP numbers that the broker has leased to the device, whose addresses other processes of the host share.
  std::optional<QpnRange> qpns;
  // What the packet I/O needs and outlives it; may be null.
  std::shared_ptr<const void> held;
  // Tells the packet I/O that the netdev's MAC address, its addresses or its multicast groups changed; may be empty. 0
  // or an errno value: not all has been taken; call again. report() says so.
  std::function<int(const wire::MacAddress&, std::span<const wire::IpAddress>)> set_addresses;
  // Tells it of all addresses of this host, from which no wire brings packets; may be empty. Called under the locks of
  // all shards.
  std::function<void(std::span<const wire::IpAddress>)> set_host_addresses;
  // Looks whether the netdev, as it is now, has changed in a way for which the packet I/O has to be opened anew, and
  // does it: that may take long, so only the steps that it hands to `exclusively` run while nobody moves packets.
  // max_udp_length() may be another one after each. Returns when to look again at the latest. May be empty.
  using Exclusively = std::function<void(const std::function<void()>& step)>;
  std::function<Time(const net::Netdev&, const Exclusively& exclusively)> follow;
  // What has been found out since the last time, each only once, for say(); may be empty. Costs little where that is
  // nothing. `runs_paused`: times that runs to a peer were given up (Counter::kRunsPaused).
  std::function<std::vector<std::string>(uint64_t runs_paused)> report;
  // Make the host a member of a multicast group, and end that; may be empty. join: 0 or an errno value.
  std::function<int(const wire::IpAddress& group)> join;
  std::function<void(const wire::IpAddress& group)> leave;
  uint32_t max_groups = Limits::kMaxMulticastGroups;  // for which join has room, of IPv4
  // What it is, and why if it is UDP sockets without being asked for; for say(). Empty: people do not want to know.
  std::string introduction{};
};

// Opens packet I/O for a netdev. It is up to the caller to tell people of the outcome: stderr may be slow (say.h).
using IoOpener = std::function<std::variant<OpenedIo, io::IoError>(const net::Netdev&)>;

}  // namespace uroce::engine
