// What a netdev and its driver can do for AF_XDP, and what is attached to it already. Reads only, needs no privilege.
// Used by devices and doctor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/af_xdp/xdp_program.h"

namespace uroce::cli {

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

struct NetdevProbe {
  std::string driver;   // "veth"; empty when the driver does not say
  uint32_t queues = 1;  // receive queues
  XdpSupport xdp;
  std::optional<io::AttachedProgram> attached;  // the XDP program that is attached now
  std::string rxe_device;                       // "rxe0": a Soft-RoCE device of the kernel on this netdev; empty: none
};

NetdevProbe probe_netdev(int ifindex, const std::string& name);

}  // namespace uroce::cli
