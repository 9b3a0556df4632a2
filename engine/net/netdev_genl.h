// SPDX-License-Identifier: BSD-2-Clause
// The kernel's own word on what a netdev's driver can do with XDP: family "netdev" of generic netlink (Linux 6.3).
// Spoken with libnl's core; the kernel headers of Debian 12 do not have the family yet. Used by netdev_features.cc.
#pragma once

#include <cstdint>
#include <optional>

namespace uroce::net {

// NETDEV_XDP_ACT_* of <linux/netdev.h>.
constexpr uint64_t kXdpFeatureBasic = 1 << 0;
constexpr uint64_t kXdpFeatureRedirect = 1 << 1;
constexpr uint64_t kXdpFeatureZeroCopy = 1 << 3;
constexpr uint64_t kXdpFeatureRxScatter = 1 << 5;

// The feature mask of a netdev; nullopt when the kernel does not know the question.
std::optional<uint64_t> query_xdp_features(int ifindex);

}  // namespace uroce::net
