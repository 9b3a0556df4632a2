// SPDX-License-Identifier: BSD-2-Clause
#include "broker/steering/steering.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "broker/steering/holders.h"
#include "broker/steering/map.h"
#include "broker/steering/slots.h"
#include "engine/io/udp/socket.h"

namespace uroce::broker {
namespace {

// Whether this process's user may have members of a group. The kernel knows what no dump shows.
std::optional<io::IoError> obstacle(std::span<const PortHolder> holders) {
  for (const int family : {AF_INET, AF_INET6}) {
    const auto member = io::open_group_member(family);
    const auto* const error = std::get_if<io::IoError>(&member);
    if (error == nullptr || (family == AF_INET6 && error->code == EAFNOSUPPORT)) continue;
    return error->code == EADDRINUSE ? port_taken(holders) : *error;
  }
  return std::nullopt;
}

}  // namespace

io::IoResult<Steering> Steering::open() {
  auto holders = port_holders().value_or(std::vector<PortHolder>());
  const auto foreign =
      std::stable_partition(holders.begin(), holders.end(), std::mem_fn(&PortHolder::may_be_inherited));
  if (foreign != holders.end()) return port_taken({foreign, holders.end()});
  if (const auto error = obstacle(holders)) return *error;
  const bool inherits = !holders.empty();
  auto steering = MapSteering::open(inherits);
  return std::holds_alternative<io::IoError>(steering) ? SlotSteering::open(inherits) : std::move(steering);
}

}  // namespace uroce::broker
