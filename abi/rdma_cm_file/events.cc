// SPDX-License-Identifier: BSD-2-Clause
// What the connection manager says, turned into what the application is told.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "abi/rdma_cm_file/manager.h"

namespace uroce::rdma_cm {
namespace {

uint8_t child_type(const cm::Event& event) {
  switch (event.transport) {
    case cm::Transport::kUc:
      return abi::kUc;
    case cm::Transport::kUd:
      return abi::kUd;
    case cm::Transport::kXrc:
      return abi::kXrcTarget;
    default:
      return abi::kRc;
  }
}

void fill_parameters(abi::ConnParam& out, const cm::Event& event) {
  out.qp_num = event.parameters.qpn.value();
  out.qkey = event.parameters.qkey;
  out.srq = event.parameters.srq ? 1 : 0;
  out.responder_resources = event.parameters.responder_resources;
  out.initiator_depth = event.parameters.initiator_depth;
  out.flow_control = event.parameters.flow_control ? 1 : 0;
  out.retry_count = event.parameters.retry_count;
  out.rnr_retry_count = event.parameters.rnr_retry;
}

template <class Param>
void fill_data(Param& out, const cm::PrivateData& data) {
  out.private_data_len = static_cast<uint8_t>(data.size());
  std::copy(data.bytes().begin(), data.bytes().end(), out.private_data.begin());
}

Address name_of(bool v4, const wire::IpAddress& ip, uint16_t port, uint32_t netdev) {
  return {.family = v4 ? Family::kV4 : Family::kV6, .ip = ip, .port = port, .scope = ip.is_link_local() ? netdev : 0};
}

}  // namespace

void Manager::fill(abi::Event& out, const CmId& id, const cm::Event& event) const {
  out.status = static_cast<uint32_t>(event.status);
  out.ece = {event.ece.vendor_id, event.ece.options};
  if (!id.is_datagram()) {
    fill_parameters(out.param.conn, event);
    fill_data(out.param.conn, event.data);
    return;
  }
  out.param.ud = {};
  fill_data(out.param.ud, event.data);
  if (event.kind != cm::EventKind::kEstablished) return;
  const auto address = address_of(id, event.qp.path.remote);
  if (!address) {  // nothing can be sent there
    out.event = static_cast<uint32_t>(abi::EventKind::kUnreachable);
    out.status = static_cast<uint32_t>(-EADDRNOTAVAIL);
    return;
  }
  out.param.ud.qp_num = event.parameters.qpn.value();
  out.param.ud.qkey = event.parameters.qkey;
  out.param.ud.ah_attr = *address;
}

// One that is not known has been destroyed.
void Manager::on_event(const cm::Event& event) {
  const bool request = event.kind == cm::EventKind::kConnectRequest;
  const auto found = by_cm_.find(request ? event.listener : event.id);
  if (found == by_cm_.end()) return;
  const IdPtr id = found->second;
  if (request) return on_request(id, event);
  if (event.remote_id != cm::kNoId) id->remote_cm = event.remote_id;
  QueuedEvent queued;
  queued.about = id;
  using enum cm::EventKind;
  switch (event.kind) {
    case kConnectResponse:
      id->qp = event.qp;
      id->phase = Phase::kRepReceived;
      queued.event.event = static_cast<uint32_t>(abi::EventKind::kConnectResponse);
      break;
    case kEstablished:
      awaiting_rtu_.erase(id);
      id->phase = Phase::kEstablished;
      if (id->is_datagram()) id->qp = event.qp;
      queued.event.event = static_cast<uint32_t>(abi::EventKind::kEstablished);
      break;
    default:
      return on_end(id, event);
  }
  if (id->uid == 0) return;
  queued.event.uid = id->uid;
  queued.event.id = id->number;
  fill(queued.event, *id, event);
  id->channel->push(std::move(queued));
}

void Manager::on_end(const IdPtr& id, const cm::Event& event) {
  awaiting_rtu_.erase(id);
  abi::EventKind kind = abi::EventKind::kUnreachable;
  using enum cm::EventKind;
  switch (event.kind) {
    case kRejected:
      kind = abi::EventKind::kRejected;
      break;
    case kDisconnected:
      kind = abi::EventKind::kDisconnected;
      break;
    case kTimewaitExit:
      kind = abi::EventKind::kTimewaitExit;
      break;
    default:
      break;
  }
  id->phase = Phase::kEnded;
  if (id->uid == 0) return;  // not accepted: accept() fails
  QueuedEvent queued;
  queued.event.uid = id->uid;
  queued.event.id = id->number;
  queued.event.event = static_cast<uint32_t>(kind);
  fill(queued.event, *id, event);
  queued.about = id;
  id->channel->push(std::move(queued));
}

// A new id, which the application knows as soon as it has read the event.
void Manager::on_request(const IdPtr& listener, const cm::Event& event) {
  auto child = std::make_shared<CmId>();
  child->channel = listener->channel;
  child->port_space = listener->port_space;
  child->qp_type = child_type(event);
  child->known = false;
  child->passive = true;
  child->state = State::kConnect;
  child->phase = Phase::kReqReceived;
  child->tos = listener->tos;
  child->remote_cm = event.remote_id;
  child->service = event.service;
  child->qp = event.qp;
  child->path = event.qp.path;
  child->has_path = !child->is_datagram();
  const uint32_t netdev = event.qp.path.netdev;
  if (event.names) {
    child->source = name_of(event.names->v4, event.names->destination, wire::service_port(event.service), netdev);
    child->destination = name_of(event.names->v4, event.names->source, event.names->source_port, netdev);
  } else {
    child->source = name_of(event.qp.path.local.is_v4(), event.qp.path.local, 0, netdev);
    child->destination = name_of(event.qp.path.remote.is_v4(), event.qp.path.remote, 0, netdev);
  }
  if (bind_to_device(*child, netdev) != 0) {
    ask(cm::DestroyRequest{event.id});
    return;
  }
  child->number = ids_.add(child);
  name(child, event.id);
  QueuedEvent queued;
  queued.event.uid = listener->uid;
  queued.event.id = child->number;
  queued.event.event = static_cast<uint32_t>(abi::EventKind::kConnectRequest);
  fill(queued.event, *child, event);
  queued.about = listener;
  queued.child = child;
  listener->channel->push(std::move(queued));
}

}  // namespace uroce::rdma_cm
