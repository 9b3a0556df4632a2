// SPDX-License-Identifier: BSD-2-Clause
// Who has which port: bind() and listen() of the RDMA IP CM service, with the rules of Linux (cm.md "Ports"). Beside
// the connection manager, which knows service ids only; whoever owns one has one of these.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "cm/types.h"
#include "wire/cma_header.h"
#include "wire/envelope.h"

namespace uroce::cm {

// Where ports are chosen for those who do not care (ip_local_port_range). first <= last.
struct PortRange {
  uint16_t first = 32768;
  uint16_t last = 60999;
};

struct Bind {
  wire::PortSpace space = wire::PortSpace::kTcp;
  wire::IpAddress address{};  // unspecified: all
  bool v4 = true;             // IPv4; tells 0.0.0.0 from ::
  bool v6_only = false;       // :: leaves IPv4 to others
  uint32_t netdev = 0;        // of a link-local address
  uint16_t port = 0;          // 0: any that nobody has
  bool reuse_address = false;
  bool privileged = false;  // may have ports below 1024

  friend bool operator==(const Bind&, const Bind&) = default;
};

enum class BindingId : uint32_t {};

// A binding, or an errno value: EACCES, EADDRINUSE, EADDRNOTAVAIL; ENFILE: too many.
struct Bound {
  BindingId id{};
  uint16_t port = 0;
  int error = 0;
};

class PortSpaces {
 public:
  static constexpr uint32_t kMostOfClient = 16384;

  // `random` gives 32 uniformly distributed bits.
  explicit PortSpaces(std::function<uint32_t()> random) : random_(std::move(random)) {}

  Bound bind(ClientId client, const Bind& bind, const PortRange& range);
  // EADDRINUSE: REUSEADDR let it be bound, but others have the port. Afterwards nobody else can bind it.
  int listen(ClientId client, BindingId id);
  int set_reuse_address(ClientId client, BindingId id, bool reuse);
  int release(ClientId client, BindingId id);
  // With the port that it has. Null: the client has no such binding.
  const Bind* find(ClientId client, BindingId id) const;
  void end_client(ClientId client);

  // Somebody has it.
  bool has(wire::PortSpace space, uint16_t port) const { return by_port_.contains({space, port}); }
  size_t size() const { return bindings_.size(); }

 private:
  struct Binding {
    ClientId client;
    Bind bind;
    bool listening = false;
  };
  using PortKey = std::pair<wire::PortSpace, uint16_t>;

  int conflict(const Binding& wanted, BindingId except, bool may_share) const;
  uint16_t free_port(wire::PortSpace space, const PortRange& range) const;
  Binding* find_binding(ClientId client, BindingId id);

  std::function<uint32_t()> random_;
  std::map<BindingId, Binding> bindings_;
  std::multimap<PortKey, BindingId> by_port_;
  std::map<ClientId, uint32_t> counts_;
  uint32_t next_ = 1;
};

}  // namespace uroce::cm
