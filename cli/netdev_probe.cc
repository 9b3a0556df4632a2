#include "cli/netdev_probe.h"

#include <filesystem>

#include "cli/host_probe.h"
#include "engine/io/netdev_query.h"

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

}  // namespace uroce::cli
