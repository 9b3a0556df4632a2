// Everything that clients can ask of the connection manager of a host (requests.h): ports, listeners, connections.
// Whoever owns QP1 has one: the broker, or a process alone. Checks what clients may not do; what it must know of the
// host it asks Surroundings.
//
// Without I/O, as ConnectionManager, and used as that.
#pragma once

#include <functional>

#include "cm/connection_manager.h"
#include "cm/port_spaces.h"
#include "cm/requests.h"

namespace uroce::cm {

// The host around it.
class Surroundings {
 public:
  // `address` is one of the netdev's.
  virtual bool has_address(uint32_t netdev, const wire::IpAddress& address) = 0;
  // Packets from `local` to `remote` leave through this netdev. Asks the kernel.
  virtual bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) = 0;
  // The CA GUID of the device on the netdev; 0: there is none.
  virtual wire::Guid guid(uint32_t netdev) = 0;
  // The number of another client's QP.
  virtual bool is_others_qpn(ClientId client, wire::Qpn qpn) = 0;
  // The client may have ports below 1024.
  virtual bool is_privileged(ClientId client) = 0;
  virtual PortRange port_range() = 0;

 protected:
  ~Surroundings() = default;
};

class Service final : private Output {
 public:
  // `output`: as ConnectionManager's.
  Service(const Limits& limits, std::function<uint32_t()> random, Surroundings& surroundings, Output& output);

  void on_datagram(const Datagram& datagram, Time now);
  Time deadline() const { return manager_.deadline(); }
  void on_timer(Time now);

  Reply ask(ClientId client, const Request& request, Time now);
  void end_client(ClientId client, Time now);

  const ConnectionManager& manager() const { return manager_; }
  const PortSpaces& ports() const { return ports_; }

 private:
  void send(const Datagram& datagram) override;
  void on_event(const Event& event) override;

  ConnectionManager manager_;
  PortSpaces ports_;
  Surroundings& surroundings_;
  Output& output_;
};

}  // namespace uroce::cm
