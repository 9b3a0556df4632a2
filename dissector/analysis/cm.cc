// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/cm.h"

#include <cstring>

#include "wire/bytes.h"

namespace uroce::dissector {
namespace {

constexpr uint8_t kCmClass = 7;
constexpr uint8_t kSendMethod = 3;
constexpr size_t kReqSize = 140, kRepSize = 36;  // without private data

// REQ byte 43, bits 2-1, and byte 51, bits 2-0 (wire.md "RDMA CM").
wire::Transport transport_of(std::span<const uint8_t> req) {
  switch (req[43] >> 1 & 3) {
    case 1:
      return wire::Transport::kUc;
    case 3:
      return wire::Transport::kXrc;
    default:
      return wire::Transport::kRc;
  }
}

}  // namespace

std::optional<CmMessage> find_cm_message(const Datagram& datagram, const Headers& headers) {
  if (!headers.usable() || !headers.info->has_deth || headers.bth.dest_qp != wire::kGsiQpn) return {};
  const uint32_t mad = headers.info->header_size;
  const size_t end = std::min<size_t>(datagram.ib.size(), mad + headers.payload_size);
  if (end < mad + kMadHeaderSize) return {};
  const uint8_t* const header = datagram.ib.data() + mad;
  if (header[0] != 1 || header[1] != kCmClass || header[3] != kSendMethod) return {};
  const uint16_t attribute = wire::load_be16(header + 16);
  if (attribute < static_cast<uint16_t>(CmAttribute::kReq) || attribute > static_cast<uint16_t>(CmAttribute::kApr))
    return {};
  const uint32_t at = mad + kMadHeaderSize;
  return CmMessage{static_cast<CmAttribute>(attribute), at, datagram.ib.subspan(at, end - at)};
}

size_t CmTracker::KeyHash::operator()(const Key& key) const {
  uint64_t halves[2];
  std::memcpy(halves, key.requester.bytes.data(), sizeof halves);
  return std::hash<uint64_t>()((halves[0] ^ halves[1]) * 0x9e3779b97f4a7c15u + key.comm_id);
}

void CmTracker::on_message(const Datagram& datagram, const CmMessage& message, FlowTable& flows) {
  const uint8_t* const body = message.body.data();
  if (message.attribute == CmAttribute::kReq && message.body.size() >= kReqSize) {
    if (requests_.size() >= kMostRequests) requests_.clear();
    const Key key{datagram.source, wire::load_be32(body)};
    const Request request{wire::load_be24(body + 32), wire::Psn(wire::load_be24(body + 44)),
                          transport_of(message.body)};
    const auto known = requests_.find(key);
    if (known != requests_.end() && known->second.qpn == request.qpn &&
        known->second.responder_starts == request.responder_starts) {
      return;  // the REQ again
    }
    requests_.insert_or_assign(key, request);
    return;
  }
  if (message.attribute != CmAttribute::kRep || message.body.size() < kRepSize) return;
  const auto found = requests_.find({datagram.destination, wire::load_be32(body + 4)});
  if (found == requests_.end()) return;
  Request& request = found->second;
  const bool xrc = request.transport == wire::Transport::kXrc;
  const uint32_t qpn = wire::load_be24(body + (xrc ? 16 : 12));
  if (request.answered_qpn == qpn) return;  // the REP again
  request.answered_qpn = qpn;
  const FlowKey forth{datagram.destination, datagram.source, qpn};
  const FlowKey back{datagram.source, datagram.destination, request.qpn};
  flows.connect(forth, wire::Psn(wire::load_be24(body + 20)), back, request.responder_starts, request.transport);
}

}  // namespace uroce::dissector
