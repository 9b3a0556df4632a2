// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/hardware.h"

#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

namespace uroce::files {
namespace {

// The first line of a file; empty when it cannot be read.
std::string read_line(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[4096];
  const ssize_t length = read(file, text, sizeof(text));
  close(file);
  const std::string content(text, length > 0 ? static_cast<size_t>(length) : 0);
  return content.substr(0, content.find('\n'));
}

}  // namespace

std::string hardware_of(const net::Netdev& netdev) {
  const std::string directory = "/sys/class/net/" + netdev.name;
  // /sys shows the network namespace of whoever mounted it, and there may be a netdev of the same name.
  if (read_line(directory + "/ifindex") != std::to_string(netdev.index)) return {};
  if (read_line(directory + "/address") != mac_text(netdev.mac)) return {};
  const std::unique_ptr<char, void (*)(void*)> path(realpath((directory + "/device").c_str(), nullptr), std::free);
  return path ? path.get() : "";
}

Cpus online_cpus() {
  Cpus cpus;
  cpus.list = read_line("/sys/devices/system/cpu/online");
  cpus.mask = cpu_mask(cpus.list);
  if (cpus.list.empty() || cpus.mask.empty()) {
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    cpus.list = count > 1 ? "0-" + std::to_string(count - 1) : "0";
    cpus.mask = cpu_mask(cpus.list);
  }
  return cpus;
}

}  // namespace uroce::files
