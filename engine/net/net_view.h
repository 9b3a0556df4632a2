// A live view of the host's network configuration, read from netlink (libnl-route-3) and followed by notifications:
// netdevs, addresses as GIDs, routes and neighbours. Reading needs no privilege and changes nothing (decisions 5, 6).
//
// Thread-safe: every call locks. Snapshots are values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/envelope.h"

namespace uroce::net {

// One network device that can carry RoCE v2.
struct Netdev {
  int index = 0;                  // ifindex
  std::string name;               // "eth0"
  wire::MacAddress mac{};
  uint32_t mtu = 0;               // bytes, L3
  bool up = false;                // IFF_UP
  bool running = false;           // IFF_RUNNING / carrier: link is operational
  uint32_t speed_mbps = 0;        // from ethtool/sysfs; 0 = unknown (veth says 10000)
  // Addresses in GID table order without holes: IPv4, then global IPv6, then link-local (in the kernel's order
  // within each group). Tentative, dadfailed and deprecated-unusable addresses are left out.
  std::vector<wire::IpAddress> addresses;

  friend bool operator==(const Netdev&, const Netdev&) = default;
};

// How a packet from `source` to `destination` leaves a netdev.
struct Route {
  wire::IpAddress next_hop;       // the destination itself when it is on-link
  uint32_t mtu = 0;               // path MTU in bytes the kernel knows for it, else the netdev's
  uint8_t hop_limit = 64;         // from the route metric, else net.ipv4.ip_default_ttl / ipv6 hop_limit
  bool local = false;             // the destination is an address of this host
};

enum class NeighbourState : uint8_t { kUnknown, kResolving, kUsable, kStale, kFailed };

struct Neighbour {
  NeighbourState state = NeighbourState::kUnknown;
  wire::MacAddress mac{};         // valid in kUsable and kStale
};

class NetView {
 public:
  // Throws std::system_error when netlink cannot be reached (set-up is the one place where exceptions are used).
  static std::unique_ptr<NetView> open();
  virtual ~NetView() = default;

  // Usable netdevs: Ethernet-like (ARPHRD_ETHER), not loopback, not a slave of a bond or bridge. With or without
  // addresses, up or down: the port state says it. Sorted by ifindex.
  virtual std::vector<Netdev> netdevs() = 0;
  virtual std::optional<Netdev> netdev(int index) = 0;

  // Asks the kernel (RTM_GETROUTE bound to the netdev): what `ip route get DEST oif DEV from SRC` answers.
  // nullopt: no route. Multicast and link-local destinations are on-link.
  virtual std::optional<Route> route(int netdev_index, const wire::IpAddress& source,
                                     const wire::IpAddress& destination) = 0;

  // The neighbour table's entry for an on-link address.
  virtual Neighbour neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Makes the kernel resolve or re-probe a neighbour (RTM_NEWNEIGH with NTF_USE; without CAP_NET_ADMIN by sending
  // an empty UDP datagram to its discard port). Returns at once; the outcome arrives as a change.
  virtual void resolve_neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Readable when the kernel has news; then call process_changes().
  virtual int descriptor() const = 0;
  // Reads pending notifications without blocking. True if anything changed. A lost notification (ENOBUFS) leads to a
  // complete re-read inside.
  virtual bool process_changes() = 0;
  // Goes up with every change of links, addresses, routes or neighbours: a cheap test whether cached data is fresh.
  virtual uint64_t generation() const = 0;
};

}  // namespace uroce::net
