// SPDX-License-Identifier: BSD-2-Clause
// Ids as such: made, destroyed, moved to another channel; their options.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <utility>

#include "abi/rdma_cm_file/caller_memory.h"
#include "abi/rdma_cm_file/manager.h"
#include "wire/cma_header.h"

namespace uroce::rdma_cm {
namespace {

// That of the ids of a port space; 0: there is no such port space.
uint8_t qp_type_of(const abi::CreateId& command) {
  switch (wire::PortSpace{command.ps}) {
    case wire::PortSpace::kTcp:
      return abi::kRc;
    case wire::PortSpace::kUdp:
    case wire::PortSpace::kIpoib:
      return abi::kUd;
    case wire::PortSpace::kIb:
      return command.qp_type;
    default:
      return 0;
  }
}

}  // namespace

int Manager::create_id(const abi::CreateId& command, const Call& call) {
  if (call.out < sizeof(abi::NewId)) return ENOSPC;
  const uint8_t type = qp_type_of(command);
  if (type == 0) return EINVAL;
  auto id = std::make_shared<CmId>();
  id->uid = command.uid;
  id->channel = call.channel;
  id->port_space = command.ps;
  id->qp_type = type;
  id->number = ids_.add(id);
  const abi::NewId made{id->number};
  const int error = answer(command.response, &made, sizeof(made), call);
  if (error != 0) ids_.remove(id->number);
  return error;
}

int Manager::destroy_id(const abi::DestroyId& command, const Call& call) {
  if (call.out < sizeof(abi::EventsReported)) return ENOSPC;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  destroy(owned.id, call.fd);
  const abi::EventsReported reported{owned.id->events_reported};
  return answer(command.response, &reported, sizeof(reported), call);
}

// Written to the new channel. `fd` is the old one, whose unread events come along.
int Manager::migrate_id(const abi::MigrateId& command, const Call& call) {
  if (call.out < sizeof(abi::EventsReported)) return ENOSPC;
  const int old_fd = static_cast<int>(command.fd);
  if (fcntl(old_fd, F_GETFD) < 0) return ENOENT;
  const auto identity = Identity::of(old_fd);
  const auto found = identity ? channels_.find(identity->inode) : channels_.end();
  if (found == channels_.end() || found->second->identity() != *identity) return EINVAL;
  const ChannelPtr old = found->second;
  const Owned owned = find(command.id, {old, old_fd, call.in, call.out});
  if (!owned.id) return owned.error;
  const abi::EventsReported reported{owned.id->events_reported};
  if (old != call.channel) {
    owned.id->channel = call.channel;
    for (QueuedEvent& queued :
         old->extract(old_fd, [&](const QueuedEvent& event) { return event.about == owned.id; })) {
      if (queued.child) queued.child->channel = call.channel;
      call.channel->push(std::move(queued));
    }
  }
  return answer(command.response, &reported, sizeof(reported), call);
}

// --- options ---------------------------------------------------------------------------------------------------------

int Manager::set_option(const abi::SetOption& command, const Call& call) {
  constexpr uint32_t kLongestOption = 16 * sizeof(abi::PathData);
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  if (command.optlen > kLongestOption) return EINVAL;
  std::vector<uint8_t> value(command.optlen);
  if (const int error = copy_in(value.data(), command.optval, value.size()); error != 0) return error;
  if (command.level == abi::kLevelId) return set_id_option(*owned.id, command.optname, value);
  if (command.level != abi::kLevelIb || command.optname != abi::kOptionIbPath) return ENOSYS;
  return set_ib_path(owned.id, value);
}

int Manager::set_id_option(CmId& id, uint32_t name, std::span<const uint8_t> value) {
  const size_t wanted = name == abi::kOptionReuseAddress || name == abi::kOptionAfOnly ? sizeof(int32_t) : 1;
  if (name > abi::kOptionAckTimeout) return ENOSYS;
  if (value.size() != wanted) return EINVAL;
  const bool on = std::any_of(value.begin(), value.end(), [](uint8_t byte) { return byte != 0; });
  switch (name) {
    case abi::kOptionTos:
      id.tos = value[0];
      return 0;
    case abi::kOptionReuseAddress:
      if (id.state != State::kIdle && (!on || id.state == State::kListen)) return EINVAL;
      id.reuse_address = on;
      return id.binding == cm::kNoBinding ? 0 : ask(cm::ReuseRequest{id.binding, on}).error;
    case abi::kOptionAfOnly:
      if (id.state != State::kIdle && id.state != State::kBound) return EINVAL;
      id.af_only = on;
      return 0;
    default:
      if (id.qp_type != abi::kRc && id.qp_type != abi::kXrcInitiator) return EINVAL;
      id.ack_timeout = value[0];
      return 0;
  }
}

// A route that somebody else has found: ibacm. It is for InfiniBand; ours is the kernel's.
int Manager::set_ib_path(const IdPtr& id, std::span<const uint8_t> value) {
  if (value.empty() || value.size() % sizeof(abi::PathData) != 0) return EINVAL;
  bool found = false;
  for (size_t at = 0; at < value.size(); at += sizeof(abi::PathData)) {
    uint32_t flags = 0;
    std::memcpy(&flags, &value[at], sizeof(flags));
    found |= flags == abi::kPathFlags;
  }
  if (!found || id->device.netdev == 0 || id->state != State::kAddrResolved) return EINVAL;
  if (const int error = make_path(*id); error != 0) return error;
  id->state = State::kRouteResolved;
  queue(id, abi::EventKind::kRouteResolved);
  return 0;
}

// Of newer kernels: an application's own event.
int Manager::write_cm_event(const abi::WriteCmEvent& command, const Call& call) {
  const auto kind = abi::EventKind{command.event};
  if (kind != abi::EventKind::kUser && kind != abi::EventKind::kInternal) return EINVAL;
  const Owned owned = find(command.id, call);
  if (!owned.id) return owned.error;
  QueuedEvent queued;
  queued.event.uid = owned.id->uid;
  queued.event.id = owned.id->number;
  queued.event.event = command.event;
  queued.event.status = command.status;
  std::memcpy(queued.event.param.arg, command.param, sizeof(queued.event.param.arg));
  queued.about = owned.id;
  owned.id->channel->push(std::move(queued));
  return 0;
}

}  // namespace uroce::rdma_cm
