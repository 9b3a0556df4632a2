// SPDX-License-Identifier: BSD-2-Clause
// Which connection manager a process uses: that of the broker, where there is one and it reaches the network that the
// process is on, else its own.
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "abi/rdma_cm_file/environment.h"
#include "abi/rdma_cm_file/process/host_surroundings.h"
#include "base/concat.h"
#include "broker/client/broker_agent.h"
#include "cm/local/local_agent.h"
#include "process/broker_link.h"

namespace uroce::rdma_cm {
namespace {

std::vector<LocalAgent::Device> local_devices(engine::Host& host) {
  std::vector<LocalAgent::Device> devices;
  for (const engine::DeviceInfo& device : host.devices()) {
    devices.push_back({static_cast<uint32_t>(device.netdev.index), wire::Guid{device.guid}, host.engine(device)});
  }
  return devices;
}

// A port of the process's own is open from the beginning, as addresses are resolved before there is a QP. What is wrong
// with it is said.
std::vector<std::shared_ptr<engine::Engine>> opened_ports(engine::Host& host) {
  std::vector<std::shared_ptr<engine::Engine>> engines;
  if (!host.options().own_port()) return engines;
  for (const engine::DeviceInfo& device : host.devices()) {
    engines.push_back(host.engine(device));
    engines.back()->open_io();
  }
  return engines;
}

// With what it looks at.
struct Local {
  Local(engine::Host& host, cm::Agent::Handler handler)
      : ports(opened_ports(host)),
        surroundings(host),
        agent(
            surroundings, [&host] { return local_devices(host); }, std::move(handler)) {}
  const std::vector<std::shared_ptr<engine::Engine>> ports;
  HostSurroundings surroundings;
  LocalAgent agent;
};

}  // namespace

ChosenAgent make_agent(cm::Agent::Handler handler) {
  engine::Host* const host = engine::Host::instance();
  if (host == nullptr) return {.error = ENODEV, .text = "there are no devices"};
  const auto failed = [](const io::IoError& error) { return ChosenAgent{.error = error.code, .text = error.text()}; };
  std::shared_ptr<broker::Link> broker;
  if (!host->options().own_port()) {
    auto link = engine::broker_link(host->options());
    if (const auto* const error = std::get_if<io::IoError>(&link)) return failed(*error);
    broker = std::get<std::shared_ptr<broker::Link>>(std::move(link));
  }
  if (broker) {
    auto opened = broker::BrokerAgent::open(broker, std::move(handler));
    if (const auto* const error = std::get_if<io::IoError>(&opened)) return failed(*error);
    return {.agent = std::move(std::get<std::unique_ptr<cm::Agent>>(opened))};
  }
  try {
    const auto local = std::make_shared<Local>(*host, std::move(handler));
    return {.agent = std::shared_ptr<cm::Agent>(local, &local->agent)};
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    const std::string remedy = io::remedy_for(code, "see ulimit -a");
    return {.error = code, .text = concat("cannot start the connection manager: ", error.what(), "; ", remedy)};
  }
}

}  // namespace uroce::rdma_cm
