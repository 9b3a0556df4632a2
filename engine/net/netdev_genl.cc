// SPDX-License-Identifier: BSD-2-Clause
#include "engine/net/netdev_genl.h"

#include <linux/genetlink.h>
#include <netlink/attr.h>
#include <new>
#include <system_error>

#include "engine/net/netlink_socket.h"

namespace uroce::net {
namespace {

// From <linux/netdev.h> of Linux 6.3.
constexpr uint8_t kCommandDevGet = 1;
constexpr int kAttributeIfindex = 1;
constexpr int kAttributeXdpFeatures = 3;

NlMessage make_request(uint16_t family, uint8_t command) {
  NlMessage message(nlmsg_alloc_simple(family, NLM_F_REQUEST));
  genlmsghdr header{.cmd = command, .version = 1, .reserved = 0};
  if (!message || nlmsg_append(message.get(), &header, sizeof(header), NLMSG_ALIGNTO) != 0) throw std::bad_alloc();
  return message;
}

// The number in the answer's attribute of that type; nullopt: there is none of that size.
template <class Value>
std::optional<Value> ask(NetlinkSocket& socket, nl_msg& request, int attribute) {
  std::optional<Value> value;
  const auto read = [&](const nlmsghdr& answer) {
    auto* header = const_cast<nlmsghdr*>(&answer);  // libnl takes no const, and does not write
    if (!nlmsg_valid_hdr(header, sizeof(genlmsghdr))) return;
    const nlattr* found = nlmsg_find_attr(header, sizeof(genlmsghdr), attribute);
    Value number;
    if (found != nullptr && nla_memcpy(&number, found, sizeof(number)) == sizeof(number)) value = number;
  };
  return socket.request(request, read) ? value : std::nullopt;
}

std::optional<uint64_t> ask_features(int ifindex) {
  NetlinkSocket socket(NETLINK_GENERIC);
  const NlMessage get_family = make_request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
  nla_put_string(get_family.get(), CTRL_ATTR_FAMILY_NAME, "netdev");
  const auto family = ask<uint16_t>(socket, *get_family, CTRL_ATTR_FAMILY_ID);
  if (!family) return std::nullopt;
  const NlMessage get_netdev = make_request(*family, kCommandDevGet);
  nla_put_u32(get_netdev.get(), kAttributeIfindex, static_cast<uint32_t>(ifindex));
  return ask<uint64_t>(socket, *get_netdev, kAttributeXdpFeatures);
}

}  // namespace

std::optional<uint64_t> query_xdp_features(int ifindex) {
  try {
    return ask_features(ifindex);
  } catch (const std::system_error&) {  // no such socket here
    return std::nullopt;
  }
}

}  // namespace uroce::net
