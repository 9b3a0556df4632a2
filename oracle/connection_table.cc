#include "oracle/connection_table.h"

namespace uroce::oracle {

Connection& ConnectionTable::add(const ConnectionName& name) {
  return *all_.emplace_back(std::make_unique<Connection>(findings_, options_, name));
}

Connection& ConnectionTable::declare(const ConnectionName& name, const Attributes& attributes) {
  any_declared_ = true;
  Connection*& out = by_direction_[{name.local, name.remote, name.remote_qpn->value(), true}];
  Connection*& in = by_direction_[{name.local, name.remote, name.local_qpn->value(), false}];
  if (out == nullptr || out != in) out = in = &add(name);
  out->declare(attributes);
  return *out;
}

Connection& ConnectionTable::find(const wire::IpAddress& local, const wire::IpAddress& remote, wire::Qpn destination,
                                  bool out) {
  Connection*& found = by_direction_[{local, remote, destination.value(), out}];
  if (found == nullptr) {
    ConnectionName name{.local = local, .remote = remote};
    (out ? name.remote_qpn : name.local_qpn) = destination;
    found = &add(name);
    unpaired_[{local.bytes, remote.bytes}].push_back(found);
  }
  return *found;
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

  const auto& name = other->name();
  by_direction_[{name.local, name.remote, (out ? name.local_qpn : name.remote_qpn)->value(), !out}] = &connection;
  connection.join(*other);
  std::erase_if(candidates, [&](const Connection* c) { return c == other || c == &connection; });
  std::erase_if(all_, [&](const auto& c) { return c.get() == other; });
  return connection;
}

std::vector<Connection*> ConnectionTable::of_local(wire::Qpn local_qpn) const {
  std::vector<Connection*> found;
  for (const auto& connection : all_) {
    if (connection->name().local_qpn == local_qpn) found.push_back(connection.get());
  }
  return found;
}

}  // namespace uroce::oracle
