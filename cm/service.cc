// SPDX-License-Identifier: BSD-2-Clause
#include "cm/service.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace uroce::cm {
namespace {

constexpr uint32_t kFlowLabels = 1 << 20;
constexpr uint8_t kRates = 64, kSls = 16, kTimeouts = 32;  // as many bits as REQ has for them
constexpr uint64_t kPortBits = 0xffff;

bool is_loopback(const wire::IpAddress& address) {
  constexpr std::array<uint8_t, 16> kV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return address.is_v4() ? address.v4_bytes()[0] == 127 : address.bytes == kV6;
}

// Else one address could be said in several ways, and two would have the same port.
bool says_one_thing(const Bind& bind) {
  const bool any = bind.address.is_unspecified();
  return (any || bind.v4 == bind.address.is_v4()) && (bind.netdev == 0 || (!any && bind.address.is_link_local()));
}

// Some service id that fits is of a port.
bool may_be_a_port(const Listen& listen) {
  constexpr std::array kSpaces{wire::PortSpace::kIpoib, wire::PortSpace::kTcp, wire::PortSpace::kUdp,
                               wire::PortSpace::kIb};
  return std::any_of(kSpaces.begin(), kSpaces.end(), [&listen](wire::PortSpace space) {
    const auto differs = static_cast<uint64_t>(listen.service) ^ static_cast<uint64_t>(wire::service_id(space, 0));
    return (differs & listen.service_mask & ~kPortBits) == 0;
  });
}

}  // namespace

Service::Service(const Limits& limits, std::function<uint32_t()> random, Surroundings& surroundings, Output& output)
    : surroundings_(surroundings),
      output_(output),
      manager_(limits, random, *this),
      ports_(limits, std::move(random)),
      freed_in_a_turn_(limits.ended_in_a_turn),
      to_free_(freed_in_a_turn_) {}

void Service::on_timer(Time now) {
  manager_.on_timer(now);
  to_free_ = freed_in_a_turn_;
  free_some();
}

Reply Service::ask(ClientId client, const Request& request, Time now) {
  return std::visit([&](const auto& what) { return on(what, {client, now}); }, request);
}

void Service::end_client(ClientId client, Time now) {
  const uint64_t ids = manager_.end_client(client, now);
  std::set<BindingId> bindings = ports_.disown(client);
  if (!bindings.empty()) leaving_.push_back({ids, std::move(bindings)});
  free_some();
}

// Whoever has the port next can listen on it: nobody else listens there any more.
void Service::free_some() {
  for (; !leaving_.empty() && manager_.has_ended(leaving_.front().ids) && to_free_ > 0; --to_free_) {
    std::set<BindingId>& bindings = leaving_.front().bindings;
    const BindingId binding = *bindings.begin();
    bindings.erase(bindings.begin());
    ports_.free(binding);
    for (auto next = listeners_.lower_bound({binding, kNoId}); next != listeners_.end() && next->first == binding;) {
      const Id listener = next++->second;
      forget_listener(binding, listener);
    }
    if (bindings.empty()) leaving_.pop_front();
  }
}

// --- ports -----------------------------------------------------------------------------------------------------------

Reply Service::on(const BindRequest& request, const Asked& asked) {
  Bind bind = request.bind;
  bind.v4 = bind.v4 || bind.address.is_v4();  // also ::ffff:192.0.2.1 of an IPv6 socket
  if (!says_one_thing(bind)) return {.error = EINVAL};
  const bool anywhere = bind.address.is_unspecified() || is_loopback(bind.address);
  if (!anywhere && !surroundings_.has_address(bind.netdev, bind.address)) return {.error = EADDRNOTAVAIL};
  bind.privileged = surroundings_.is_privileged(asked.client);
  const Bound bound =
      ports_.bind(asked.client, surroundings_.account_of(asked.client), bind, surroundings_.port_range());
  return {.error = bound.error, .binding = bound.id, .port = bound.port};
}

Reply Service::on(const ReuseRequest& request, const Asked& asked) {
  return {.error = ports_.set_reuse_address(asked.client, request.binding, request.reuse)};
}

Reply Service::on(const ReleaseRequest& request, const Asked& asked) {
  if (const int error = ports_.release(asked.client, request.binding); error != 0) return {.error = error};
  for (auto next = listeners_.lower_bound({request.binding, kNoId});
       next != listeners_.end() && next->first == request.binding;) {
    const Id listener = next++->second;
    forget_listener(request.binding, listener);
    manager_.destroy(asked.client, listener, asked.now);
  }
  return {};
}

// --- listeners -------------------------------------------------------------------------------------------------------

int Service::fit_to_binding(Listen& listen, ClientId client, BindingId binding) const {
  const Bind* const bind = ports_.find(client, binding);
  if (bind == nullptr) return ENOENT;
  const bool exact = listen.service == wire::service_id(bind->space, bind->port) && listen.service_mask == UINT64_MAX;
  if (!exact) return EPERM;
  if (!bind->address.is_unspecified() && (listen.address != bind->address || listen.netdev != bind->netdev))
    return EPERM;
  const bool takes_v4 = bind->v4 || !bind->v6_only, takes_v6 = !bind->v4;
  listen.takes_v4 = listen.takes_v4 && takes_v4;
  listen.takes_v6 = listen.takes_v6 && takes_v6;
  const bool other_version = !listen.address.is_unspecified() && (listen.address.is_v4() ? !takes_v4 : !takes_v6);
  return other_version ? EPERM : 0;
}

Reply Service::on(const ListenRequest& request, const Asked& asked) {
  const auto [client, now] = asked;
  Listen listen = request.listen;
  const bool bound = request.binding != kNoBinding;
  if (!bound && may_be_a_port(listen)) return {.error = EPERM};
  if (const int error = bound ? fit_to_binding(listen, client, request.binding) : 0; error != 0)
    return {.error = error};
  if (!listen.address.is_unspecified() && !surroundings_.has_address(listen.netdev, listen.address)) {
    return {.error = EADDRNOTAVAIL};
  }
  if (listen.netdev != 0 && surroundings_.guid(listen.netdev) == wire::Guid{}) return {.error = ENODEV};
  const Opened opened = manager_.listen(client, listen);
  if (opened.error != 0 || !bound) return {.error = opened.error, .id = opened.id};
  if (const int error = ports_.listen(client, request.binding); error != 0) {
    manager_.destroy(client, opened.id, now);
    return {.error = error};
  }
  listeners_.emplace(request.binding, opened.id);
  bindings_.emplace(opened.id, request.binding);
  return {.id = opened.id};
}

void Service::forget_listener(BindingId binding, Id listener) {
  listeners_.erase({binding, listener});
  bindings_.erase(listener);
}

// --- connections -----------------------------------------------------------------------------------------------------

// The path is one of this host's; its CA GUID is filled in.
int Service::check(Path& path) {
  const bool can_be_said = path.mtu >= kSmallestMtu && path.mtu <= kLargestMtu && path.flow_label < kFlowLabels &&
                           path.rate < kRates && path.sl < kSls && path.ack_timeout < kTimeouts;
  if (!can_be_said) return EINVAL;
  if (path.netdev == 0 || !surroundings_.has_address(path.netdev, path.local)) return EADDRNOTAVAIL;
  path.ca_guid = surroundings_.guid(path.netdev);
  return path.ca_guid == wire::Guid{} ? ENODEV : 0;
}

Reply Service::on(const ConnectRequest& request, const Asked& asked) {
  Connect connect = request.connect;
  if (const int error = check(connect.path); error != 0) return {.error = error};
  if (surroundings_.is_others_qpn(asked.client, connect.parameters.qpn)) return {.error = EPERM};
  const Opened opened = manager_.connect(asked.client, connect, asked.now);
  return {.error = opened.error, .id = opened.id};
}

Reply Service::on(const AdoptRequest& request, const Asked& asked) {
  Adopt adopt = request;
  if (const int error = check(adopt.qp.path); error != 0) return {.error = error};
  if (surroundings_.is_others_qpn(asked.client, adopt.local_qpn)) return {.error = EPERM};
  return {.error = manager_.adopt(asked.client, adopt)};
}

Reply Service::on(const AcceptRequest& request, const Asked& asked) {
  if (surroundings_.is_others_qpn(asked.client, request.accept.parameters.qpn)) return {.error = EPERM};
  return {.error = manager_.accept(asked.client, request.id, request.accept, asked.now)};
}

Reply Service::on(const TakeRequest& request, const Asked& asked) {
  return {.error = manager_.take(asked.client, request.id)};
}

Reply Service::on(const ConfirmRequest& request, const Asked& asked) {
  return {.error = manager_.confirm(asked.client, request.id, request.data, asked.now)};
}

Reply Service::on(const RejectRequest& request, const Asked& asked) {
  return {.error = manager_.reject(asked.client, request.id, request.reject, asked.now)};
}

Reply Service::on(const EstablishRequest& request, const Asked& asked) {
  return {.error = manager_.establish(asked.client, request.id, asked.now)};
}

Reply Service::on(const DisconnectRequest& request, const Asked& asked) {
  return {.error = manager_.disconnect(asked.client, request.id, request.data, asked.now)};
}

Reply Service::on(const DestroyRequest& request, const Asked& asked) {
  const int error = manager_.destroy(asked.client, request.id, asked.now);
  const auto bound = bindings_.find(request.id);
  if (error == 0 && bound != bindings_.end()) forget_listener(bound->second, request.id);
  return {.error = error};
}

}  // namespace uroce::cm
