#include "rdma_cm/host_surroundings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/unique_fd.h"

namespace uroce::rdma_cm {
namespace {

bool owns(const net::Netdev& netdev, const wire::IpAddress& address) {
  return std::find(netdev.addresses.begin(), netdev.addresses.end(), address) != netdev.addresses.end();
}

}  // namespace

bool HostSurroundings::has_address(uint32_t netdev, const wire::IpAddress& address) {
  const auto all = host_.view().netdevs();
  return std::any_of(all.begin(), all.end(), [&](const net::Netdev& one) {
    return (netdev == 0 || static_cast<uint32_t>(one.index) == netdev) && owns(one, address);
  });
}

bool HostSurroundings::reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) {
  return has_address(0, remote) || host_.view().route(static_cast<int>(netdev), local, remote).has_value();
}

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
  const UniqueFd file(open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC));
  std::array<char, 32> text{};
  unsigned first = 0, last = 0;
  if (!file || read(file.get(), text.data(), text.size() - 1) <= 0) return {};
  if (std::sscanf(text.data(), "%u %u", &first, &last) != 2 || first == 0 || first > last || last > UINT16_MAX)
    return {};
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

}  // namespace uroce::rdma_cm
