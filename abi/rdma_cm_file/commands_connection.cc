// SPDX-License-Identifier: BSD-2-Clause
// Connections: asked for, accepted, rejected, ended; and the attributes of their QPs.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "abi/rdma_cm_file/manager.h"
#include "abi/rdma_cm_file/qp_attributes.h"
#include "wire/cma_header.h"

namespace uroce::rdma_cm {
namespace {

constexpr uint8_t kAckDelay = 15;  // as ibv_query_device() says it
constexpr uint32_t kQpnMask = 0xffffff;
constexpr uint8_t kThreeBits = 7;

std::optional<cm::Transport> transport_of(uint8_t qp_type) {
  switch (qp_type) {
    case abi::kRc:
      return cm::Transport::kRc;
    case abi::kUc:
      return cm::Transport::kUc;
    case abi::kUd:
      return cm::Transport::kUd;
    case abi::kXrcInitiator:
    case abi::kXrcTarget:
      return cm::Transport::kXrc;
    default:
      return std::nullopt;
  }
}

// Counts of 3 bits are clamped, as Linux does.
cm::Parameters parameters_of(const abi::ConnParam& param, bool datagram) {
  return {.qpn = wire::Qpn(param.qp_num & kQpnMask),
          .qkey = datagram ? abi::kUdpQkey : 0,
          .responder_resources = param.responder_resources,
          .initiator_depth = param.initiator_depth,
          .flow_control = param.flow_control != 0,
          .retry_count = std::min(param.retry_count, kThreeBits),
          .rnr_retry = std::min(param.rnr_retry_count, kThreeBits),
          .srq = param.srq != 0};
}

cm::PrivateData data_of(std::span<const uint8_t> data, uint8_t length) {
  return cm::PrivateData(data.first(length));
}

cm::Ece ece_of(const abi::Ece& ece) {
  return {.vendor_id = ece.vendor_id, .options = ece.attr_mod};
}

}  // namespace

int Manager::connect(const abi::Connect& command, const Call& call) {
  if (command.conn_param.valid == 0) return EINVAL;
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  CmId& id = *owned.id;
  const auto transport = transport_of(id.qp_type);
  if (id.state != State::kRouteResolved || !transport) return EINVAL;
  const size_t room = (id.is_datagram() ? cm::kSidrReqData : cm::kReqData) - wire::CmaHeader::kSize;
  if (command.conn_param.private_data_len > room) return EINVAL;
  cm::ConnectRequest request;
  cm::Connect& connect = request.connect;
  connect.transport = *transport;
  connect.service = wire::service_id(wire::PortSpace{id.port_space}, id.destination.port);
  connect.names = wire::CmaHeader{.v4 = id.source.family == Family::kV4,
                                  .source_port = id.source.port,
                                  .source = id.source.ip,
                                  .destination = id.destination.ip};
  connect.path = id.path;
  if (id.ack_timeout) connect.path.ack_timeout = *id.ack_timeout;
  connect.parameters = parameters_of(command.conn_param, id.is_datagram());
  connect.ece = ece_of(command.ece);
  connect.data = data_of(command.conn_param.private_data, command.conn_param.private_data_len);
  const cm::Reply reply = ask(request);
  if (reply.error != 0) return reply.error;
  name(owned.id, reply.id);
  id.state = State::kConnect;
  id.phase = Phase::kReqSent;
  id.service = connect.service;
  id.qpn = connect.parameters.qpn.value();
  id.qp.path = connect.path;
  id.qp.max_rd_atomic = connect.parameters.initiator_depth;
  id.qp.max_dest_rd_atomic = connect.parameters.responder_resources;
  return 0;
}

// Without parameters it is the RTU that an application owes for CONNECT_RESPONSE.
int Manager::accept(const abi::Accept& command, const Call& call) {
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  CmId& id = *owned.id;
  if (id.state != State::kConnect || id.cm == cm::kNoId) return EINVAL;
  const abi::ConnParam& param = command.conn_param;
  if (param.valid == 0 && !id.is_datagram()) {
    const cm::Reply reply = ask(cm::ConfirmRequest{id.cm, {}});
    if (reply.error == 0) id.phase = Phase::kEstablished;
    return reply.error;
  }
  if (param.private_data_len > (id.is_datagram() ? cm::kSidrRepData : cm::kRepData)) return EINVAL;
  cm::AcceptRequest request;
  request.id = id.cm;
  request.accept.parameters = parameters_of(param, id.is_datagram());
  request.accept.ece = ece_of(command.ece);
  request.accept.ack_delay = kAckDelay;
  request.accept.data = data_of(param.private_data, param.private_data_len);
  const cm::Reply reply = ask(request);
  if (reply.error != 0) return reply.error;
  if (param.valid != 0) id.uid = command.uid;
  id.qpn = request.accept.parameters.qpn.value();
  if (id.is_datagram()) return 0;
  id.phase = Phase::kRepSent;
  id.qp.max_rd_atomic = request.accept.parameters.initiator_depth;
  id.qp.max_dest_rd_atomic = request.accept.parameters.responder_resources;
  awaiting_rtu_.insert(owned.id);
  mailbox_->wake();
  return 0;
}

int Manager::reject(const abi::Reject& command, const Call& call) {
  const auto reason = command.reason == 0 ? wire::RejReason::kConsumer : wire::RejReason{command.reason};
  if (reason != wire::RejReason::kConsumer && reason != wire::RejReason::kVendorOption) return EINVAL;
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  CmId& id = *owned.id;
  if (id.state != State::kConnect || id.cm == cm::kNoId) return EINVAL;
  if (command.private_data_len > (id.is_datagram() ? cm::kSidrRepData : cm::kRejData)) return EINVAL;
  cm::RejectRequest request;
  request.id = id.cm;
  request.reject.reason = reason;
  request.reject.data = data_of(command.private_data, command.private_data_len);
  const cm::Reply reply = ask(request);
  if (reply.error == 0) id.phase = Phase::kEnded;
  return reply.error;
}

// As in Linux: whatever has become of a connection, and with a listener, it is no error.
int Manager::disconnect(const abi::Disconnect& command, const Call& call) {
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  CmId& id = *owned.id;
  if (id.state == State::kListen) return 0;
  if (id.phase == Phase::kNone) return EINVAL;
  const bool established = id.phase == Phase::kEstablished && !id.is_datagram();
  if (id.cm == cm::kNoId) {
    if (established) end_without_answer(owned.id);
    return 0;
  }
  const int error = ask(cm::DisconnectRequest{id.cm, {}}).error;
  if (error != ENOTCONN && error != ENOENT) return error;
  // There is no broker, or it does not know the connection yet: the next one is asked.
  id.disconnects = established;
  return 0;
}

// The other side cannot be told. The application waits for this event all the same, as after a DREQ that is not
// answered.
void Manager::end_without_answer(const IdPtr& id) {
  id->phase = Phase::kEnded;
  if (id->uid != 0) queue(id, abi::EventKind::kDisconnected, -ETIMEDOUT);
}

// The application has seen the first packet before the RTU.
int Manager::notify(const abi::Notify& command, const Call& call) {
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  if (owned.id->cm == cm::kNoId || command.event != abi::kNotifyCommEstablished) return EINVAL;
  return ask(cm::EstablishRequest{owned.id->cm}).error;
}

int Manager::init_qp_attr(const abi::InitQpAttr& command, const Call& call) {
  if (call.out < sizeof(abi::QpAttr)) return ENOSPC;
  if (command.qp_state > abi::kErr) return EINVAL;
  const Owned owned = find_bound(command.id, call);
  if (!owned.id) return owned.error;
  abi::QpAttr attributes{};
  const auto path = address_of(*owned.id, owned.id->qp.path.remote);
  if (const int error = qp_attributes(*owned.id, command.qp_state, path, attributes); error != 0) return error;
  return answer(command.response, &attributes, sizeof(attributes), call);
}

}  // namespace uroce::rdma_cm
