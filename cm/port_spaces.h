// SPDX-License-Identifier: BSD-2-Clause
// Who has which port: bind() and listen() of the RDMA IP CM service, with the rules of Linux (cm.md "Ports"). Beside
// the connection manager, which knows service ids only; whoever owns one has one of these.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "cm/bind.h"
#include "cm/port_set.h"
#include "cm/port_use.h"
#include "cm/shares.h"
#include "cm/types.h"

namespace uroce::cm {

enum class BindingId : uint32_t {};

// A binding, or an errno value: EACCES, EADDRINUSE, EADDRNOTAVAIL; ENFILE: too many.
struct Bound {
  BindingId id{};
  uint16_t port = 0;
  int error = 0;
};

class PortSpaces {
 public:
  // `random` gives 32 uniformly distributed bits.
  PortSpaces(const Limits& limits, std::function<uint32_t()> random)
      : limits_(limits), random_(std::move(random)), shares_(limits.bindings) {}

  Bound bind(ClientId client, const Account& account, const Bind& bind, const PortRange& range);
  // EADDRINUSE: REUSEADDR let it be bound, but others have the port. Afterwards nobody else can bind it.
  int listen(ClientId client, BindingId id);
  int set_reuse_address(ClientId client, BindingId id, bool reuse);
  int release(ClientId client, BindingId id);
  // With the port that it has. Null: the client has no such binding.
  const Bind* find(ClientId client, BindingId id) const;
  // The client is gone: these were its bindings, which nobody has now, until free().
  std::set<BindingId> disown(ClientId client);
  void free(BindingId id);

  // Somebody has it.
  bool has(wire::PortSpace space, uint16_t port) const { return ports_.contains({space, port}); }
  size_t size() const { return bindings_.size(); }

 private:
  struct Binding {
    UserId user;
    Bind bind;
    bool listening = false;
  };
  struct Space {
    explicit Space(uint32_t most) : shares(most) {}
    PortSet taken;
    Shares shares;  // of its bindings
  };
  using Port = std::pair<wire::PortSpace, uint16_t>;

  int find_port(const Account& account, Bind& bind, const PortRange& range);
  Space& space_of(const Bind& bind) { return spaces_.try_emplace(bind.space, limits_.bindings).first->second; }
  PortUse& use_of(const Bind& bind) { return ports_.at({bind.space, bind.port}); }
  Binding* find_binding(ClientId client, BindingId id);

  const Limits limits_;
  std::function<uint32_t()> random_;
  std::map<BindingId, Binding> bindings_;
  std::map<Port, PortUse> ports_;  // that are in use
  std::map<wire::PortSpace, Space> spaces_;
  std::map<ClientId, std::set<BindingId>> clients_;
  Shares shares_;
  uint32_t next_ = 1;
};

}  // namespace uroce::cm
