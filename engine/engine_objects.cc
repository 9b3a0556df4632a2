// SPDX-License-Identifier: BSD-2-Clause
// The calls of the engine that make, change and end QPs, shared receive queues, address handles and memberships in
// multicast groups, and change completion queues.
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/device/device.h"
#include "engine/engine.h"

namespace uroce::engine {

namespace {

std::vector<wire::IpAddress> groups_of(Device& device, const Qp& qp) {
  if (!qp.is_ud()) return {};
  Progress::Guard guard(device.progress);
  return device.tables.groups.of(qp);
}

}  // namespace

int Engine::create_qp(const QpInit& init, Qp*& qp) {
  if (const int error = device_->open_io(); error != 0) return error;
  QpInit given = init;
  given.patience = device_->patience();
  Progress::Guard guard(device_->progress);
  Tables& tables = device_->tables;
  if (tables.qp_count() >= Limits::kMaxQp) return ENOMEM;
  const uint32_t shard = device_->choose_shard(init);
  Datapath& datapath = device_->progress.shard(shard).datapath();
  QpnSpace& qpns = tables.qpns[shard];
  wire::Qpn qpn = wire::kGsiQpn;
  if (init.gsi) {
    // A broker has it for all processes. Where there are several shards the number would be another one's than UD's.
    if (tables.shares_addresses || device_->progress.shard_count() > 1) return ENOTSUP;
    if (qpns.find(qpn) != nullptr) return EBUSY;
  } else if (!qpns.take(qpn)) {
    return ENOMEM;
  }
  try {
    qp = new Qp(given, qpn, tables.regions, tables.srqs, datapath.completions(), datapath.counters());
  } catch (const std::bad_alloc&) {
    qpns.release(qpn);
    return ENOMEM;
  }
  qpns.bind(qpn, qp);
  datapath.add(*qp);
  return 0;
}

int Engine::modify_qp(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask) {
  std::lock_guard setting_up(device_->setup);
  device_->learn_netdev();
  std::shared_ptr<Destination> to;
  std::optional<Path> path;
  if (mask & transport::kQpAddressVector) {
    const uint32_t shard = device_->number_of_shard(qp);
    if (const int error = device_->find_destination(attributes.address, shard, to); error != 0) return error;
    const wire::Qpn remote = (mask & transport::kQpDestQpn) ? attributes.dest_qpn : qp.transport->attributes().dest_qpn;
    path = make_path(attributes.address, to, qp.transport->qpn(), remote);
  }
  transport::QpAttributes adjusted = attributes;
  if (qp.is_ud()) {
    if (mask & transport::kQpPathMtu) return EINVAL;
    adjusted.path_mtu = device_->path_mtu(device_->netdev().mtu);
    mask |= transport::kQpPathMtu;
  } else if (mask & transport::kQpPathMtu) {
    const uint32_t mtu = to != nullptr ? to->route.mtu : device_->netdev().mtu;
    if (attributes.path_mtu > device_->path_mtu(mtu)) return EINVAL;
  }
  if ((mask & transport::kQpPort) && attributes.port != 1) return EINVAL;
  if ((mask & transport::kQpPkeyIndex) && attributes.pkey_index != 0) return EINVAL;
  // Allocated before the progress lock is taken, and what it replaces is freed after that.
  Qp::Answers answers = Qp::room_for_answers(attributes, mask);

  Progress::Guard guard(device_->progress);
  qp.remember_answers_in(answers);
  return device_->shard_of(qp).datapath().modify(qp, adjusted, mask, std::move(path), monotonic_now());
}

transport::QpAttributes Engine::query_qp(Qp& qp) {
  Progress::Guard guard(device_->progress);
  return qp.transport->attributes();
}

void Engine::destroy_qp(Qp* qp) {
  for (const wire::IpAddress& group : groups_of(*device_, *qp)) detach_multicast(*qp, group);
  Progress::Guard guard(device_->progress);
  device_->tables.regions.forget_qp(qp->transport->qpn().value());
  device_->shard_of(*qp).datapath().remove(*qp, monotonic_now());
  device_->tables.qpns[device_->number_of_shard(*qp)].release(qp->transport->qpn());
  delete qp;
}

int Engine::create_srq(const SrqInit& init, Srq*& srq) {
  Progress::Guard guard(device_->progress);
  const uint32_t number = device_->tables.srqs.next_number();
  if (number == 0) return ENOMEM;
  try {
    auto created = std::make_unique<Srq>(init, number);
    if (init.xrcd != 0) created->shard = 0;
    if (init.cq != nullptr) init.cq->add_shard(0);  // XRC
    device_->tables.srqs.add(*created);
    srq = created.release();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return 0;
}

int Engine::resize_srq(Srq& srq, uint32_t max_wr) {
  Progress::Guard guard(device_->progress);
  try {
    return srq.resize(max_wr) ? 0 : EINVAL;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

void Engine::arm_srq_limit(Srq& srq, uint32_t limit) {
  Progress::Guard guard(device_->progress);
  srq.arm_limit(limit);
}

uint32_t Engine::srq_limit(Srq& srq) {
  Progress::Guard guard(device_->progress);
  return srq.limit();
}

void Engine::destroy_srq(Srq* srq) {
  Progress::Guard guard(device_->progress);
  device_->tables.srqs.remove(*srq);
  // XRC requests name the queue, their QPs do not: any of them may hold a receive request of it.
  if (srq->init.xrcd != 0) {
    device_->progress.shard(0).datapath().for_each_qp([srq](Qp& qp) { qp.transport->on_srq_destroyed(*srq); });
  }
  delete srq;
}

int Engine::create_address(const transport::AddressVector& address, uint32_t& handle) {
  std::lock_guard setting_up(device_->setup);
  device_->learn_netdev();
  std::shared_ptr<Destination> to;
  if (const int error = device_->find_destination(address, 0, to); error != 0) return error;
  const Path path = make_path(address, std::move(to));
  Progress::Guard guard(device_->progress);
  handle = device_->tables.address_handles.add(path);
  return handle != 0 ? 0 : ENOMEM;
}

void Engine::destroy_address(uint32_t handle) {
  Progress::Guard guard(device_->progress);
  const AddressHandle* const found = device_->tables.address_handles.find(handle);
  if (found == nullptr) return;
  device_->progress.shard(0).datapath().forget_waiting_packets(*found);
  device_->tables.address_handles.remove(handle);
}

int Engine::attach_multicast(Qp& qp, const wire::IpAddress& group) {
  if (!group.is_multicast() || !qp.is_ud()) return EINVAL;
  std::lock_guard setting_up(device_->setup);
  MulticastGroups& groups = device_->tables.groups;
  {
    Progress::Guard guard(device_->progress);
    if (groups.has(group, qp)) return 0;
    const size_t members = groups.members(group).size();
    if (members >= Limits::kMaxMulticastQps) return ENOMEM;
    if (members == 0 && groups.size() >= Limits::kMaxMulticastGroups) return ENOMEM;
    groups.attach(group, qp);
    if (members > 0) return 0;
  }
  const int error = device_->join(group);
  if (error != 0) {
    Progress::Guard guard(device_->progress);
    groups.detach(group, qp);
  }
  return error;
}

int Engine::detach_multicast(Qp& qp, const wire::IpAddress& group) {
  std::lock_guard setting_up(device_->setup);
  {
    Progress::Guard guard(device_->progress);
    if (!device_->tables.groups.detach(group, qp)) return EINVAL;
    if (!device_->tables.groups.members(group).empty()) return 0;
  }
  device_->leave(group);
  return 0;
}

int Engine::resize_cq(queue::CompletionQueue& cq, uint32_t capacity) {
  queue::CompletionQueue::Ring ring = queue::CompletionQueue::make_ring(capacity);
  Progress::Guard guard(device_->progress);
  return cq.resize(capacity, ring) ? 0 : EINVAL;
}

int Engine::moderate_cq(queue::CompletionQueue& cq, uint16_t count, Duration period) {
  Progress::Guard guard(device_->progress);
  device_->progress.shard(device_->choose_shard(cq)).datapath().moderated_cqs().moderate(cq, count, period);
  return 0;
}

}  // namespace uroce::engine
