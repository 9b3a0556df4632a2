// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups. Nobody has to be asked: the event says to which GID a datagram QP is to be attached, which
// librdmacm does, and then the engine joins the group (IGMP, MLD).
#include <cerrno>

#include "abi/rdma_cm_file/manager.h"
#include "wire/psn.h"

namespace uroce::rdma_cm {
namespace {

constexpr uint8_t kMulticastHops = 64;

}  // namespace

int Manager::join_ip_mcast(const abi::JoinIpMcast& command, const Call& call) {
  const uint16_t size = address_size(command.addr);
  if (size == 0 || size > command.addr.size()) return EINVAL;
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  return join(owned.id, {command.uid, command.response, parse_address(command.addr)}, call);
}

int Manager::join_mcast(const abi::JoinMcast& command, const Call& call) {
  if (command.addr_size == 0 || command.addr_size != address_size(command.addr)) return EINVAL;
  if (command.join_flags != abi::kJoinFull && command.join_flags != abi::kJoinSendOnly) return EINVAL;
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  return join(owned.id, {command.uid, command.response, parse_address(command.addr)}, call);
}

int Manager::join(const IdPtr& id, const Join& join, const Call& call) {
  if (call.out < sizeof(abi::NewId)) return ENOSPC;
  if (!id->is_datagram() || (id->state != State::kBound && id->state != State::kAddrResolved)) return EINVAL;
  if (join.group.family == Family::kIb || !join.group.ip.is_multicast()) return EINVAL;
  auto group = std::make_shared<Group>();
  group->uid = join.uid;
  group->id = id;
  group->number = groups_.add(group);
  const abi::NewId made{group->number};
  if (const int error = answer(join.response, &made, sizeof(made), call); error != 0) {
    groups_.remove(group->number);
    return error;
  }
  id->groups.push_back(group);
  QueuedEvent queued;
  queued.event.uid = group->uid;
  queued.event.id = id->number;
  queued.event.event = static_cast<uint32_t>(abi::EventKind::kMulticastJoin);
  abi::UdParam& ud = queued.event.param.ud;
  if (const auto address = address_of(*id, join.group.ip)) {
    ud.qp_num = wire::kMulticastQpn.value();
    ud.qkey = abi::kUdpQkey;
    ud.ah_attr = *address;
    ud.ah_attr.hop_limit = kMulticastHops;
    ud.ah_attr.traffic_class = id->tos;
  } else {
    queued.event.event = static_cast<uint32_t>(abi::EventKind::kMulticastError);
    queued.event.status = static_cast<uint32_t>(-ENODEV);
  }
  queued.about = id;
  queued.group = group;
  id->channel->push(std::move(queued));
  return 0;
}

int Manager::leave_mcast(const abi::LeaveMcast& command, const Call& call) {
  if (call.out < sizeof(abi::EventsReported)) return ENOSPC;
  const std::shared_ptr<Group> group = groups_.find(command.id);
  const IdPtr id = group ? group->id.lock() : nullptr;
  if (!id) return ENOENT;
  if (id->channel != call.channel) return EINVAL;
  call.channel->extract(call.fd, [&](const QueuedEvent& queued) { return queued.group == group; });
  groups_.remove(group->number);
  std::erase(id->groups, group);
  const abi::EventsReported reported{group->events_reported};
  return answer(command.response, &reported, sizeof(reported), call);
}

}  // namespace uroce::rdma_cm
