// SPDX-License-Identifier: BSD-2-Clause
#include "cm/messages.h"

#include <algorithm>

#include "cm/timing.h"
#include "wire/bth.h"
#include "wire/bytes.h"

namespace uroce::cm {
namespace {

constexpr uint16_t kNoLid = 0xffff;
constexpr uint8_t kMostRetries = 7;  // 3 bits

uint8_t three_bits(uint8_t retries) {
  return std::min(retries, kMostRetries);
}

template <size_t size>
std::array<uint8_t, size> with_names(const Connect& connect) {
  std::array<uint8_t, size> bytes{};
  size_t at = 0;
  if (connect.names) {
    connect.names->emit(bytes.data());
    at = wire::CmaHeader::kSize;
  }
  const auto data = connect.data.bytes();
  std::copy_n(data.begin(), std::min(data.size(), size - at), bytes.begin() + static_cast<ptrdiff_t>(at));
  return bytes;
}

wire::ReqPath req_path(const Path& path) {
  return {.local_lid = kNoLid,
          .remote_lid = kNoLid,
          .local_gid = path.local,
          .remote_gid = path.remote,
          .flow_label = path.flow_label,
          .rate = path.rate,
          .traffic_class = path.traffic_class,
          .hop_limit = path.hop_limit,
          .sl = path.sl,
          .subnet_local = path.hop_limit <= 1,
          .ack_timeout = path.ack_timeout};
}

}  // namespace

wire::Req make_req(const Endpoint& endpoint, const Connect& connect) {
  wire::Req req;
  const Parameters& own = connect.parameters;
  req.local_id = endpoint.id;
  req.vendor_id = connect.ece.vendor_id;
  req.service_id = connect.service;
  req.ca_guid = connect.path.ca_guid;
  req.qpn = own.qpn;
  req.initiator_depth = own.initiator_depth;
  req.remote_response_timeout = kResponseTimeout;
  req.flow_control = own.flow_control;
  req.starting_psn = endpoint.qp.rq_psn;
  req.local_response_timeout = kResponseTimeout;
  req.pkey = wire::Bth::kDefaultPkey;
  req.path_mtu = connect.path.mtu;
  req.max_cm_retries = kMaxRetries;
  if (connect.transport == Transport::kXrc) {  // its initiator answers nothing
    req.transport = wire::CmTransport::kExtended;
    req.extended_transport = wire::kExtendedTransportXrc;
  } else {
    req.transport = connect.transport == Transport::kUc ? wire::CmTransport::kUc : wire::CmTransport::kRc;
    req.responder_resources = own.responder_resources;
    req.retry_count = three_bits(own.retry_count);
    req.rnr_retry = three_bits(own.rnr_retry);
    req.srq = own.srq;
  }
  req.primary = req_path(connect.path);
  req.private_data = with_names<kReqData>(connect);
  return req;
}

wire::SidrReq make_sidr_req(const Endpoint& endpoint, const Connect& connect) {
  wire::SidrReq req;
  req.request_id = endpoint.id;
  req.pkey = wire::Bth::kDefaultPkey;
  req.service_id = connect.service;
  req.private_data = with_names<kSidrReqData>(connect);
  return req;
}

wire::Rep make_rep(const Endpoint& endpoint, const Accept& accept) {
  wire::Rep rep;
  const Parameters& own = accept.parameters;
  rep.local_id = endpoint.id;
  rep.remote_id = endpoint.remote_id;
  rep.vendor_id_high = static_cast<uint8_t>(accept.ece.vendor_id >> 16);
  rep.vendor_id_middle = static_cast<uint8_t>(accept.ece.vendor_id >> 8);
  rep.vendor_id_low = static_cast<uint8_t>(accept.ece.vendor_id);
  rep.starting_psn = endpoint.qp.rq_psn;
  rep.responder_resources = own.responder_resources;
  rep.target_ack_delay = accept.ack_delay;
  rep.rnr_retry = three_bits(own.rnr_retry);
  rep.ca_guid = endpoint.qp.path.ca_guid;
  if (endpoint.transport == Transport::kXrc) {  // its target asks nothing
    rep.eecn = own.qpn.value();
    rep.srq = true;
  } else {
    rep.qpn = own.qpn;
    rep.initiator_depth = own.initiator_depth;
    rep.flow_control = own.flow_control;
    rep.srq = own.srq;
  }
  rep.private_data = padded<kRepData>(accept.data);
  return rep;
}

wire::Rtu make_rtu(const Endpoint& endpoint, const PrivateData& data) {
  wire::Rtu rtu;
  rtu.local_id = endpoint.id;
  rtu.remote_id = endpoint.remote_id;
  rtu.private_data = padded<kRtuData>(data);
  return rtu;
}

wire::Mra make_mra(const Endpoint& endpoint, wire::CmAnswered message) {
  wire::Mra mra;
  mra.local_id = endpoint.id;
  mra.remote_id = endpoint.remote_id;
  mra.message = message;
  mra.service_timeout = kServiceTimeout;
  return mra;
}

wire::Dreq make_dreq(const Endpoint& endpoint, const PrivateData& data) {
  wire::Dreq dreq;
  dreq.local_id = endpoint.id;
  dreq.remote_id = endpoint.remote_id;
  dreq.remote_qpn = endpoint.qp.dest_qpn;
  dreq.private_data = padded<kDreqData>(data);
  return dreq;
}

wire::Drep make_drep(Id local, Id remote, const PrivateData& data) {
  wire::Drep drep;
  drep.local_id = local;
  drep.remote_id = remote;
  drep.private_data = padded<kDrepData>(data);
  return drep;
}

wire::SidrRep make_sidr_rep(const Endpoint& endpoint, const Accept& accept) {
  wire::SidrRep rep = make_sidr_refusal(endpoint.remote_id, endpoint.service, wire::SidrStatus::kOk, accept.data);
  rep.qpn = accept.parameters.qpn;
  rep.qkey = accept.parameters.qkey;
  rep.vendor_id_high = static_cast<uint16_t>(accept.ece.vendor_id >> 8);
  rep.vendor_id_low = static_cast<uint8_t>(accept.ece.vendor_id);
  return rep;
}

wire::SidrRep make_sidr_refusal(Id request, wire::ServiceId service, wire::SidrStatus status, const PrivateData& data) {
  wire::SidrRep rep;
  rep.request_id = request;
  rep.status = status;
  rep.service_id = service;
  rep.private_data = padded<kSidrRepData>(data);
  return rep;
}

wire::Rej make_rej(Id local, Id remote, wire::CmAnswered message, const Reject& reject) {
  wire::Rej rej;
  rej.local_id = local;
  rej.remote_id = remote;
  rej.message = message;
  rej.reason = reject.reason;
  rej.info_length = static_cast<uint8_t>(reject.additional_info.size());
  std::copy_n(reject.additional_info.bytes().begin(), rej.info_length, rej.additional_info.begin());
  rej.private_data = padded<kRejData>(reject.data);
  return rej;
}

wire::Rej make_timeout_rej(const Endpoint& endpoint) {
  std::array<uint8_t, 8> guid{};
  wire::store_be64(guid.data(), static_cast<uint64_t>(endpoint.qp.path.ca_guid));
  return make_rej(endpoint.id, endpoint.remote_id, wire::CmAnswered::kOther,
                  {.reason = wire::RejReason::kTimeout, .additional_info = AdditionalInfo(guid)});
}

std::optional<Transport> transport_of(const wire::Req& req) {
  switch (req.transport) {
    case wire::CmTransport::kRc:
      return Transport::kRc;
    case wire::CmTransport::kUc:
      return Transport::kUc;
    case wire::CmTransport::kExtended:
      if (req.extended_transport == wire::kExtendedTransportXrc) return Transport::kXrc;
      return std::nullopt;
    case wire::CmTransport::kRd:
      break;
  }
  return std::nullopt;
}

Parameters parameters_of(const wire::Req& req) {
  return {.qpn = req.qpn,
          .responder_resources = req.initiator_depth,
          .initiator_depth = req.responder_resources,
          .flow_control = req.flow_control,
          .retry_count = req.retry_count,
          .rnr_retry = req.rnr_retry,
          .srq = req.srq};
}

Parameters parameters_of(const wire::Rep& rep, Transport transport) {
  return {.qpn = transport == Transport::kXrc ? wire::Qpn(rep.eecn) : rep.qpn,
          .responder_resources = rep.initiator_depth,
          .initiator_depth = rep.responder_resources,
          .flow_control = rep.flow_control,
          .rnr_retry = rep.rnr_retry,
          .srq = rep.srq};
}

Ece ece_of(const wire::Rep& rep, uint32_t modifier) {
  return {.vendor_id = uint32_t{rep.vendor_id_high} << 16 | uint32_t{rep.vendor_id_middle} << 8 | rep.vendor_id_low,
          .options = modifier};
}

Ece ece_of(const wire::SidrRep& rep, uint32_t modifier) {
  return {.vendor_id = uint32_t{rep.vendor_id_high} << 8 | rep.vendor_id_low, .options = modifier};
}

Path path_of(const wire::Req& req, const Datagram& datagram) {
  Path path = path_of(datagram);
  path.remote = req.primary.local_gid;
  path.flow_label = req.primary.flow_label;
  path.traffic_class = static_cast<uint8_t>(req.primary.traffic_class & ~wire::kEcnMask);
  if (req.primary.hop_limit != 0) path.hop_limit = req.primary.hop_limit;
  path.mtu = req.path_mtu;
  path.rate = req.primary.rate;
  path.sl = req.primary.sl;
  path.ack_timeout = req.primary.ack_timeout;
  return path;
}

Path path_of(const Datagram& datagram) {
  return {.netdev = datagram.netdev,
          .ca_guid = datagram.ca_guid,
          .local = datagram.destination,
          .remote = datagram.source,
          .flow_label = datagram.flow_label,
          .traffic_class = static_cast<uint8_t>(datagram.traffic_class & ~wire::kEcnMask)};
}

}  // namespace uroce::cm
