// What a netdev and its driver can do, as far as it decides how packets travel. Asked of the kernel; needs no
// privilege.
#pragma once

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

struct NetdevFeatures {
  std::string driver;  // "veth"; empty when the driver does not say
  XdpSupport xdp;
};

NetdevFeatures netdev_features(int ifindex, const std::string& name);

}  // namespace uroce::net
