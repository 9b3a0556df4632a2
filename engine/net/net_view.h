// A live view of the host's network configuration, read from netlink (libnl) and followed by notifications: netdevs,
// addresses as GIDs, routes and neighbours. Reading needs no privilege and changes nothing (architecture.md,
// decisions 5, 6). Host makes one per process and its engines share it.
//
// Thread-safe: every call but descriptor() and generation() takes a lock. Snapshots are values. The view is of the
// network namespace in which it was opened; threads that use it stay there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wire/envelope.h"

namespace uroce::net {

// One network device that can carry RoCE v2.
struct Netdev {
  int index = 0;     // ifindex
  std::string name;  // "eth0"
  wire::MacAddress mac{};
  uint32_t mtu = 0;                 // bytes, L3
  bool up = false;                  // IFF_UP
  bool running = false;             // IFF_RUNNING / carrier: link is operational
  uint32_t speed_mbps = 0;          // from ethtool; 0 = unknown (veth says 10000)
  std::optional<uint16_t> vlan_id;  // of an 802.1Q netdev
  // Addresses in GID table order without holes: IPv4, then global IPv6, then link-local. Within a group in the
  // kernel's order, so that all processes agree; for IPv6 that is the latest first. Each address once. Tentative
  // and dadfailed addresses are left out; deprecated ones stay, since what uses them goes on (RFC 4862 section 5.5.4).
  std::vector<wire::IpAddress> addresses;

  friend bool operator==(const Netdev&, const Netdev&) = default;
};

// How a packet from `source` to `destination` leaves a netdev.
struct Route {
  wire::IpAddress next_hop;  // the destination itself when it is on-link
  uint32_t mtu = 0;          // path MTU in bytes the kernel knows for it, at most the netdev's
  uint8_t hop_limit = 64;    // from the route metric, else net.ipv4.ip_default_ttl / ipv6 hop_limit
  bool local = false;        // the destination is an address of this netdev
};

enum class NeighbourState : uint8_t { kUnknown, kResolving, kUsable, kStale, kFailed };

struct Neighbour {
  NeighbourState state = NeighbourState::kUnknown;
  wire::MacAddress mac{};  // valid in kUsable and kStale, else zero

  friend bool operator==(const Neighbour&, const Neighbour&) = default;
};

class NetView {
 public:
  // Throws std::system_error when netlink cannot be reached (set-up is the one place where exceptions are used).
  static std::unique_ptr<NetView> open();
  virtual ~NetView() = default;

  // Usable netdevs: Ethernet-like (ARPHRD_ETHER), not loopback, without a master (bond, bridge, team, VRF). With or
  // without addresses, up or down: the port state says it. Sorted by ifindex.
  virtual std::vector<Netdev> netdevs() = 0;
  virtual std::optional<Netdev> netdev(int index) = 0;

  // Asks the kernel (RTM_GETROUTE bound to the netdev): what `ip route get DEST oif DEV from SRC` answers, except
  // that a destination which no route of this netdev covers is not taken for on-link.
  // nullopt: no route, an unspecified, broadcast or anycast destination, netdev down or not usable; for IPv4 also a
  // source that is no address of this host. Multicast and link-local destinations are on-link. `source` may be
  // unspecified.
  virtual std::optional<Route> route(int netdev_index, const wire::IpAddress& source,
                                     const wire::IpAddress& destination) = 0;

  // The neighbour table's entry for an on-link address. Permanent and NOARP entries are usable; so is any address
  // on a netdev without ARP and, by its fixed mapping, a multicast group. kStale: the MAC address is good to send to
  // but not confirmed of late.
  virtual Neighbour neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Makes the kernel resolve or re-probe a neighbour (RTM_NEWNEIGH with NTF_USE; without CAP_NET_ADMIN by sending
  // an empty UDP datagram to its discard port). Returns at once; the outcome arrives as a change if neighbour() has
  // been asked for this address before.
  virtual void resolve_neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Readable when the kernel has news; then call process_changes().
  virtual int descriptor() const = 0;
  // Reads pending notifications without waiting. True if anything changed. A lost notification (ENOBUFS) leads to a
  // complete re-read inside.
  virtual bool process_changes() = 0;
  // Called after process_changes() has found something, in the thread that called it and without locks: one user of the
  // view reads what the kernel has to say, and all have to act on it. It must not use the view.
  void add_listener(const void* owner, std::function<void()> listener) {
    std::lock_guard guard(listeners_lock_);
    listeners_[owner] = std::move(listener);
  }
  void remove_listener(const void* owner) {
    std::lock_guard guard(listeners_lock_);
    listeners_.erase(owner);
  }
  // Goes up with every change of usable netdevs, their addresses, routes, rules, and the neighbours that neighbour()
  // has been asked for: a cheap test whether cached data is fresh. Read it before asking. Sysctls and path MTUs that
  // the kernel learns from ICMP are not announced, and seen by the next route().
  virtual uint64_t generation() const = 0;

 protected:
  void tell_listeners() {
    std::lock_guard guard(listeners_lock_);
    for (const auto& [owner, listener] : listeners_) listener();
  }

 private:
  std::mutex listeners_lock_;
  std::map<const void*, std::function<void()>> listeners_;
};

// The netdev that has `address`; not for link-local ones, which more than one netdev may have.
inline std::optional<Netdev> netdev_with(NetView& view, const wire::IpAddress& address) {
  const bool link_local = !address.is_v4() && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
  if (link_local) return std::nullopt;
  for (const Netdev& netdev : view.netdevs()) {
    if (std::find(netdev.addresses.begin(), netdev.addresses.end(), address) != netdev.addresses.end()) return netdev;
  }
  return std::nullopt;
}

}  // namespace uroce::net
