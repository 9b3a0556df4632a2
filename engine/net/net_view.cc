// SPDX-License-Identifier: BSD-2-Clause
// NetView on two netlink sockets: one is subscribed to changes, the other asks. Links and addresses are kept, since
// they are few and wanted as a whole; routes and neighbours are asked for one by one, however many the host has.
#include "engine/net/net_view.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <linux/rtnetlink.h>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <new>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/concat.h"
#include "base/error.h"
#include "engine/net/multicast_mac.h"
#include "engine/net/netdev_settings.h"
#include "engine/net/netlink_socket.h"
#include "engine/net/rtnetlink.h"

namespace uroce::net {
namespace {

using wire::IpAddress;

// A dump is inconsistent when the table changes under it, and its end can be lost. So many attempts are made in a row,
// and the next after a pause that doubles from failure to failure.
constexpr int kDumpAttempts = 4;
constexpr Duration kShortestPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::seconds(1);

bool is_any(const IpAddress& address) {
  static constexpr uint8_t kZero[4] = {};
  return address.is_unspecified() || address == IpAddress::v4(kZero);
}

// Place of an address in the GID table, see Netdev::addresses.
int gid_group(const IpAddress& address) {
  return address.is_v4() ? 0 : address.is_link_local() ? 2 : 1;
}

// The kernel resolves the neighbour to which it has a packet to send. One to the discard port, empty, bound to the
// netdev, does what NTF_USE does, without privilege.
void send_discard_datagram(int netdev_index, const IpAddress& address) {
  int family = address.is_v4() ? AF_INET : AF_INET6;
  int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  constexpr int kDiscardPort = 9;
  constexpr int kOn = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &netdev_index, sizeof(netdev_index)) == 0 &&
      setsockopt(fd, SOL_SOCKET, SO_DONTROUTE, &kOn, sizeof(kOn)) == 0) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(kDiscardPort);
    std::memcpy(&v4.sin_addr, address.v4_bytes(), sizeof(v4.sin_addr));
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(kDiscardPort);
    v6.sin6_scope_id = static_cast<uint32_t>(netdev_index);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof(v6.sin6_addr));
    const void* to = address.is_v4() ? static_cast<const void*>(&v4) : &v6;
    // A failure shows as a neighbour that stays unresolved.
    (void)sendto(fd, nullptr, 0, 0, static_cast<const sockaddr*>(to), address.is_v4() ? sizeof(v4) : sizeof(v6));
  }
  close(fd);
}

class NetlinkView final : public NetView {
 public:
  NetlinkView(std::unique_ptr<NetlinkSocket> notifications, std::unique_ptr<NetlinkSocket> requests);

  std::vector<Netdev> netdevs() override;
  std::optional<Netdev> netdev(int index) override;
  std::optional<Route> route(int netdev_index, const IpAddress& source, const IpAddress& destination) override;
  std::optional<Departure> departure(const IpAddress& destination) override;
  std::shared_ptr<NextHop> next_hop(int netdev_index, const IpAddress& address) override;
  Neighbour neighbour(int netdev_index, const IpAddress& address) override;
  void resolve_neighbour(int netdev_index, const IpAddress& address) override;
  int descriptor() const override { return notifications_->descriptor(); }
  Time due() const override { return Time(Duration(due_.load(std::memory_order_relaxed))); }
  bool process_changes() override;
  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  uint64_t requests() const override { return request_count_.load(std::memory_order_relaxed); }

 private:
  struct Link {
    Netdev netdev;
    bool arp = true;
    bool operator==(const Link&) const = default;
  };
  struct Tables {
    std::map<int, Link> links;                        // the usable netdevs
    std::map<int, std::map<int, std::string>> vlans;  // by their lower netdev: names, by ifindex
    void clear() { *this = {}; }
  };

  // What a netdev's sysctls say about routes that have nothing of their own to say.
  struct Defaults {
    uint8_t ttl;
    uint8_t hop_limit;
    uint32_t ipv6_mtu;  // 0: that of the netdev
  };

  bool request(nl_msg& message, const NetlinkSocket::Handler& handler);
  template <class Table>
  bool dump(NlMessage (*make_request)(), Table& table, const NetlinkSocket::Handler& handler);
  bool apply_link(Tables& tables, const nlmsghdr& message);
  static bool apply_vlan(Tables& tables, const rtnetlink::Link& link, bool gone);
  bool read_addresses(std::map<int, Link>& links);
  bool read_neighbours();
  bool read_everything();
  void plan_next_attempt();
  News read_changes();
  void apply_notification(const nlmsghdr& message, News& news);
  void apply_neighbour(const nlmsghdr& message, News& news);
  Neighbour ask_neighbour(const Link& link, const IpAddress& address);
  static Neighbour seen_through(const Link& link, const Neighbour& neighbour);
  const Defaults& defaults_of(const Netdev& netdev);
  bool is_of_loopback(const IpAddress& address) const;
  std::optional<rtnetlink::RouteAnswer> ask_route(const Netdev& netdev, const IpAddress& source,
                                                  const IpAddress& destination);

  std::mutex mutex_;
  const std::unique_ptr<NetlinkSocket> notifications_;
  const std::unique_ptr<NetlinkSocket> requests_;
  std::atomic<uint64_t> request_count_{0};
  Tables tables_;
  std::map<int, Defaults> defaults_;  // of these, as far as somebody has needed them
  // What is to be read: it has changed, or could not be read before.
  bool everything_due_ = true;  // links and addresses
  bool addresses_due_ = false;
  bool neighbours_due_ = false;
  std::atomic<Time::rep> due_{kNever.time_since_epoch().count()};  // see due()
  Duration pause_{};                                               // before that; zero: nothing has failed
  NextHops next_hops_;
  std::atomic<uint64_t> generation_{1};
};

NetlinkView::NetlinkView(std::unique_ptr<NetlinkSocket> notifications, std::unique_ptr<NetlinkSocket> requests)
    : notifications_(std::move(notifications)), requests_(std::move(requests)) {
  // First subscribe, then read: nothing that changes in between is missed.
  static constexpr std::array kGroups = {
      RTNLGRP_LINK,       RTNLGRP_NEIGH,     RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
      RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,   RTNLGRP_NEXTHOP,     RTNLGRP_IPV6_IFINFO,
  };
  std::array<int, kGroups.size()> groups{};
  std::copy(kGroups.begin(), kGroups.end(), groups.begin());
  notifications_->subscribe(groups);
  if (!read_everything()) {
    throw std::system_error(EAGAIN, std::generic_category(), "netlink: no whole answer about netdevs and addresses");
  }
}

// --- links and addresses ----------------------------------------------------------------------------------------

bool NetlinkView::request(nl_msg& message, const NetlinkSocket::Handler& handler) {
  request_count_.fetch_add(1, std::memory_order_relaxed);
  return requests_->request(message, handler);
}

// False: no answer was whole, and what is in `table` is of no use.
template <class Table>
bool NetlinkView::dump(NlMessage (*make_request)(), Table& table, const NetlinkSocket::Handler& handler) {
  for (int attempt = 0; attempt < kDumpAttempts; ++attempt) {
    table.clear();
    const NlMessage message = make_request();
    if (request(*message, handler)) return true;
  }
  return false;
}

// Brings one netdev up to date in `tables`. True if that changed anything.
bool NetlinkView::apply_link(Tables& tables, const nlmsghdr& message) {
  auto link = rtnetlink::parse_link(message);
  if (!link) return false;
  std::map<int, Link>& links = tables.links;
  Netdev& now = link->netdev;
  const bool gone = message.nlmsg_type == RTM_DELLINK;
  const bool carries_others = apply_vlan(tables, *link, gone);
  if (gone || !link->usable) return links.erase(now.index) > 0 || carries_others;

  auto known = links.find(now.index);
  bool is_new = known == links.end();
  if (is_new) {
    addresses_due_ = true;
    if (const auto above = tables.vlans.find(now.index); above != tables.vlans.end()) {
      for (const auto& [index, name] : above->second) now.vlans.push_back(name);
    }
  } else {
    now.addresses = known->second.netdev.addresses;
    now.gids = known->second.netdev.gids;
    now.vlans = known->second.netdev.vlans;
    now.speed_mbps = known->second.netdev.speed_mbps;
  }
  // Asking a NIC for its speed may take it milliseconds, and it has a new one only with a new link.
  if (is_new || now.running != known->second.netdev.running) {
    now.speed_mbps = link_speed_mbps(requests_->descriptor(), now.name);
  }
  Link entry{std::move(now), link->arp};
  if (!is_new && known->second == entry) return carries_others;
  if (!is_new && (known->second.arp != entry.arp || known->second.netdev.mac != entry.netdev.mac)) {
    neighbours_due_ = true;
  }
  links.insert_or_assign(entry.netdev.index, std::move(entry));
  return true;
}

// A VLAN stands above its lower netdev all its life. True if that netdev is known and has others above it now.
bool NetlinkView::apply_vlan(Tables& tables, const rtnetlink::Link& link, bool gone) {
  if (link.vlan_lower == 0) return false;
  std::map<int, std::string>& above = tables.vlans[link.vlan_lower];
  const auto known = above.find(link.netdev.index);
  if (gone ? known == above.end() : known != above.end() && known->second == link.netdev.name) return false;
  const bool is_new = known == above.end();
  if (gone) {
    above.erase(known);
  } else {
    above.insert_or_assign(link.netdev.index, link.netdev.name);
  }
  const auto lower = tables.links.find(link.vlan_lower);
  if (lower == tables.links.end()) return false;
  std::vector<std::string>& names = lower->second.netdev.vlans;
  if (is_new) {  // a host may have thousands
    names.push_back(link.netdev.name);
    return true;
  }
  names.clear();
  for (const auto& [index, name] : above) names.push_back(name);
  return true;
}

bool NetlinkView::read_addresses(std::map<int, Link>& links) {
  std::map<int, std::vector<IpAddress>> addresses;
  auto add = [&](const nlmsghdr& message) {
    auto entry = rtnetlink::parse_address(message);
    if (!entry || !entry->usable) return;
    auto& list = addresses[entry->netdev_index];
    // One address may be there twice, with different prefix lengths; it is one GID.
    if (std::find(list.begin(), list.end(), entry->address) == list.end()) list.push_back(entry->address);
  };
  if (!dump(rtnetlink::dump_addresses, addresses, add)) return false;
  addresses_due_ = false;
  for (auto& [index, link] : links) {
    auto& list = addresses[index];
    // The kernel's dump comes in this order of groups already, but nothing promises it.
    std::stable_sort(list.begin(), list.end(),
                     [](const IpAddress& a, const IpAddress& b) { return gid_group(a) < gid_group(b); });
    const auto former = tables_.links.find(index);  // also where all is read anew
    link.netdev.gids =
        gid_table(former == tables_.links.end() ? std::vector<IpAddress>{} : former->second.netdev.gids, list);
    link.netdev.addresses = std::move(list);
  }
  return true;
}

bool NetlinkView::read_everything() {
  Tables tables;
  const auto add = [&](const nlmsghdr& message) { apply_link(tables, message); };
  if (!dump(rtnetlink::dump_links, tables, add) || !read_addresses(tables.links)) return false;
  tables_ = std::move(tables);
  everything_due_ = false;
  return true;
}

std::vector<Netdev> NetlinkView::netdevs() {
  std::lock_guard lock(mutex_);
  std::vector<Netdev> all;
  all.reserve(tables_.links.size());
  for (const auto& [index, link] : tables_.links) all.push_back(link.netdev);
  return all;
}

std::optional<Netdev> NetlinkView::netdev(int index) {
  std::lock_guard lock(mutex_);
  auto found = tables_.links.find(index);
  return found == tables_.links.end() ? std::nullopt : std::optional<Netdev>(found->second.netdev);
}

// --- routes -----------------------------------------------------------------------------------------------------

std::optional<rtnetlink::RouteAnswer> NetlinkView::ask_route(const Netdev& netdev, const IpAddress& source,
                                                             const IpAddress& destination) {
  std::optional<rtnetlink::RouteAnswer> answer;
  const NlMessage message = rtnetlink::get_route(netdev.index, source, destination);
  if (!request(*message, [&](const nlmsghdr& reply) { answer = rtnetlink::parse_route(reply); })) return {};
  return answer;
}

const NetlinkView::Defaults& NetlinkView::defaults_of(const Netdev& netdev) {
  const auto found = defaults_.find(netdev.index);
  if (found != defaults_.end()) return found->second;
  const Defaults defaults{default_ttl(), default_hop_limit(netdev.name), ipv6_mtu(netdev.name)};
  return defaults_.emplace(netdev.index, defaults).first->second;
}

// An address that only `lo` has.
bool NetlinkView::is_of_loopback(const IpAddress& address) const {
  return std::any_of(tables_.links.begin(), tables_.links.end(), [&](const auto& entry) {
    const Netdev& netdev = entry.second.netdev;
    return netdev.type == LinkType::kLoopback && netdev.has(address);
  });
}

std::optional<Route> NetlinkView::route(int netdev_index, const IpAddress& source, const IpAddress& destination) {
  if (is_any(destination)) return std::nullopt;  // the kernel would take it for this host
  std::lock_guard lock(mutex_);
  auto found = tables_.links.find(netdev_index);
  if (found == tables_.links.end()) return std::nullopt;
  const Netdev& netdev = found->second.netdev;
  if (is_of_loopback(destination) != (netdev.type == LinkType::kLoopback)) return std::nullopt;

  auto answer = ask_route(netdev, source, destination);
  // With a source address IPv6 takes the netdev as a preference only, and local delivery is through `lo` whatever
  // netdev has the address. Without one it is as strict as IPv4.
  bool elsewhere = answer && answer->output_index != netdev.index;
  if (elsewhere && !destination.is_v4()) answer = ask_route(netdev, IpAddress{}, destination);
  if (!answer) return std::nullopt;

  bool local = answer->type == RTN_LOCAL;
  if (answer->output_index != netdev.index && !local) return std::nullopt;
  if (answer->type != RTN_UNICAST && answer->type != RTN_MULTICAST && !local) return std::nullopt;
  // Told the netdev, IPv4 assumes a unicast destination without a route (or with a blackhole) to be on-link.
  if (answer->type == RTN_UNICAST && answer->table == RT_TABLE_UNSPEC) return std::nullopt;

  Route route;
  route.local = local;
  route.next_hop = answer->gateway && !destination.is_multicast() ? *answer->gateway : destination;
  route.mtu = netdev.mtu;
  const Defaults& defaults = defaults_of(netdev);
  if (!destination.is_v4() && defaults.ipv6_mtu != 0) route.mtu = std::min(route.mtu, defaults.ipv6_mtu);
  if (answer->mtu != 0) route.mtu = std::min(route.mtu, answer->mtu);
  if (answer->hop_limit >= 1 && answer->hop_limit <= 255) {
    route.hop_limit = static_cast<uint8_t>(answer->hop_limit);
  } else {
    route.hop_limit = destination.is_v4() ? defaults.ttl : defaults.hop_limit;
  }
  return route;
}

std::optional<Departure> NetlinkView::departure(const IpAddress& destination) {
  if (is_any(destination)) return std::nullopt;
  std::lock_guard lock(mutex_);
  std::optional<rtnetlink::RouteAnswer> answer;
  const NlMessage message = rtnetlink::get_route(0, IpAddress{}, destination);
  if (!request(*message, [&](const nlmsghdr& reply) { answer = rtnetlink::parse_route(reply); })) return std::nullopt;
  if (!answer || !answer->source) return std::nullopt;
  const bool local = answer->type == RTN_LOCAL;
  if (answer->type != RTN_UNICAST && answer->type != RTN_MULTICAST && !local) return std::nullopt;
  return Departure{answer->output_index, *answer->source, local};
}

// --- neighbours -------------------------------------------------------------------------------------------------

// Without ARP every frame that the kernel sends where it knows no neighbour has the netdev's own address; without MAC
// addresses there is nothing to find out.
Neighbour NetlinkView::seen_through(const Link& link, const Neighbour& neighbour) {
  if (link.netdev.type != LinkType::kEthernet) return {NeighbourState::kUsable, {}};
  if (neighbour.state != NeighbourState::kUnknown || link.arp) return neighbour;
  return {NeighbourState::kUsable, link.netdev.mac};
}

Neighbour NetlinkView::ask_neighbour(const Link& link, const IpAddress& address) {
  Neighbour answer;
  const NlMessage message = rtnetlink::get_neighbour(link.netdev.index, address);
  request(*message, [&](const nlmsghdr& reply) {
    if (auto entry = rtnetlink::parse_neighbour(reply)) answer = entry->neighbour;
  });
  return seen_through(link, answer);
}

std::shared_ptr<NextHop> NetlinkView::next_hop(int netdev_index, const IpAddress& address) {
  if (address.is_multicast()) {
    return std::make_shared<NextHop>(netdev_index, address, Neighbour{NeighbourState::kUsable, multicast_mac(address)});
  }
  std::lock_guard lock(mutex_);
  if (auto known = next_hops_.find(netdev_index, address)) return known;
  const auto link = tables_.links.find(netdev_index);
  const Neighbour now = link == tables_.links.end() ? Neighbour{} : ask_neighbour(link->second, address);
  return next_hops_.add(netdev_index, address, now);
}

Neighbour NetlinkView::neighbour(int netdev_index, const IpAddress& address) {
  if (address.is_multicast()) return {NeighbourState::kUsable, multicast_mac(address)};
  News news;
  Neighbour answer;
  {
    std::lock_guard lock(mutex_);
    const auto link = tables_.links.find(netdev_index);
    if (link == tables_.links.end()) return {};
    answer = ask_neighbour(link->second, address);
    if (const auto hop = next_hops_.find(netdev_index, address)) news.next_hops = hop->set(answer);
  }
  if (news) tell_listeners(news);
  return answer;
}

void NetlinkView::resolve_neighbour(int netdev_index, const IpAddress& address) {
  std::lock_guard lock(mutex_);
  const NlMessage message = rtnetlink::use_neighbour(netdev_index, address);
  if (!request(*message, [](const nlmsghdr&) {})) send_discard_datagram(netdev_index, address);
}

// All at once, for those that somebody holds. One that the kernel does not name it does not know.
bool NetlinkView::read_neighbours() {
  if (next_hops_.size() > 0) {
    std::map<std::pair<int, std::array<uint8_t, 16>>, Neighbour> known;
    const auto add = [&](const nlmsghdr& message) {
      if (auto entry = rtnetlink::parse_neighbour(message)) {
        known[{entry->netdev_index, entry->address.bytes}] = entry->neighbour;
      }
    };
    if (!dump(rtnetlink::dump_neighbours, known, add)) return false;
    next_hops_.for_each([&](NextHop& hop) {
      const auto found = known.find({hop.netdev_index, hop.address.bytes});
      const Neighbour now = found == known.end() ? Neighbour{} : found->second;
      const auto link = tables_.links.find(hop.netdev_index);
      hop.set(link == tables_.links.end() ? Neighbour{} : seen_through(link->second, now));
    });
  }
  neighbours_due_ = false;
  return true;
}

// --- changes ----------------------------------------------------------------------------------------------------

void NetlinkView::apply_neighbour(const nlmsghdr& message, News& news) {
  const auto entry = rtnetlink::parse_neighbour(message);
  if (!entry) return;
  // Changes of others are of no interest: on a large segment the kernel reports some all the time.
  const auto hop = next_hops_.find(entry->netdev_index, entry->address);
  const auto link = tables_.links.find(entry->netdev_index);
  if (hop && link != tables_.links.end()) news.next_hops |= hop->set(seen_through(link->second, entry->neighbour));
}

void NetlinkView::apply_notification(const nlmsghdr& message, News& news) {
  switch (message.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      if (const auto netdev_index = rtnetlink::parse_ipv6_settings(message)) {
        defaults_.erase(*netdev_index);
        news.add_all_routes();
      } else {
        news.netdevs |= apply_link(tables_, message);
      }
      break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
      // The order of addresses is the kernel's, which a notification does not tell.
      addresses_due_ = true;
      break;
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
      apply_neighbour(message, news);
      break;
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
      if (const auto prefix = rtnetlink::parse_route_prefix(message)) news.add_route(*prefix);
      break;
    default:  // a rule or next hop object
      news.add_all_routes();
  }
}

bool NetlinkView::process_changes() {
  News news;
  bool is_due = false;
  {
    std::unique_lock lock(mutex_);
    try {
      news = read_changes();
      is_due = due() != kNever;
    } catch (const std::bad_alloc&) {
      everything_due_ = neighbours_due_ = true;
      plan_next_attempt();
      lock.unlock();
      tell_listeners({});
      throw;
    }
    if (news.netdevs || news.all_routes || !news.routes.empty()) generation_.fetch_add(1, std::memory_order_acq_rel);
  }
  // Who sleeps until something is due hears of that, too: this may be another thread, and has taken what woke it.
  if (news || is_due) tell_listeners(news);
  return static_cast<bool>(news);
}

News NetlinkView::read_changes() {
  News news;
  const auto drained = notifications_->drain([&](const nlmsghdr& message) { apply_notification(message, news); });
  if (drained == NetlinkSocket::Drained::kOverrun) everything_due_ = neighbours_due_ = true;
  if (everything_due_) {
    if (read_everything()) {
      news.netdevs = true;
      news.add_all_routes();  // they may have changed unseen
    }
  } else if (addresses_due_) {
    const std::map<int, Link> former = tables_.links;
    if (read_addresses(tables_.links)) news.netdevs |= tables_.links != former;
  }
  if (neighbours_due_ && read_neighbours()) news.next_hops = true;
  plan_next_attempt();
  if (news.netdevs) defaults_.clear();
  return news;
}

// What could not be read does not announce itself.
void NetlinkView::plan_next_attempt() {
  if (!everything_due_ && !addresses_due_ && !neighbours_due_) {
    pause_ = {};
    due_.store(kNever.time_since_epoch().count(), std::memory_order_relaxed);
    return;
  }
  pause_ = std::clamp(2 * pause_, kShortestPause, kLongestPause);
  due_.store((monotonic_now() + pause_).time_since_epoch().count(), std::memory_order_relaxed);
}

}  // namespace

std::string why_not_read(const std::system_error& error) {
  const int code = error.code().value();
  std::string remedy = "see whether ip address show works here";
  if (code == EAFNOSUPPORT || code == EPERM || code == EACCES) {
    remedy =
        "netlink sockets are not allowed: a systemd unit needs AF_NETLINK in its RestrictAddressFamilies=, a container "
        "a seccomp profile that has socket(AF_NETLINK)";
  }
  return concat("cannot read the network configuration: ", error.what(), "; ", io::remedy_for(code, std::move(remedy)));
}

std::unique_ptr<NetView> NetView::open() {
  return open(std::make_unique<NetlinkSocket>(), std::make_unique<NetlinkSocket>());
}

std::unique_ptr<NetView> NetView::open(std::unique_ptr<NetlinkSocket> notifications,
                                       std::unique_ptr<NetlinkSocket> requests) {
  return std::make_unique<NetlinkView>(std::move(notifications), std::move(requests));
}

}  // namespace uroce::net
