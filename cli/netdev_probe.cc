// SPDX-License-Identifier: BSD-2-Clause
#include "cli/netdev_probe.h"

#include <cerrno>
#include <filesystem>
#include <sys/socket.h>

#include "cli/host_probe.h"
#include "engine/io/netdev_query.h"
#include "engine/io/udp/socket.h"

namespace uroce::cli {
namespace {

std::string rxe_on(const std::string& name) {
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    if (read_line(device.path() / "parent") == name) return device.path().filename();
  }
  return "";
}

}  // namespace

NetdevProbe probe_netdev(const std::string& name) {
  return {.queues = io::rx_queue_count(name), .rxe_device = rxe_on(name)};
}

std::optional<io::IoError> udp_obstacle(const std::string& netdev) {
  for (const int family : {AF_INET, AF_INET6}) {
    auto error = io::UdpSocket().open(family, netdev);
    const bool no_ipv6 = error && family == AF_INET6 && error->code == EAFNOSUPPORT;
    if (error && !no_ipv6) return error;
  }
  return std::nullopt;
}

}  // namespace uroce::cli
