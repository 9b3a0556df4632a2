// SPDX-License-Identifier: BSD-2-Clause
// Which devices, and which GID of one: found as NCCL finds them, by verbs and by files under /sys.
#pragma once

#include <string>
#include <vector>

#include "symbols.h"

namespace uroce::nccl_style {

struct Device {
  std::string name;
  ibv_context* context = nullptr;
  uint8_t port = 0;
  ibv_port_attr attributes{};
  int speed = 0;           // Mb/s of all lanes
  std::string pci_path{};  // where /sys/class/infiniband/NAME/device leads; "" if nowhere
  bool dmabuf = false;     // ibv_reg_dmabuf_mr() is more than a stub
};

// The active ports of all devices whose names begin with NCCL_IB_HCA. Throws Failure if there is none.
std::vector<Device> find_devices(const Symbols& verbs);

// The GID of an IPv4 address (NCCL_IB_ADDR_FAMILY=AF_INET6: of an IPv6 address) with RoCE v2, or what NCCL_IB_GID_INDEX
// says.
int choose_gid(const Symbols& verbs, const Device& device);

}  // namespace uroce::nccl_style
