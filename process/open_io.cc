// SPDX-License-Identifier: BSD-2-Clause
#include "process/open_io.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "base/clock.h"
#include "base/concat.h"
#include "broker/client/link.h"
#include "engine/io/dpdk/copy_filter.h"
#include "engine/io/dpdk/dpdk.h"
#include "engine/io/dpdk/tap_path.h"
#include "engine/io/frames_and_sockets.h"
#include "engine/io/same_host/same_host.h"
#include "engine/io/udp/socket.h"
#include "engine/io/udp/udp.h"
#include "engine/net/multicast_memberships.h"
#include "engine/net/netdev_settings.h"
#include "engine/net/port_view.h"
#include "process/broker_link.h"
#include "process/capture_setup.h"
#include "process/followed_frames.h"
#include "process/io_choice/io_choice.h"

namespace uroce::engine {

namespace {

// What other processes of the host are to know of, if there is a broker.
using Lease = std::variant<std::shared_ptr<broker::Lease>, io::IoError>;

Lease lease(const net::Netdev& netdev, const Options& options, broker::Plane plane) {
  auto linked = broker_link(options);
  if (auto* const error = std::get_if<io::IoError>(&linked)) return std::move(*error);
  const auto& link = std::get<std::shared_ptr<broker::Link>>(linked);
  if (!link) return nullptr;
  if (netdev.in_vrf && !net::udp_takes_from_vrfs()) {  // the broker's sockets are of all netdevs
    return io::IoError{ENETUNREACH, concat(netdev.name, " is in a VRF, where the broker's UDP sockets get nothing"),
                       "sysctl -w net.ipv4.udp_l3mdev_accept=1, or run the program alone (uroce run --alone)"};
  }
  return link->lease(netdev.index, netdev.name, plane);
}

QpnRange qpns_of(const broker::Lease& lease) {
  return {lease.range().first(), lease.range().count()};
}

// kRuns: a DPDK port brings all other packets. Leased sockets bring these too.
enum class Wanted : uint8_t { kAll, kRuns };

io::IoResult<io::UdpIo> open_sockets(const net::Netdev& netdev, const broker::Lease* lease,
                                     Wanted wanted = Wanted::kAll) {
  io::UdpConfig config{.netdev = netdev.name, .ifindex = netdev.index};
  config.only_runs = wanted == Wanted::kRuns;
  if (netdev.gso_max_size != 0) config.gso_max_size = netdev.gso_max_size;
  if (lease != nullptr) {
    config.socket_v4 = lease->socket_v4();
    config.socket_v6 = lease->socket_v6();
  }
  return io::UdpIo::open(config);
}

// With other processes of this host packets are exchanged through memory, as soon as they have met.
std::unique_ptr<io::SameHost> with_same_host(const std::shared_ptr<broker::Lease>& lease,
                                             std::unique_ptr<io::PacketIo> network) {
  const auto peers = std::make_shared<io::PeerExchange>();
  lease->take_peers(
      [peers](uint32_t range, io::PeerEnd&& end) { return peers->add(range, std::move(end)); },
      [peers](std::optional<uint32_t> range) { range ? peers->part(*range) : peers->part_from_strangers(); },
      [peers, weak = std::weak_ptr(lease)] {
        if (peers->bury()) return;
        if (const auto alive = weak.lock()) alive->ask_to_tend();  // what the broker says meanwhile is not to wait
      });
  return std::make_unique<io::SameHost>(std::move(network),
                                        io::SameHost::Config{.range_bits = broker::LeaseRange::kBits,
                                                             .meet = [lease](uint32_t range) { lease->meet(range); },
                                                             .bury = [lease] { lease->ask_to_tend(); },
                                                             .peers = peers});
}

// What the netdev's other users make different.
void share(const std::shared_ptr<broker::Lease>& lease, int ifindex, OpenedIo& opened) {
  auto same_host = with_same_host(lease, std::move(opened.io.front()));
  opened.set_host_addresses = [peers = same_host.get(), below = std::move(opened.set_host_addresses)](
                                  std::span<const wire::IpAddress> addresses) {
    if (below) below(addresses);
    peers->set_local_addresses(addresses);
  };
  opened.io.front() = std::move(same_host);
  opened.qpns = qpns_of(*lease);
  opened.held = lease;
  const auto member = [lease, ifindex](const wire::IpAddress& group, bool joins) {
    const int socket = group.is_v4() ? lease->socket_v4() : lease->socket_v6();
    return net::change_membership(socket, joins, ifindex, group);
  };
  opened.join = [member](const wire::IpAddress& group) { return member(group, true); };
  opened.leave = [member](const wire::IpAddress& group) { member(group, false); };
  opened.max_groups = std::min(opened.max_groups, net::groups_of_a_socket());
}

auto open_frames(const net::Netdev& netdev, const Options& options, const broker::Lease* lease) {
  io::AfXdpConfig config;
  config.ifindex = netdev.index;
  config.netdev = netdev.name;
  config.mtu = netdev.mtu;
  config.mac = netdev.mac;
  config.local_addresses = netdev.addresses;
  config.vlans = netdev.vlans;
  config.force_generic = options.force_generic_xdp;
  if (lease != nullptr) config.qpns = qpns_of(*lease);
  return FollowedFrames::open(std::move(config));
}

void follow(const std::shared_ptr<FollowedFrames>& frames, OpenedIo& opened) {
  opened.report = [frames](uint64_t) { return frames->take_notices(); };
  opened.set_addresses = [frames](const wire::MacAddress& mac, std::span<const wire::IpAddress> addresses) {
    return frames->set_addresses(mac, addresses);
  };
  opened.follow = [frames](const net::Netdev& now, const OpenedIo::Exclusively& exclusively) {
    return frames->follow(now, exclusively, monotonic_now());
  };
}

std::variant<OpenedIo, io::IoError> open_af_xdp(const net::Netdev& netdev, const Options& options) {
  auto leased = lease(netdev, options, broker::Plane::kAfXdp);
  if (auto* const error = std::get_if<io::IoError>(&leased)) return std::move(*error);
  const auto& own = std::get<std::shared_ptr<broker::Lease>>(leased);
  if (!own) {  // would take the packets of others with sockets on the port
    const std::optional<io::IoError> error = io::UdpSocket().open(AF_INET, netdev.name);
    if (error && error->code == EADDRINUSE) return *error;
  }
  auto result = open_frames(netdev, options, own.get());
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  const auto& frames = std::get<std::shared_ptr<FollowedFrames>>(result);
  OpenedIo opened;
  follow(frames, opened);
  if (!own) {
    opened.io.push_back(frames->take_io());
    return opened;
  }
  auto beside = open_sockets(netdev, own.get());
  if (auto* error = std::get_if<io::IoError>(&beside)) return *error;
  auto& sockets = std::get<std::unique_ptr<io::UdpIo>>(beside);
  opened.report = [of_frames = std::move(opened.report), udp = sockets.get()](uint64_t runs_paused) {
    std::vector<std::string> texts = of_frames(runs_paused);
    std::vector<std::string> others = udp->take_notices();
    std::move(others.begin(), others.end(), std::back_inserter(texts));
    return texts;
  };
  auto* const udp = sockets.get();
  auto both = std::make_unique<io::FramesAndSockets>(frames->take_io(), std::move(sockets));
  opened.set_host_addresses = [udp, all = both.get()](std::span<const wire::IpAddress> addresses) {
    udp->set_local_addresses(addresses);
    all->set_local_addresses(addresses);
  };
  opened.io.push_back(std::move(both));
  share(own, netdev.index, opened);
  return opened;
}

std::variant<OpenedIo, io::IoError> open_udp(const net::Netdev& netdev, const Options& options) {
  auto leased = lease(netdev, options, broker::Plane::kSockets);
  if (auto* const error = std::get_if<io::IoError>(&leased)) return std::move(*error);
  const auto& own = std::get<std::shared_ptr<broker::Lease>>(leased);
  auto result = open_sockets(netdev, own.get());
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  auto& udp = std::get<std::unique_ptr<io::UdpIo>>(result);
  OpenedIo opened;
  opened.report = [sockets = udp.get(), told = false](uint64_t runs_paused) mutable {
    std::vector<std::string> texts = sockets->take_notices();
    if (runs_paused > 0 && !std::exchange(told, true)) {
      texts.emplace_back(
          "a peer does not get runs of packets, as AF_XDP in generic mode there would explain: they leave one by one, "
          "which is slower; runs are tried again after a second, then ever less often");
    }
    return texts;
  };
  opened.set_host_addresses = [sockets = udp.get()](std::span<const wire::IpAddress> addresses) {
    sockets->set_local_addresses(addresses);
  };
  opened.io.push_back(std::move(udp));
  if (own) share(own, netdev.index, opened);
  return opened;
}

// A port of DPDK on the netdev. The kernel goes on seeing the frames, so sockets are beside, to which copies of them
// would go if no filter could be had.
std::variant<OpenedIo, io::IoError> open_dpdk(const net::Netdev& netdev, const Options& options) {
  auto leased = lease(netdev, options, broker::Plane::kDpdk);
  if (auto* const error = std::get_if<io::IoError>(&leased)) return std::move(*error);
  const auto& own = std::get<std::shared_ptr<broker::Lease>>(leased);
  auto beside = open_sockets(netdev, own.get(), Wanted::kRuns);
  if (auto* error = std::get_if<io::IoError>(&beside)) return *error;
  auto& sockets = std::get<std::unique_ptr<io::UdpIo>>(beside);
  io::DpdkConfig config;
  config.devargs = options.dpdk;
  config.netdev = netdev.name;
  config.ifindex = netdev.index;
  config.mtu = netdev.mtu;
  config.mac = netdev.mac;
  if (own) config.qpns = qpns_of(*own);
  auto result = io::DpdkIo::open(config);
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  auto& port = std::get<std::unique_ptr<io::DpdkIo>>(result);
  OpenedIo opened;
  auto* const udp = sockets.get();
  opened.report = [udp](uint64_t) { return udp->take_notices(); };
  auto* const frames = port.get();
  using Copies = io::FramesAndSockets::Copies;
  std::shared_ptr<io::CopyFilter> filter;
  if (frames->gets_copies()) filter = io::CopyFilter::open(netdev.index, netdev.mac, netdev.addresses, config.qpns);
  auto both = std::make_unique<io::FramesAndSockets>(std::move(port), std::move(sockets),
                                                     filter ? Copies::kDropped : Copies::kOfAll);
  opened.set_host_addresses = [udp, all = both.get()](std::span<const wire::IpAddress> addresses) {
    udp->set_local_addresses(addresses);
    all->set_local_addresses(addresses);
  };
  opened.set_addresses = [frames, filter](const wire::MacAddress& mac, std::span<const wire::IpAddress> addresses) {
    frames->set_mac(mac);
    if (filter) {  // what it does not know of is copied
      filter->set_mac(mac);
      filter->set_local_addresses(addresses);
    }
    return 0;
  };
  opened.io.push_back(std::move(both));
  if (own) share(own, netdev.index, opened);
  return opened;
}

// What the port's frames are to a PortView.
class PortFrames final : public io::OtherFrames {
 public:
  explicit PortFrames(std::shared_ptr<net::PortView> view) : view_(std::move(view)) {}
  void take(std::span<const uint8_t> frame) override { view_->take_frame(frame); }
  size_t next(std::span<uint8_t> out) override { return view_->next_frame(out); }
  void link(bool up) override { view_->set_link(up); }

 private:
  const std::shared_ptr<net::PortView> view_;
};

// A port of DPDK that the kernel does not see, and that this process has for itself.
std::variant<OpenedIo, io::IoError> open_own_port(std::shared_ptr<io::OtherFrames> others, const net::Netdev& netdev,
                                                  const Options& options) {
  std::shared_ptr<const void> held;
  const std::string name = options.dpdk.exclusive_name();
  if (!name.empty()) {
    auto linked = broker_link(options);
    if (auto* const error = std::get_if<io::IoError>(&linked)) return std::move(*error);
    if (const auto& link = std::get<std::shared_ptr<broker::Link>>(linked)) {
      auto asked = link->hold(name);
      if (auto* const error = std::get_if<io::IoError>(&asked)) return std::move(*error);
      held = std::move(std::get<std::shared_ptr<const void>>(asked));
    }
  }
  io::DpdkConfig config;
  config.devargs = options.dpdk;
  config.mtu = netdev.mtu;
  config.mac = netdev.mac;
  config.vlan = netdev.vlan_id.value_or(0);
  config.others = std::move(others);
  auto result = io::DpdkIo::open(config);
  if (auto* error = std::get_if<io::IoError>(&result)) return *error;
  OpenedIo opened;
  opened.held = std::move(held);
  opened.io.push_back(std::move(std::get<std::unique_ptr<io::DpdkIo>>(result)));
  // There is nobody who would have to be told: the port takes frames to all groups.
  opened.join = [](const wire::IpAddress&) { return 0; };
  opened.leave = [](const wire::IpAddress&) {};
  return opened;
}

// `why`: why it is UDP, if nobody asked for that.
std::variant<OpenedIo, io::IoError> open_best(const net::Netdev& netdev, const Options& options, std::string& why) {
  const IoFacts facts = io_facts(netdev, options);
  const IoChoice choice = choose_io(facts, options.io);
  const bool automatic = options.io == Options::Io::kAuto;
  if (choice.error) return *choice.error;
  if (choice.kind == IoKind::kDpdk) return open_dpdk(netdev, options);
  if (choice.kind == IoKind::kAfXdp) {
    std::variant<OpenedIo, io::IoError> result = open_af_xdp(netdev, options);
    const auto* const error = std::get_if<io::IoError>(&result);
    if (error == nullptr || !automatic) return result;
    why = concat("not AF_XDP: ", error->text());
  } else if (automatic) {
    why = choice.why;
  }
  return open_udp(netdev, options);
}

// With what is the same for all.
std::variant<OpenedIo, io::IoError> complete(std::variant<OpenedIo, io::IoError> result, const std::string& why,
                                             const net::Netdev& netdev, const Options& options) {
  if (std::holds_alternative<io::IoError>(result)) return result;
  auto& opened = std::get<OpenedIo>(result);
  if (!opened.join) {
    const auto memberships = std::make_shared<net::MulticastMemberships>();
    opened.join = [memberships, index = netdev.index](const wire::IpAddress& group) {
      return memberships->join(index, group);
    };
    opened.leave = [memberships](const wire::IpAddress& group) { memberships->leave(group); };
  }
  add_faults_and_capture(opened, netdev, options);
  if (!options.quiet) {
    opened.introduction = opened.io.front()->description() + (why.empty() ? "" : concat(" (", why, ")"));
  }
  return result;
}

IoOpener opener_of_port(std::shared_ptr<io::OtherFrames> others, const Options& options) {
  return [others = std::move(others), options](const net::Netdev& netdev) {
    return complete(open_own_port(others, netdev, options), "", netdev, options);
  };
}

}  // namespace

IoOpener opener_for(const std::shared_ptr<net::NetView>& view, const Options& options) {
  const auto port = std::dynamic_pointer_cast<net::PortView>(view);
  if (port) return opener_of_port(std::make_shared<PortFrames>(port), options);
  return [options](const net::Netdev& netdev) { return open_packet_io(netdev, options); };
}

std::variant<IoOpener, io::IoError> opener_with_tap(const Options& options) {
  auto opened = io::TapPath::open(options.dpdk_tap);
  if (auto* const error = std::get_if<io::IoError>(&opened)) return std::move(*error);
  const IoOpener open = opener_of_port(std::move(std::get<std::unique_ptr<io::TapPath>>(opened)), options);
  return [open](const net::Netdev& netdev) -> std::variant<OpenedIo, io::IoError> {
    if (netdev.mtu <= io::DpdkIo::kMaxMtu) return open(netdev);
    const auto most = std::to_string(io::DpdkIo::kMaxMtu);  // the kernel would send longer frames
    return io::IoError{EMSGSIZE, concat("tap ", netdev.name, " has MTU ", netdev.mtu, ", and ports carry ", most),
                       concat("sudo ip link set ", netdev.name, " mtu ", most)};
  };
}

std::variant<OpenedIo, io::IoError> open_packet_io(const net::Netdev& netdev, const Options& options) {
  std::string why;
  std::variant<OpenedIo, io::IoError> result = open_best(netdev, options, why);
  return complete(std::move(result), why, netdev, options);
}

}  // namespace uroce::engine
