// SPDX-License-Identifier: BSD-2-Clause
#include "cm/waiting_requests.h"

#include <algorithm>

namespace uroce::cm {
namespace {

// The same message again.
bool is_copy(const Datagram& a, const Datagram& b) {
  return a.netdev == b.netdev && a.source == b.source && a.destination == b.destination && a.mad == b.mad;
}

uint64_t key_of(wire::ServiceId service) {
  switch (wire::port_space(service)) {
    case wire::PortSpace::kTcp:
    case wire::PortSpace::kUdp:
    case wire::PortSpace::kIpoib:
    case wire::PortSpace::kIb:
      return wire::service_port(service);
    default:
      return static_cast<uint64_t>(service);
  }
}

}  // namespace

void WaitingRequests::ended(wire::ServiceId service, Time now) {
  while (!order_.empty() && (order_.front().second <= now || order_.size() >= most_services_)) forget_oldest();
  const Time until = now + kMemory;
  services_[key_of(service)] = until;
  order_.emplace_back(key_of(service), until);
}

void WaitingRequests::forget_oldest() {
  const auto [key, until] = order_.front();
  order_.pop_front();
  const auto found = services_.find(key);
  if (found != services_.end() && found->second == until) services_.erase(found);
}

bool WaitingRequests::keep(const Service& service, const Datagram& request, bool bound, Time now) {
  const auto known = services_.find(key_of(service.id));
  if (!bound && (known == services_.end() || known->second <= now)) return false;
  const auto again = [&](const Request& other) { return is_copy(other.datagram, request); };
  if (std::any_of(requests_.begin(), requests_.end(), again)) return true;
  if (requests_.size() >= most_requests_) return false;
  requests_.push_back({service, request, now + kPatience});
  return true;
}

Time WaitingRequests::deadline() const {
  if (requests_.empty()) return kNever;
  return look_ ? Time{} : requests_.front().until;
}

std::vector<Datagram> WaitingRequests::take(const std::function<bool(const Service&)>& listens, Time now) {
  look_ = false;
  std::vector<Datagram> taken;
  std::erase_if(requests_, [&](const Request& request) {
    const bool is_over = request.until <= now || listens(request.service);
    if (is_over) taken.push_back(request.datagram);
    return is_over;
  });
  return taken;
}

}  // namespace uroce::cm
