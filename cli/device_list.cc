// SPDX-License-Identifier: BSD-2-Clause
#include "cli/device_list.h"

#include "cli/no_devices.h"
#include "process/host.h"

namespace uroce::cli {

std::optional<std::vector<Device>> list_devices() {
  engine::Host* host = engine::Host::instance();
  if (host == nullptr) return std::nullopt;
  std::vector<Device> devices;
  for (const engine::DeviceInfo& info : host->devices()) {
    const engine::PortStatus port = host->engine(info)->port_status();
    const engine::IoFacts facts = engine::io_facts(info.netdev, host->options());
    devices.push_back({.name = info.name,
                       .netdev = info.netdev.name,
                       .up = info.netdev.up,
                       .active = port.active,
                       .mtu = port.netdev_mtu,
                       .path_mtu = port.active_mtu,
                       .gids = port.gids,
                       .probe = probe_netdev(info.netdev.name),
                       .io_facts = facts,
                       .io = engine::choose_io(facts, host->options().io)});
  }
  return devices;
}

std::string why_no_device_is_listed() {
  engine::Host* host = engine::Host::instance();
  return host == nullptr ? std::string() : why_no_devices(host->view().netdevs(), host->options().netdev);
}

}  // namespace uroce::cli
