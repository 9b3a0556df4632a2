// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <string>
#include <vector>

namespace uroce::net {

// One RTM_NEWLINK message, built by hand: not every kernel can make all kinds of netdevs.
class LinkMessage {
 public:
  explicit LinkMessage(int index = 7, const std::string& name = "eth0.42", uint16_t type = ARPHRD_ETHER,
                       uint32_t flags = 0) {
    header()->nlmsg_len = NLMSG_LENGTH(sizeof(ifinfomsg));
    header()->nlmsg_type = RTM_NEWLINK;
    auto* info = static_cast<ifinfomsg*>(NLMSG_DATA(header()));
    info->ifi_index = index;
    info->ifi_type = type;
    info->ifi_flags = flags;
    const uint32_t mtu = 1500;
    put(IFLA_MTU, &mtu, sizeof(mtu));
    put(IFLA_IFNAME, name.c_str(), name.size() + 1);
  }
  rtattr* put(int type, const void* data, size_t length) {
    auto* attribute = reinterpret_cast<rtattr*>(buffer_.data() + NLMSG_ALIGN(header()->nlmsg_len));
    attribute->rta_type = static_cast<unsigned short>(type);
    attribute->rta_len = static_cast<unsigned short>(RTA_LENGTH(length));
    if (length != 0) std::memcpy(RTA_DATA(attribute), data, length);
    header()->nlmsg_len = static_cast<uint32_t>(NLMSG_ALIGN(header()->nlmsg_len) + RTA_ALIGN(attribute->rta_len));
    return attribute;
  }
  // Everything put since `nest` was put belongs into it.
  void close(rtattr* nest) {
    const char* end = buffer_.data() + header()->nlmsg_len;
    nest->rta_len = static_cast<unsigned short>(end - reinterpret_cast<char*>(nest));
  }
  std::vector<char> bytes() { return {buffer_.data(), buffer_.data() + header()->nlmsg_len}; }
  nlmsghdr* header() { return reinterpret_cast<nlmsghdr*>(buffer_.data()); }

 private:
  alignas(nlmsghdr) std::array<char, 512> buffer_{};
};

}  // namespace uroce::net
