// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_spaces.h"

#include <algorithm>
#include <cerrno>

namespace uroce::cm {
namespace {

constexpr uint16_t kFirstUnprivileged = 1024;

bool is_any(const Bind& bind) {
  return bind.address.is_unspecified();
}

// Of one family only: whoever binds an IPv4 address, and an IPv6 address unless it is :: without V6ONLY.
bool one_family(const Bind& bind) {
  return bind.v4 || bind.v6_only || !is_any(bind);
}

}  // namespace

// 0, or why `wanted` cannot have its port beside the others: EADDRNOTAVAIL if a wildcard is involved, as in Linux.
int PortSpaces::conflict(const Binding& wanted, BindingId except, bool may_share) const {
  const auto [begin, end] = by_port_.equal_range({wanted.bind.space, wanted.bind.port});
  for (auto other = begin; other != end; ++other) {
    if (other->second == except) continue;
    const Binding& owner = bindings_.at(other->second);
    const Bind& a = wanted.bind;
    const Bind& b = owner.bind;
    if (may_share && a.reuse_address && b.reuse_address && !owner.listening) continue;
    if (a.v4 != b.v4 && one_family(a) && one_family(b)) continue;
    if (is_any(a) || is_any(b)) return EADDRNOTAVAIL;
    if (a.address == b.address && a.netdev == b.netdev) return EADDRINUSE;
  }
  return 0;
}

Bound PortSpaces::bind(ClientId client, const Bind& bind, const PortRange& range) {
  if (bind.port != 0 && bind.port < kFirstUnprivileged && !bind.privileged) return {.error = EACCES};
  const auto count = counts_.find(client);
  if (count != counts_.end() && count->second >= kMostOfClient) return {.error = ENFILE};
  Binding binding{.client = client, .bind = bind};
  if (bind.port == 0) {
    binding.bind.port = free_port(bind.space, range);
    if (binding.bind.port == 0) return {.error = EADDRNOTAVAIL};
  } else if (const int error = conflict(binding, {}, true); error != 0) {
    return {.error = error};
  }
  while (bindings_.count(BindingId{next_}) > 0 || next_ == 0) ++next_;
  const BindingId id{next_++};
  bindings_.emplace(id, binding);
  by_port_.emplace(PortKey{bind.space, binding.bind.port}, id);
  ++counts_[client];
  return {.id = id, .port = binding.bind.port};
}

// From a random one on, so that nobody can foretell it; 0: none.
uint16_t PortSpaces::free_port(wire::PortSpace space, const PortRange& range) const {
  const uint32_t ports = uint32_t{range.last} - range.first + 1;
  const uint32_t start = random_() % ports;
  for (uint32_t i = 0; i < ports; ++i) {
    const auto port = static_cast<uint16_t>(range.first + (start + i) % ports);
    if (port != 0 && by_port_.count({space, port}) == 0) return port;
  }
  return 0;
}

int PortSpaces::listen(ClientId client, BindingId id) {
  Binding* const binding = find_binding(client, id);
  if (binding == nullptr) return ENOENT;
  if (const int error = conflict(*binding, id, false); error != 0) return error;
  binding->listening = true;
  return 0;
}

int PortSpaces::set_reuse_address(ClientId client, BindingId id, bool reuse) {
  Binding* const binding = find_binding(client, id);
  if (binding == nullptr) return ENOENT;
  if (binding->listening) return EINVAL;
  binding->bind.reuse_address = reuse;
  return 0;
}

int PortSpaces::release(ClientId client, BindingId id) {
  const Binding* const binding = find_binding(client, id);
  if (binding == nullptr) return ENOENT;
  const auto [begin, end] = by_port_.equal_range({binding->bind.space, binding->bind.port});
  by_port_.erase(std::find_if(begin, end, [id](const auto& entry) { return entry.second == id; }));
  if (--counts_.at(client) == 0) counts_.erase(client);
  bindings_.erase(id);
  return 0;
}

void PortSpaces::end_client(ClientId client) {
  for (auto next = bindings_.begin(); next != bindings_.end();) {
    const auto [id, binding] = *next++;
    if (binding.client == client) release(client, id);
  }
}

PortSpaces::Binding* PortSpaces::find_binding(ClientId client, BindingId id) {
  const auto found = bindings_.find(id);
  return found != bindings_.end() && found->second.client == client ? &found->second : nullptr;
}

const Bind* PortSpaces::find(ClientId client, BindingId id) const {
  const auto found = bindings_.find(id);
  return found != bindings_.end() && found->second.client == client ? &found->second.bind : nullptr;
}

}  // namespace uroce::cm
