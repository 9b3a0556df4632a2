// SPDX-License-Identifier: BSD-2-Clause
// See rtnetlink.h. Attribute names and meanings: Linux rtnetlink(7) and the uapi headers if_link.h, if_addr.h,
// rtnetlink.h and neighbour.h.
#include "engine/net/rtnetlink.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netlink/attr.h>
#include <new>
#include <sys/socket.h>

namespace uroce::net::rtnetlink {
namespace {

using wire::IpAddress;
using wire::MacAddress;

template <int kMax>
using Attributes = std::array<nlattr*, kMax + 1>;

uint8_t family_of(const IpAddress& address) {
  return address.is_v4() ? AF_INET : AF_INET6;
}

template <typename Header>
NlMessage make_request(int type, int flags, const Header& header) {
  // No request below comes near it: only memory can run out. libnl's own default is there only after its constructor,
  // and abi/preload/ asks when other libraries' constructors look for devices.
  constexpr size_t kRoom = 4096;
  NlMessage message(nlmsg_alloc_size(kRoom));
  Header copy = header;
  if (!message || nlmsg_put(message.get(), NL_AUTO_PORT, NL_AUTO_SEQ, type, 0, NLM_F_REQUEST | flags) == nullptr ||
      nlmsg_append(message.get(), &copy, sizeof(copy), NLMSG_ALIGNTO) < 0) {
    throw std::bad_alloc();
  }
  return message;
}

void put_address(nl_msg& message, int attribute, const IpAddress& address) {
  if (address.is_v4()) {
    nla_put(&message, attribute, 4, address.v4_bytes());
  } else {
    nla_put(&message, attribute, 16, address.bytes.data());
  }
}

// The header of a message of one of the expected types and its attributes; null when it is something else.
template <typename Header, int kMax>
const Header* parse(const nlmsghdr& message, Attributes<kMax>& attributes) {
  auto* header = const_cast<nlmsghdr*>(&message);  // libnl takes no const, and does not write
  if (!nlmsg_valid_hdr(header, sizeof(Header))) return nullptr;
  if (nlmsg_parse(header, sizeof(Header), attributes.data(), kMax, nullptr) < 0) return nullptr;
  return static_cast<const Header*>(nlmsg_data(header));
}

std::optional<IpAddress> read_address(int family, const void* bytes, int length) {
  const auto* data = static_cast<const uint8_t*>(bytes);
  if (family == AF_INET && length >= 4) return IpAddress::v4(data);
  if (family == AF_INET6 && length >= 16) return IpAddress::v6(data);
  return std::nullopt;
}

std::optional<IpAddress> read_address(int family, const nlattr* attribute) {
  if (attribute == nullptr) return std::nullopt;
  return read_address(family, nla_data(attribute), nla_len(attribute));
}

std::optional<uint32_t> read_u32(const nlattr* attribute) {
  if (attribute == nullptr || nla_len(attribute) < 4) return std::nullopt;
  return nla_get_u32(attribute);
}

std::optional<MacAddress> read_mac(const nlattr* attribute) {
  MacAddress mac;
  if (attribute == nullptr || nla_len(attribute) != static_cast<int>(mac.size())) return std::nullopt;
  std::memcpy(mac.data(), nla_data(attribute), mac.size());
  return mac;
}

// Ends with a null byte or the attribute.
std::string read_text(const nlattr* attribute) {
  const auto* text = static_cast<const char*>(nla_data(attribute));
  return {text, strnlen(text, static_cast<size_t>(nla_len(attribute)))};
}

// "veth", "bridge" ..., from IFLA_LINKINFO; empty where there is hardware.
std::string read_kind(nlattr* link_info) {
  Attributes<IFLA_INFO_MAX> info{};
  if (link_info == nullptr || nla_parse_nested(info.data(), IFLA_INFO_MAX, link_info, nullptr) < 0) return {};
  return info[IFLA_INFO_KIND] == nullptr ? std::string() : read_text(info[IFLA_INFO_KIND]);
}

// What the netdev is to its master: "vrf", "bridge" ..., from IFLA_LINKINFO; empty where that is not said.
std::string read_port_kind(nlattr* link_info) {
  Attributes<IFLA_INFO_MAX> info{};
  if (link_info == nullptr || nla_parse_nested(info.data(), IFLA_INFO_MAX, link_info, nullptr) < 0) return {};
  return info[IFLA_INFO_SLAVE_KIND] == nullptr ? std::string() : read_text(info[IFLA_INFO_SLAVE_KIND]);
}

// The VLAN of an 802.1Q netdev, from IFLA_LINKINFO.
std::optional<uint16_t> read_vlan_id(nlattr* link_info) {
  Attributes<IFLA_INFO_MAX> info{};
  Attributes<IFLA_VLAN_MAX> vlan{};
  if (link_info == nullptr || nla_parse_nested(info.data(), IFLA_INFO_MAX, link_info, nullptr) < 0) return {};
  if (info[IFLA_INFO_KIND] == nullptr || nla_strcmp(info[IFLA_INFO_KIND], "vlan") != 0) return {};
  nlattr* data = info[IFLA_INFO_DATA];
  if (data == nullptr || nla_parse_nested(vlan.data(), IFLA_VLAN_MAX, data, nullptr) < 0) return {};
  if (vlan[IFLA_VLAN_ID] == nullptr || nla_len(vlan[IFLA_VLAN_ID]) < 2) return {};
  return nla_get_u16(vlan[IFLA_VLAN_ID]);
}

// Of Linux 6.3: before, IFLA_GSO_MAX_SIZE is for both IP versions.
constexpr int kGsoIpv4MaxSize = 63;
constexpr int kLastLinkAttribute = std::max<int>(IFLA_MAX, kGsoIpv4MaxSize);
using LinkAttributes = Attributes<kLastLinkAttribute>;

// The smaller one of those for IPv4 and IPv6.
uint32_t read_gso_max_size(const LinkAttributes& link) {
  const uint32_t size = read_u32(link[IFLA_GSO_MAX_SIZE]).value_or(0);
  return std::min(size, read_u32(link[kGsoIpv4MaxSize]).value_or(size));
}

NeighbourState neighbour_state(uint16_t nud) {
  if (nud & (NUD_REACHABLE | NUD_PERMANENT | NUD_NOARP)) return NeighbourState::kUsable;
  if (nud & (NUD_STALE | NUD_DELAY | NUD_PROBE)) return NeighbourState::kStale;
  if (nud & NUD_INCOMPLETE) return NeighbourState::kResolving;
  if (nud & NUD_FAILED) return NeighbourState::kFailed;
  return NeighbourState::kUnknown;
}

}  // namespace

NlMessage dump_links() {
  NlMessage message = make_request(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{});
  nla_put_u32(message.get(), IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
  return message;
}

NlMessage dump_addresses() {
  return make_request(RTM_GETADDR, NLM_F_DUMP, ifaddrmsg{});
}

NlMessage get_route(int netdev_index, const IpAddress& source, const IpAddress& destination) {
  rtmsg header{};
  header.rtm_family = family_of(destination);
  header.rtm_dst_len = destination.is_v4() ? 32 : 128;
  header.rtm_flags = RTM_F_LOOKUP_TABLE;
  bool with_source = !source.is_unspecified() && source.is_v4() == destination.is_v4();
  header.rtm_src_len = with_source ? header.rtm_dst_len : 0;
  NlMessage message = make_request(RTM_GETROUTE, 0, header);
  put_address(*message, RTA_DST, destination);
  if (with_source) put_address(*message, RTA_SRC, source);
  if (netdev_index != 0) nla_put_u32(message.get(), RTA_OIF, static_cast<uint32_t>(netdev_index));
  return message;
}

NlMessage dump_neighbours() {
  return make_request(RTM_GETNEIGH, NLM_F_DUMP, ndmsg{});
}

NlMessage get_neighbour(int netdev_index, const IpAddress& address) {
  ndmsg header{};
  header.ndm_family = family_of(address);
  header.ndm_ifindex = netdev_index;
  NlMessage message = make_request(RTM_GETNEIGH, 0, header);
  put_address(*message, NDA_DST, address);
  return message;
}

NlMessage use_neighbour(int netdev_index, const IpAddress& address) {
  ndmsg header{};
  header.ndm_family = family_of(address);
  header.ndm_ifindex = netdev_index;
  header.ndm_flags = NTF_USE;
  NlMessage message = make_request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, header);
  put_address(*message, NDA_DST, address);
  return message;
}

std::optional<Link> parse_link(const nlmsghdr& message) {
  LinkAttributes attributes{};
  const auto* header = parse<ifinfomsg, kLastLinkAttribute>(message, attributes);
  if (header == nullptr || header->ifi_family != AF_UNSPEC) return std::nullopt;
  auto mtu = read_u32(attributes[IFLA_MTU]);
  if (!mtu || attributes[IFLA_IFNAME] == nullptr) return std::nullopt;

  Link link;
  link.netdev.index = header->ifi_index;
  link.netdev.name = read_text(attributes[IFLA_IFNAME]);
  link.netdev.mtu = *mtu;
  link.netdev.up = (header->ifi_flags & IFF_UP) != 0;
  link.netdev.running = (header->ifi_flags & IFF_RUNNING) != 0;
  const auto mac = header->ifi_type == ARPHRD_ETHER ? read_mac(attributes[IFLA_ADDRESS]) : std::nullopt;
  if (mac) link.netdev.mac = *mac;
  link.netdev.type = (header->ifi_flags & IFF_LOOPBACK) != 0 ? LinkType::kLoopback
                     : mac                                   ? LinkType::kEthernet
                                                             : LinkType::kIp;
  link.netdev.vlan_id = read_vlan_id(attributes[IFLA_LINKINFO]);
  link.netdev.kind = read_kind(attributes[IFLA_LINKINFO]);
  link.netdev.gso_max_size = read_gso_max_size(attributes);
  // With a namespace's number IFLA_LINK is an index of that namespace.
  if (link.netdev.kind == "vlan" && attributes[IFLA_LINK_NETNSID] == nullptr) {
    link.vlan_lower = static_cast<int>(read_u32(attributes[IFLA_LINK]).value_or(0));
  }
  // A VRF is a routing table: what is in it sends and receives by itself.
  const bool has_master = read_u32(attributes[IFLA_MASTER]).value_or(0) != 0;
  link.netdev.in_vrf = has_master && read_port_kind(attributes[IFLA_LINKINFO]) == "vrf";
  link.usable = link.netdev.kind != "vrf" && (!has_master || link.netdev.in_vrf);
  link.arp = (header->ifi_flags & IFF_NOARP) == 0;
  return link;
}

std::optional<int> parse_ipv6_settings(const nlmsghdr& message) {
  Attributes<IFLA_MAX> attributes{};
  const auto* header = parse<ifinfomsg, IFLA_MAX>(message, attributes);
  if (header == nullptr || header->ifi_family != AF_INET6) return std::nullopt;
  return header->ifi_index;
}

std::optional<Address> parse_address(const nlmsghdr& message) {
  Attributes<IFA_MAX> attributes{};
  const auto* header = parse<ifaddrmsg, IFA_MAX>(message, attributes);
  if (header == nullptr) return std::nullopt;
  // On a point-to-point link IFA_ADDRESS is the peer's address, and IFA_LOCAL ours.
  auto address = read_address(header->ifa_family, attributes[IFA_LOCAL]);
  if (!address) address = read_address(header->ifa_family, attributes[IFA_ADDRESS]);
  if (!address) return std::nullopt;
  uint32_t flags = read_u32(attributes[IFA_FLAGS]).value_or(header->ifa_flags);
  bool tentative = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
  return Address{static_cast<int>(header->ifa_index), *address, !tentative && (flags & IFA_F_DADFAILED) == 0};
}

std::optional<RouteAnswer> parse_route(const nlmsghdr& message) {
  Attributes<RTA_MAX> attributes{};
  const auto* header = parse<rtmsg, RTA_MAX>(message, attributes);
  if (header == nullptr) return std::nullopt;
  RouteAnswer answer;
  answer.type = header->rtm_type;
  answer.table = read_u32(attributes[RTA_TABLE]).value_or(header->rtm_table);
  answer.output_index = static_cast<int>(read_u32(attributes[RTA_OIF]).value_or(0));
  answer.gateway = read_address(header->rtm_family, attributes[RTA_GATEWAY]);
  answer.source = read_address(header->rtm_family, attributes[RTA_PREFSRC]);
  if (nlattr* via = attributes[RTA_VIA]; via != nullptr && nla_len(via) > static_cast<int>(sizeof(rtvia))) {
    const auto* next = static_cast<const rtvia*>(nla_data(via));  // a gateway of another family: IPv4 via IPv6
    answer.gateway = read_address(next->rtvia_family, next->rtvia_addr, nla_len(via) - static_cast<int>(sizeof(rtvia)));
  }
  if (attributes[RTA_METRICS] != nullptr) {
    Attributes<RTAX_MAX> metrics{};
    if (nla_parse_nested(metrics.data(), RTAX_MAX, attributes[RTA_METRICS], nullptr) >= 0) {
      answer.mtu = read_u32(metrics[RTAX_MTU]).value_or(0);
      answer.hop_limit = read_u32(metrics[RTAX_HOPLIMIT]).value_or(0);
    }
  }
  return answer;
}

std::optional<Prefix> parse_route_prefix(const nlmsghdr& message) {
  Attributes<RTA_MAX> attributes{};
  if (message.nlmsg_type != RTM_NEWROUTE && message.nlmsg_type != RTM_DELROUTE) return std::nullopt;
  const auto* header = parse<rtmsg, RTA_MAX>(message, attributes);
  if (header == nullptr || (header->rtm_family != AF_INET && header->rtm_family != AF_INET6)) return std::nullopt;
  const bool v4 = header->rtm_family == AF_INET;
  if (header->rtm_dst_len > (v4 ? 32 : 128)) return std::nullopt;
  // A default route is for all of its family and names no address.
  constexpr uint8_t kZero[4] = {};
  const IpAddress all = v4 ? IpAddress::v4(kZero) : IpAddress{};
  const auto address = read_address(header->rtm_family, attributes[RTA_DST]);
  if (!address && header->rtm_dst_len != 0) return std::nullopt;
  return Prefix{address.value_or(all), static_cast<uint8_t>(header->rtm_dst_len + (v4 ? Prefix::kV4Bits : 0))};
}

std::optional<NeighbourEntry> parse_neighbour(const nlmsghdr& message) {
  Attributes<NDA_MAX> attributes{};
  const auto* header = parse<ndmsg, NDA_MAX>(message, attributes);
  if (header == nullptr || (header->ndm_flags & NTF_PROXY) != 0) return std::nullopt;
  auto address = read_address(header->ndm_family, attributes[NDA_DST]);
  if (!address) return std::nullopt;
  NeighbourEntry entry{header->ndm_ifindex, *address, {}};
  if (message.nlmsg_type == RTM_DELNEIGH) return entry;
  entry.neighbour.state = neighbour_state(header->ndm_state);
  if (entry.neighbour.state == NeighbourState::kUsable || entry.neighbour.state == NeighbourState::kStale) {
    auto mac = read_mac(attributes[NDA_LLADDR]);
    if (!mac) return std::nullopt;  // no Ethernet neighbour
    entry.neighbour.mac = *mac;
  }
  return entry;
}

}  // namespace uroce::net::rtnetlink
