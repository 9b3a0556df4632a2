// SPDX-License-Identifier: BSD-2-Clause
// Everything that clients can ask of the connection manager of a host (requests.h): ports, listeners, connections.
// Whoever owns QP1 has one: the broker, or a process alone. Checks what clients may not do; what it must know of the
// host it asks Surroundings.
//
// Without I/O, as ConnectionManager, and used as that.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "cm/connection_manager.h"
#include "cm/port_spaces.h"
#include "cm/requests.h"

namespace uroce::cm {

// The host around it.
class Surroundings {
 public:
  // `address` is one of the netdev's; of any one for netdev 0.
  virtual bool has_address(uint32_t netdev, const wire::IpAddress& address) = 0;
  // Packets from `local` to `remote` leave through this netdev, or `remote` is an address of this host. Asks the
  // kernel.
  virtual bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) = 0;
  // The CA GUID of the device on the netdev; 0: there is none.
  virtual wire::Guid guid(uint32_t netdev) = 0;
  // The number of another client's QP.
  virtual bool is_others_qpn(ClientId client, wire::Qpn qpn) = 0;
  // The client may have ports below 1024.
  virtual bool is_privileged(ClientId client) = 0;
  // Whose the client is. Those of a process alone are all of one user, who is alone.
  virtual Account account_of(ClientId client) {
    static_cast<void>(client);
    return {};
  }
  virtual PortRange port_range() = 0;

 protected:
  ~Surroundings() = default;
};

class Service final : private Output {
 public:
  // `output`: as ConnectionManager's, but for reaches(), which is Surroundings', and is_bound().
  Service(const Limits& limits, std::function<uint32_t()> random, Surroundings& surroundings, Output& output);

  void on_datagram(const Datagram& datagram, Time now) { manager_.on_datagram(datagram, now); }
  Time deadline() const { return is_ending() ? Time{} : manager_.deadline(); }
  void on_timer(Time now);

  // Errors are those of ConnectionManager and PortSpaces, and: EADDRNOTAVAIL, the address is none of the netdev's;
  // ENODEV, there is no device on it; EPERM, a QP number or a service id that is not the client's to use.
  Reply ask(ClientId client, const Request& request, Time now);
  // Over as many turns as it takes (ConnectionManager); its ports are free when its ids have ended.
  void end_client(ClientId client, Time now);
  // There is something left of a client that is gone.
  bool is_ending() const { return !leaving_.empty() || manager_.is_ending(); }

  const ConnectionManager& manager() const { return manager_; }
  const PortSpaces& ports() const { return ports_; }

 private:
  struct Asked {
    ClientId client;
    Time now;
  };
  Reply on(const BindRequest& request, const Asked& asked);
  Reply on(const ReuseRequest& request, const Asked& asked);
  Reply on(const ReleaseRequest& request, const Asked& asked);
  Reply on(const ListenRequest& request, const Asked& asked);
  Reply on(const ConnectRequest& request, const Asked& asked);
  Reply on(const TakeRequest& request, const Asked& asked);
  Reply on(const AcceptRequest& request, const Asked& asked);
  Reply on(const ConfirmRequest& request, const Asked& asked);
  Reply on(const RejectRequest& request, const Asked& asked);
  Reply on(const EstablishRequest& request, const Asked& asked);
  Reply on(const DisconnectRequest& request, const Asked& asked);
  Reply on(const DestroyRequest& request, const Asked& asked);
  Reply on(const AdoptRequest& request, const Asked& asked);

  int fit_to_binding(Listen& listen, ClientId client, BindingId binding) const;
  int check(Path& path);
  void forget_listener(BindingId binding, Id listener);
  void free_some();

  void send(const Datagram& datagram) override { output_.send(datagram); }
  void on_event(const Event& event) override { output_.on_event(event); }
  bool reaches(uint32_t netdev, const wire::IpAddress& local, const wire::IpAddress& remote) override {
    return surroundings_.reaches(netdev, local, remote);
  }
  Account account_of(ClientId client) override { return surroundings_.account_of(client); }
  bool is_bound(wire::ServiceId service) override {
    return ports_.has(wire::port_space(service), wire::service_port(service));
  }

  // Bindings of a client that is gone, whose ids end meanwhile.
  struct Leaving {
    uint64_t ids;  // ConnectionManager::end_client()
    std::set<BindingId> bindings;
  };

  Surroundings& surroundings_;
  Output& output_;
  ConnectionManager manager_;
  PortSpaces ports_;
  std::set<std::pair<BindingId, Id>> listeners_;  // those that have a binding
  std::map<Id, BindingId> bindings_;              // theirs
  std::deque<Leaving> leaving_;
  const uint32_t freed_in_a_turn_;
  uint32_t to_free_;  // until the next on_timer()
};

}  // namespace uroce::cm
