// VLANs and AF_XDP. Where hardware strips VLAN tags, an XDP program sees a frame of any VLAN as if it were untagged,
// and whoever is in one of them could send packets to the netdev below. The kernel would give such a frame to the
// VLAN's netdev. So AfXdp asks here whether a netdev is such hardware and carries VLANs, and is not opened then.
//
// Asked when it is opened: a VLAN netdev that is added later, or stands in another network namespace, is not seen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace uroce::io {

// The VLAN netdevs of this network namespace above a netdev, if it may hand on frames of them without their tags.
std::vector<std::string> vlans_with_hidden_tags(const std::string& netdev, int ifindex);

// Adds the names of the VLAN netdevs above netdev `ifindex` that are in an answer to a dump of links (rtnetlink).
// False: that was the last part of it.
bool read_vlans_above(std::span<const uint8_t> answer, int ifindex, std::vector<std::string>& names);

}  // namespace uroce::io
