// SPDX-License-Identifier: BSD-2-Clause
// The host as the connection manager of a process alone sees it: addresses, routes, devices, and what the process may.
#pragma once

#include "cm/service.h"
#include "engine/net/host_net.h"
#include "process/host.h"

namespace uroce::rdma_cm {

class HostSurroundings final : public cm::Surroundings {
 public:
  explicit HostSurroundings(engine::Host& host) : host_(host), net_(host.view()) {}

  bool has_address(uint32_t netdev, const wire::IpAddress& address) override {
    return net_.has_address(netdev, address);
  }
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) override {
    return net_.reaches(netdev, local, remote);
  }
  wire::Guid guid(uint32_t netdev) override;                              // which options may have changed
  bool is_others_qpn(cm::ClientId, wire::Qpn) override { return false; }  // there are no others
  bool is_privileged(cm::ClientId client) override;
  cm::PortRange port_range() override;

 private:
  engine::Host& host_;
  net::HostNet net_;
};

}  // namespace uroce::rdma_cm
