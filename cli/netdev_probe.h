// What devices and doctor say of a netdev besides what the engine needs to know of it. Reads only, needs no privilege.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/af_xdp/xdp_program.h"
#include "engine/net/netdev_features.h"

namespace uroce::cli {

struct NetdevProbe {
  uint32_t queues = 1;  // receive queues
  net::NetdevFeatures features;
  std::optional<io::AttachedProgram> attached;  // the XDP program that is attached now
  std::string rxe_device;                       // "rxe0": a Soft-RoCE device of the kernel on this netdev; empty: none
};

NetdevProbe probe_netdev(int ifindex, const std::string& name);

}  // namespace uroce::cli
