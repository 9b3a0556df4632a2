// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_spaces.h"

#include <cerrno>

namespace uroce::cm {
namespace {

constexpr uint16_t kFirstUnprivileged = 1024;

}  // namespace

Bound PortSpaces::bind(ClientId client, const Account& account, const Bind& wanted, const PortRange& range) {
  if (wanted.port != 0 && wanted.port < kFirstUnprivileged && !wanted.privileged) return {.error = EACCES};
  const auto own = clients_.find(client);
  if (own != clients_.end() && own->second.size() >= limits_.bindings_of_client) return {.error = ENFILE};
  if (!shares_.has_room(account)) return {.error = ENFILE};
  Bind bind = wanted;
  if (const int error = find_port(account, bind, range); error != 0) return {.error = error};
  while (bindings_.count(BindingId{next_}) > 0 || next_ == 0) ++next_;
  const BindingId id{next_++};
  bindings_.emplace(id, Binding{.user = account.user, .bind = bind});
  ports_[{bind.space, bind.port}].add(bind, false);
  Space& space = space_of(bind);
  space.taken.add(bind.port);
  space.shares.add(account.user);
  shares_.add(account.user);
  clients_[client].insert(id);
  return {.id = id, .port = bind.port};
}

// For port 0 a random one, so that nobody can foretell it. All that a user has in the port space counts for the share
// of the range.
int PortSpaces::find_port(const Account& account, Bind& bind, const PortRange& range) {
  if (bind.port != 0 && has(bind.space, bind.port)) return use_of(bind).conflict(bind, true);
  if (bind.port != 0 && !range.has(bind.port)) return 0;
  const Space& space = space_of(bind);
  const uint32_t taken = space.taken.count(range), all = range.size();
  if (taken >= all) return EADDRNOTAVAIL;
  if (!Shares::leaves_enough(all, taken, space.shares.of(account.user), account)) return ENFILE;
  if (bind.port == 0) bind.port = space.taken.free_one(range, random_() % (all - taken));
  return 0;
}

int PortSpaces::listen(ClientId client, BindingId id) {
  Binding* const binding = find_binding(client, id);
  if (binding == nullptr) return ENOENT;
  PortUse& use = use_of(binding->bind);
  use.remove(binding->bind, binding->listening);
  const int error = use.conflict(binding->bind, false);
  if (error == 0) binding->listening = true;
  use.add(binding->bind, binding->listening);
  return error;
}

int PortSpaces::set_reuse_address(ClientId client, BindingId id, bool reuse) {
  Binding* const binding = find_binding(client, id);
  if (binding == nullptr) return ENOENT;
  if (binding->listening) return EINVAL;
  PortUse& use = use_of(binding->bind);
  use.remove(binding->bind, false);
  binding->bind.reuse_address = reuse;
  use.add(binding->bind, false);
  return 0;
}

int PortSpaces::release(ClientId client, BindingId id) {
  const auto own = clients_.find(client);
  if (own == clients_.end() || own->second.erase(id) == 0) return ENOENT;
  if (own->second.empty()) clients_.erase(own);
  free(id);
  return 0;
}

std::set<BindingId> PortSpaces::disown(ClientId client) {
  auto own = clients_.extract(client);
  return own.empty() ? std::set<BindingId>() : std::move(own.mapped());
}

void PortSpaces::free(BindingId id) {
  const auto found = bindings_.find(id);
  const auto& [user, bind, listening] = found->second;
  const auto use = ports_.find({bind.space, bind.port});
  use->second.remove(bind, listening);
  Space& space = space_of(bind);
  if (use->second.is_free()) {
    ports_.erase(use);
    space.taken.remove(bind.port);
  }
  space.shares.remove(user);
  shares_.remove(user);
  bindings_.erase(found);
}

PortSpaces::Binding* PortSpaces::find_binding(ClientId client, BindingId id) {
  const auto own = clients_.find(client);
  return own != clients_.end() && own->second.contains(id) ? &bindings_.at(id) : nullptr;
}

const Bind* PortSpaces::find(ClientId client, BindingId id) const {
  const Binding* const binding = const_cast<PortSpaces*>(this)->find_binding(client, id);
  return binding == nullptr ? nullptr : &binding->bind;
}

}  // namespace uroce::cm
