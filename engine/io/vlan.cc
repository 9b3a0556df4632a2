#include "engine/io/vlan.h"

#include <algorithm>
#include <cstring>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/io/netdev_query.h"

namespace uroce::io {
namespace {

using Bytes = std::span<const uint8_t>;

// Takes one message, or one attribute, from the front of `bytes`: its header, which says how long it is, and what it
// holds. False: there is none that fits.
template <class Header, class LengthOf>
bool take(Bytes& bytes, LengthOf length_of, Header& header, Bytes& content) {
  const auto aligned = [](size_t size) { return (size + 3) & ~size_t{3}; };
  if (bytes.size() < sizeof(Header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t length = length_of(header);
  if (length < aligned(sizeof(Header)) || length > bytes.size()) return false;
  content = bytes.first(length).subspan(aligned(sizeof(Header)));
  bytes = bytes.subspan(std::min(bytes.size(), aligned(length)));
  return true;
}

// The content of the first attribute of a type; empty: there is none.
Bytes attribute(Bytes attributes, uint16_t type) {
  rtattr header;
  Bytes content;
  while (take(
      attributes, [](const rtattr& a) { return a.rta_len; }, header, content)) {
    if ((header.rta_type & NLA_TYPE_MASK) == type) return content;
  }
  return {};
}

std::string_view text(Bytes bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.substr(0, all.find('\0'));
}

// The netdev's name, if it is a VLAN above netdev `ifindex`; else empty.
std::string_view vlan_above(Bytes link, int ifindex) {
  if (link.size() < sizeof(ifinfomsg)) return {};
  const Bytes attributes = link.subspan(sizeof(ifinfomsg));
  const Bytes lower = attribute(attributes, IFLA_LINK);
  int lower_index = 0;
  if (lower.size() < sizeof(lower_index)) return {};
  std::memcpy(&lower_index, lower.data(), sizeof(lower_index));
  // With a namespace's number, the index is of that namespace.
  if (lower_index != ifindex || !attribute(attributes, IFLA_LINK_NETNSID).empty()) return {};
  if (text(attribute(attribute(attributes, IFLA_LINKINFO), IFLA_INFO_KIND)) != "vlan") return {};
  return text(attribute(attributes, IFLA_IFNAME));
}

bool ask_for_links(int socket) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  return send(socket, &request, sizeof(request), 0) == sizeof(request);
}

}  // namespace

bool read_vlans_above(std::span<const uint8_t> answer, int ifindex, std::vector<std::string>& names) {
  nlmsghdr header;
  Bytes content;
  while (take(
      answer, [](const nlmsghdr& m) { return m.nlmsg_len; }, header, content)) {
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return false;
    if (header.nlmsg_type != RTM_NEWLINK) continue;
    const std::string_view name = vlan_above(content, ifindex);
    if (!name.empty()) names.emplace_back(name);
  }
  return true;
}

std::vector<std::string> vlans_with_hidden_tags(const std::string& netdev, int ifindex) {
  std::vector<std::string> names;
  if (!strips_vlan_tags(netdev)) return names;
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return names;
  if (ask_for_links(fd)) {
    std::vector<uint8_t> part(size_t{1} << 16);  // the kernel makes none larger than 32 KiB
    ssize_t size;
    do {
      size = recv(fd, part.data(), part.size(), 0);
    } while (size > 0 && read_vlans_above(Bytes(part).first(static_cast<size_t>(size)), ifindex, names));
  }
  close(fd);
  return names;
}

}  // namespace uroce::io
