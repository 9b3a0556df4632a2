// SPDX-License-Identifier: BSD-2-Clause
#include "abi/rdma_cm_file/process/host_surroundings.h"

#include <array>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/net/netdev_settings.h"

namespace uroce::rdma_cm {
wire::Guid HostSurroundings::guid(uint32_t netdev) {
  for (const engine::DeviceInfo& device : host_.devices()) {
    if (static_cast<uint32_t>(device.netdev.index) == netdev) return wire::Guid{device.guid};
  }
  return {};
}

bool HostSurroundings::is_privileged(cm::ClientId) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[0].effective & (1u << CAP_NET_BIND_SERVICE)) != 0;
}

cm::PortRange HostSurroundings::port_range() {
  const net::LocalPorts ports = net::local_ports();
  return {ports.first, ports.last};
}

}  // namespace uroce::rdma_cm
