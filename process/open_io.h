// SPDX-License-Identifier: BSD-2-Clause
// Which packet I/O an engine gets: what UROCE_IO asks for, or the best that the process may open (io_choice.h).
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
#include "engine/engine.h"
#include "engine/io/packet_io.h"
#include "engine/objects/qpn_space.h"
#include "process/options.h"

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
using IoOpener = std::function<std::variant<OpenedIo, io::IoError>(const net::Netdev&, const Options&)>;

std::variant<OpenedIo, io::IoError> open_packet_io(const net::Netdev& netdev, const Options& options);

// open_packet_io(), or what opens the DPDK port that `view` is of (net/port_view.h).
IoOpener opener_for(const std::shared_ptr<net::NetView>& view);

// Opens the DPDK port whose exception path is this tap. The tap is the opener's from now on, and has its carrier, so
// the device is active before its packet I/O is open, as programs expect that look for an active one.
std::variant<IoOpener, io::IoError> opener_with_tap(const std::string& tap);

}  // namespace uroce::engine
