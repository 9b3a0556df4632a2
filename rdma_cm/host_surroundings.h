// The host as the connection manager of a process alone sees it: addresses, routes, devices, and what the process may.
#pragma once

#include "cm/service.h"
#include "engine/device/host.h"

namespace uroce::rdma_cm {

class HostSurroundings final : public cm::Surroundings {
 public:
  explicit HostSurroundings(engine::Host& host) : host_(host) {}

  bool has_address(uint32_t netdev, const wire::IpAddress& address) override;
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) override;
  wire::Guid guid(uint32_t netdev) override;
  bool is_others_qpn(cm::ClientId, wire::Qpn) override { return false; }  // there are no others
  bool is_privileged(cm::ClientId client) override;
  cm::PortRange port_range() override;

 private:
  engine::Host& host_;
};

}  // namespace uroce::rdma_cm
