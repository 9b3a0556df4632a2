// SPDX-License-Identifier: BSD-2-Clause
// What a netdev and its driver can do, as far as it decides how packets travel. Asked of the kernel; needs no
// privilege.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace uroce::net {

// What the driver offers for XDP.
struct XdpSupport {
  bool native = false;        // XDP runs in the driver
  bool zero_copy = false;     // AF_XDP zero-copy
  bool multi_buffer = false;  // native XDP on frames larger than a page
};

// The kernel's answer (netdev generic netlink, since 6.3); nullopt on older kernels.
std::optional<XdpSupport> query_xdp_support(int ifindex);
// For older kernels: from the driver's name, erring on the side of less.
XdpSupport xdp_support_of_driver(const std::string& driver);

// Whether the netdev takes runs of UDP packets whole (UDP_SEGMENT): ethtool's tx-udp-segmentation.
enum class Segmentation : uint8_t {
  kNone,       // the driver does not have it
  kOff,        // it has, but nobody has turned it on
  kWithdrawn,  // it is turned on, but the driver cannot at present: the end of a veth pair whose other end has native
               // XDP, or a tap device whose reader does not take runs
  kOn,
};

struct NetdevFeatures {
  std::string driver;  // "veth"; empty when the driver does not say
  XdpSupport xdp;
  Segmentation udp_segmentation = Segmentation::kNone;
};

NetdevFeatures netdev_features(int ifindex, const std::string& name);

}  // namespace uroce::net
