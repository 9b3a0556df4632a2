// Which VLAN netdevs a dump of links shows above a netdev. Test machines have kernels without VLANs: the answer is made
// here.
#include "engine/io/vlan.h"

#include <cstring>
#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include "engine/io/af_xdp_error.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::io::test {
namespace {

using Bytes = std::vector<uint8_t>;
using Names = std::vector<std::string>;

template <class Header>
Bytes packed(Header header, const Bytes& content) {
  Bytes bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

Bytes operator+(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Bytes attribute(uint16_t type, const Bytes& content) {
  Bytes bytes = packed(rtattr{static_cast<uint16_t>(RTA_LENGTH(content.size())), type}, content);
  bytes.resize(RTA_ALIGN(bytes.size()));
  return bytes;
}

Bytes number(int value) {
  Bytes bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

Bytes text(const char* value) {
  return Bytes(value, value + std::strlen(value) + 1);
}

Bytes message(uint16_t type, const Bytes& content) {
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_len = static_cast<uint32_t>(sizeof(header) + content.size());
  return packed(header, content);
}

Bytes link(const char* name, int lower, const char* kind, const Bytes& more = {}) {
  return message(
      RTM_NEWLINK,
      packed(ifinfomsg{}, attribute(IFLA_IFNAME, text(name)) + attribute(IFLA_LINK, number(lower)) +
                              attribute(IFLA_LINKINFO | NLA_F_NESTED,
                                        attribute(IFLA_INFO_KIND, text(kind)) + attribute(IFLA_INFO_DATA, number(1))) +
                              more));
}

Names vlans_in(const Bytes& answer, int ifindex, bool more = true) {
  Names names;
  EXPECT_EQ(read_vlans_above(answer, ifindex, names), more);
  return names;
}

TEST(VlansAbove, AreThoseOfTheNetdev) {
  const Bytes plain = message(RTM_NEWLINK, packed(ifinfomsg{}, attribute(IFLA_IFNAME, text("eth0"))));
  const Bytes answer = plain + link("eth0.7", 3, "vlan") + link("eth1.7", 4, "vlan") + link("m0", 3, "macvlan") +
                       link("far.8", 3, "vlan", attribute(IFLA_LINK_NETNSID, number(0))) + link("eth0.9", 3, "vlan");
  EXPECT_EQ(vlans_in(answer, 3), (Names{"eth0.7", "eth0.9"}));
  EXPECT_EQ(vlans_in(answer, 4), Names{"eth1.7"});
  EXPECT_EQ(vlans_in(answer, 5), Names{});
}

TEST(VlansAbove, TheAnswerEndsWhereItSaysSo) {
  const Bytes vlan = link("eth0.7", 3, "vlan");
  EXPECT_EQ(vlans_in(vlan + message(NLMSG_DONE, number(0)) + vlan, 3, false), Names{"eth0.7"});
  EXPECT_EQ(vlans_in(message(NLMSG_ERROR, number(-1)), 3, false), Names{});
}

// Cut anywhere, and with any length in any header: nothing outside is read (ASan), and it ends.
TEST(VlansAbove, WhatDoesNotFitIsNotRead) {
  const Bytes whole = link("eth0.7", 3, "vlan") + link("eth0.9", 3, "vlan");
  for (size_t size = 0; size <= whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_LE(vlans_in(cut, 3).size(), 2u);
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x01, 0x03, 0x04, 0x7f, 0xff}) {
      Bytes changed = whole;
      changed[at] = value;
      Names names;
      read_vlans_above(changed, 3, names);
      EXPECT_LE(names.size(), 2u);
    }
  }
}

TEST(VlansAbove, OfAVethPairThereAreNone) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  VethPair::enter(veth.a());
  EXPECT_EQ(vlans_with_hidden_tags(veth.a().netdev, veth.a().ifindex), Names{});
}

TEST(VlansAbove, AreNamedInTheError) {
  const IoError error = vlan_error("eth0", {"eth0.7", "eth0.9"});
  EXPECT_NE(error.what.find("eth0.7, eth0.9"), std::string::npos);
  EXPECT_NE(error.remedy.find("ethtool -K eth0 rxvlan off"), std::string::npos);
}

}  // namespace
}  // namespace uroce::io::test
