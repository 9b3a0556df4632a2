// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/connection_table.h"

#include <algorithm>

namespace uroce::oracle {

Connection& ConnectionTable::add(const ConnectionName& name) {
  return *all_.emplace_back(std::make_unique<Connection>(findings_, options_, name));
}

Connection& ConnectionTable::add_pair(const ConnectionName& name) {
  Connection*& out = by_direction_[{name.local, name.remote, name.remote_qpn->value(), true}];
  Connection*& in = by_direction_[{name.local, name.remote, name.local_qpn->value(), false}];
  if (out == nullptr || out != in) {
    auto& candidates = unpaired_[{name.local.bytes, name.remote.bytes}];
    std::erase_if(candidates, [&](const Connection* c) { return c == out || c == in; });
    out = in = &add(name);
  }
  return *out;
}

Connection& ConnectionTable::declare(const ConnectionName& name, const Attributes& attributes) {
  Connection& connection = add_pair(name);
  connection.declare(attributes);
  declared_[name.local_qpn->value()] = &connection;
  return connection;
}

void ConnectionTable::agree(const ConnectionName& name, const Attributes& attributes) {
  if (declared(*name.local_qpn) == nullptr) add_pair(name).agree(attributes);
}

void ConnectionTable::end_agreed(const ConnectionName& name) {
  Connection* const connection = find(name.local, name.remote, *name.remote_qpn, true);
  if (connection != nullptr && connection->name().local_qpn == name.local_qpn) connection->end_agreed();
}

Connection* ConnectionTable::find(const wire::IpAddress& local, const wire::IpAddress& remote, wire::Qpn destination,
                                  bool out) const {
  const auto found = by_direction_.find({local, remote, destination.value(), out});
  return found == by_direction_.end() ? nullptr : found->second;
}

Connection& ConnectionTable::add_direction(const wire::IpAddress& local, const wire::IpAddress& remote,
                                           wire::Qpn destination, bool out) {
  ConnectionName name{.local = local, .remote = remote};
  (out ? name.remote_qpn : name.local_qpn) = destination;
  Connection& added = add(name);
  by_direction_[{local, remote, destination.value(), out}] = &added;
  unpaired_[{local.bytes, remote.bytes}].push_back(&added);
  return added;
}

Connection& ConnectionTable::pair(Connection& connection, wire::Psn psn, bool out) {
  auto& candidates = unpaired_[{connection.name().local.bytes, connection.name().remote.bytes}];
  Connection* other = nullptr;
  for (Connection* candidate : candidates) {
    // A response that the host sends answers what came in, and the other way round.
    const bool fits =
        candidate->has_out() != out && (out ? candidate->can_answer(psn) : candidate->expects_response(psn));
    if (!fits) continue;
    if (other != nullptr) return connection;
    other = candidate;
  }
  if (other == nullptr) return connection;

  // The one that was seen first stays.
  const auto first =
      std::find_if(all_.begin(), all_.end(), [&](const auto& c) { return c.get() == other || c.get() == &connection; });
  Connection& kept = **first;
  Connection& merged = &kept == other ? connection : *other;
  const ConnectionName name = merged.name();
  const bool merged_out = merged.has_out();
  by_direction_[{name.local, name.remote, (merged_out ? name.remote_qpn : name.local_qpn)->value(), merged_out}] =
      &kept;
  kept.join(merged);
  std::erase_if(candidates, [&](const Connection* c) { return c == &kept || c == &merged; });
  std::erase_if(all_, [&](const auto& c) { return c.get() == &merged; });
  return kept;
}

Connection* ConnectionTable::declared(wire::Qpn local_qpn) const {
  const auto found = declared_.find(local_qpn.value());
  return found == declared_.end() ? nullptr : found->second;
}

}  // namespace uroce::oracle
