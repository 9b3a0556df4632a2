// SPDX-License-Identifier: BSD-2-Clause
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
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/net/next_hop.h"
#include "wire/envelope.h"

namespace uroce::net {

// What a netdev carries IP packets in.
enum class LinkType : uint8_t {
  kEthernet,  // frames with MAC addresses
  kIp,        // no MAC addresses: tun, WireGuard, ipip, GRE, IPoIB ...
  kLoopback,  // `lo`, which leads nowhere but to its own addresses
};

// One network device that can carry RoCE v2.
struct Netdev {
  int index = 0;     // ifindex
  std::string name;  // "eth0"
  LinkType type = LinkType::kEthernet;
  wire::MacAddress mac{};           // of Ethernet, else zero
  uint32_t mtu = 0;                 // bytes, L3
  bool up = false;                  // IFF_UP
  bool running = false;             // IFF_RUNNING / carrier: link is operational
  uint32_t speed_mbps = 0;          // from ethtool; 0 = unknown (veth says 10000)
  std::optional<uint16_t> vlan_id;  // of an 802.1Q netdev
  std::string kind;                 // of a virtual one: "veth", "bridge" ...
  bool in_vrf = false;              // routes are those of a VRF
  uint32_t gso_max_size = 0;        // frames of so many bytes are cut before the netdev gets them; 0 = unknown
  std::vector<std::string> vlans;   // names of the 802.1Q netdevs above it; those of other namespaces are not known
  // IPv4, then global IPv6, then link-local. Within a group in the kernel's order; for IPv6 that is the latest first.
  // Each address once. Tentative and dadfailed addresses are left out; deprecated ones stay, since what uses them goes
  // on (RFC 4862 section 5.5.4).
  std::vector<wire::IpAddress> addresses;
  // The same addresses at their places in the GID table, see gid_table(). An unspecified address is an empty place.
  std::vector<wire::IpAddress> gids;

  bool has(const wire::IpAddress& address) const {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  }
  friend bool operator==(const Netdev&, const Netdev&) = default;
};

// How a packet from `source` to `destination` leaves a netdev.
struct Route {
  wire::IpAddress next_hop;  // the destination itself when it is on-link
  uint32_t mtu = 0;          // path MTU in bytes the kernel knows for it, at most the netdev's
  uint8_t hop_limit = 64;    // from the route metric, else net.ipv4.ip_default_ttl / ipv6 hop_limit
  bool local = false;        // the destination is an address of this netdev
};

// Where packets to an address leave this host when nothing says more than the address.
struct Departure {
  int netdev_index = 0;    // `lo` for local ones; not necessarily one of netdevs()
  wire::IpAddress source;  // that the kernel gives them
  bool local = false;      // the destination is an address of this host
};

// The GID table for `addresses` after what it was before, as the kernel keeps its own: an address stays in its place as
// long as it is there, leaves the place empty when it goes, and a new one takes the first empty place. At first they
// come in order, so that processes which start with the same addresses agree.
inline std::vector<wire::IpAddress> gid_table(std::vector<wire::IpAddress> table,
                                              const std::vector<wire::IpAddress>& addresses) {
  const auto has = [](const std::vector<wire::IpAddress>& all, const wire::IpAddress& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  constexpr wire::IpAddress kEmpty{};
  for (wire::IpAddress& gid : table) {
    if (!has(addresses, gid)) gid = kEmpty;
  }
  for (const wire::IpAddress& address : addresses) {
    if (has(table, address)) continue;
    const auto place = std::find(table.begin(), table.end(), kEmpty);
    if (place == table.end()) {
      table.push_back(address);
    } else {
      *place = address;
    }
  }
  while (!table.empty() && table.back() == kEmpty) table.pop_back();
  return table;
}

// A range of addresses of one family; of IPv4 in the mapped form, 96 bits longer.
struct Prefix {
  static constexpr uint8_t kV4Bits = 96;

  wire::IpAddress address;
  uint8_t length = 0;  // bits

  bool covers(const wire::IpAddress& other) const {
    if (address.is_v4() != other.is_v4()) return false;
    const size_t whole = length / 8;
    if (!std::equal(other.bytes.begin(), other.bytes.begin() + whole, address.bytes.begin())) return false;
    return length % 8 == 0 || (other.bytes[whole] ^ address.bytes[whole]) >> (8 - length % 8) == 0;
  }
};

// What process_changes() has found.
struct News {
  bool netdevs = false;        // usable netdevs or their addresses
  bool all_routes = false;     // which of them is not known: rules, next hop objects, or too many to name
  bool next_hops = false;      // one that somebody waits for has been found, or has not (NextHop::await)
  std::vector<Prefix> routes;  // that came, went or changed; kMostRoutes at most

  static constexpr size_t kMostRoutes = 64;
  explicit operator bool() const { return netdevs || all_routes || next_hops || !routes.empty(); }
  bool concern_route_to(const wire::IpAddress& destination) const {
    return all_routes ||
           std::any_of(routes.begin(), routes.end(), [&](const Prefix& prefix) { return prefix.covers(destination); });
  }
  void add_route(const Prefix& prefix) {
    if (all_routes) return;
    if (routes.size() == kMostRoutes) return add_all_routes();
    try {
      routes.push_back(prefix);
    } catch (const std::bad_alloc&) {
      add_all_routes();
    }
  }
  void add_all_routes() {
    all_routes = true;
    routes.clear();
  }
  News& operator+=(const News& other) {
    netdevs |= other.netdevs;
    next_hops |= other.next_hops;
    if (other.all_routes) add_all_routes();
    for (const Prefix& prefix : other.routes) add_route(prefix);
    return *this;
  }
};

class NetlinkSocket;

// What has been read is kept until an answer to its end replaces it. An answer that the kernel marks as inconsistent,
// or that is lost, is asked for again: a few times at once, and then whenever process_changes() is called.
class NetView {
 public:
  // Throws std::system_error when netlink cannot be reached, or what is there cannot be read (set-up is the one place
  // where exceptions are used).
  static std::unique_ptr<NetView> open();
  // On these sockets, the first one not subscribed yet.
  static std::unique_ptr<NetView> open(std::unique_ptr<NetlinkSocket> notifications,
                                       std::unique_ptr<NetlinkSocket> requests);
  virtual ~NetView() = default;

  // Usable netdevs: those without a master, or with a VRF (whose own netdev is none) for it; not ports of bonds,
  // bridges, teams. With or without addresses, up or down: the port state says it. Sorted by ifindex.
  virtual std::vector<Netdev> netdevs() = 0;
  virtual std::optional<Netdev> netdev(int index) = 0;

  // Asks the kernel (RTM_GETROUTE bound to the netdev): what `ip route get DEST oif DEV from SRC` answers, except
  // that a destination which no route of this netdev covers is not taken for on-link.
  // nullopt: no route, an unspecified, broadcast or anycast destination, netdev down or not usable; for IPv4 also a
  // source that is no address of this host. Multicast and link-local destinations are on-link. `source` may be
  // unspecified. An address of `lo` is reached from `lo` only, which reaches no other.
  virtual std::optional<Route> route(int netdev_index, const wire::IpAddress& source,
                                     const wire::IpAddress& destination) = 0;

  // Asks the kernel what `ip route get DEST` answers. nullopt: there is no way there. A view without a kernel knows
  // none.
  virtual std::optional<Departure> departure(const wire::IpAddress& destination) {
    static_cast<void>(destination);
    return std::nullopt;
  }

  // The next hop as all who send to it share it, followed from now on. Asks the kernel if nobody holds it yet. What
  // it is now is what neighbour() says. A netdev that is not there has neighbours that are not known.
  virtual std::shared_ptr<NextHop> next_hop(int netdev_index, const wire::IpAddress& address) = 0;

  // The neighbour table's entry for an on-link address, asked for anew. Permanent and NOARP entries are usable; so is
  // any address on a netdev without ARP and, by its fixed mapping, a multicast group. kStale: the MAC address is good
  // to send to but not confirmed of late.
  virtual Neighbour neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Makes the kernel resolve or re-probe a neighbour (RTM_NEWNEIGH with NTF_USE; without CAP_NET_ADMIN by sending
  // an empty UDP datagram to its discard port). Returns at once; the outcome arrives as a change if neighbour() has
  // been asked for this address before.
  virtual void resolve_neighbour(int netdev_index, const wire::IpAddress& address) = 0;

  // Readable when the kernel has news; then call process_changes().
  virtual int descriptor() const = 0;
  // When to call it though nothing is readable, for an answer was not to be had before; kNever: not at all.
  virtual Time due() const { return kNever; }
  // Reads pending notifications without waiting. True if there was news. A lost notification (ENOBUFS) leads to a
  // complete re-read inside.
  virtual bool process_changes() = 0;
  // Called with what process_changes() has found, in the thread that called it and without locks of the view: one user
  // reads what the kernel has to say, and all have to act on it. It must not use the view or wait for anything.
  using Listener = std::function<void(const News&)>;
  void add_listener(const void* owner, Listener listener) {
    std::lock_guard guard(listeners_lock_);
    listeners_[owner] = std::move(listener);
  }
  void remove_listener(const void* owner) {
    std::lock_guard guard(listeners_lock_);
    listeners_.erase(owner);
  }
  // Goes up with every change of usable netdevs, their addresses, routes and rules: a cheap test whether what route()
  // has said is still so. Read it before asking. Path MTUs that the kernel learns from ICMP are not announced, and seen
  // by the next route(); sysctls are read anew when their netdev or an address changes.
  virtual uint64_t generation() const = 0;
  // Requests sent to the kernel so far.
  virtual uint64_t requests() const = 0;

 protected:
  void tell_listeners(const News& news) {
    std::lock_guard guard(listeners_lock_);
    for (const auto& [owner, listener] : listeners_) listener(news);
  }

 private:
  std::mutex listeners_lock_;
  std::map<const void*, Listener> listeners_;
};

// Why a view cannot be opened, and what to do about it, in one line.
std::string why_not_read(const std::system_error& error);

// What a process sees: the netdevs of the kernel, or the port whose addresses are in `port_file` (UROCE_DPDK_ADDRESSES,
// port_view.h; empty: none). Throws as NetView::open(), and std::runtime_error with a line for people where the file is
// wrong.
std::shared_ptr<NetView> open_view(const std::string& port_file);

// The netdev that has `address`; not for link-local ones, which more than one netdev may have.
inline std::optional<Netdev> netdev_with(NetView& view, const wire::IpAddress& address) {
  if (address.is_link_local()) return std::nullopt;
  for (const Netdev& netdev : view.netdevs()) {
    if (netdev.has(address)) return netdev;
  }
  return std::nullopt;
}

}  // namespace uroce::net
