// SPDX-License-Identifier: GPL-2.0-or-later
// The CM messages: MRA, SIDR_REQ, SIDR_REP, LAP, APR whole, of those that the built-in dissector takes apart the ids
// and what rejects and ends; which messages belong together; and the service that a stream is for. Offsets: wire.md
// "RDMA CM"; LAP and APR: IBTA 12.8.
#include <array>
#include <cinttypes>

#include "dissector/plugin/fields.h"
#include "dissector/plugin/items.h"
#include "dissector/plugin/state.h"
#include "wire/bytes.h"
#include "wire/cma_header.h"

namespace uroce::dissector {

const value_string cm_mraed_names[] = {{0, "REQ"}, {1, "REP"}, {2, "LAP"}, {0, nullptr}};
const value_string cm_rejected_names[] = {{0, "REQ"}, {1, "REP"}, {2, "another"}, {0, nullptr}};

namespace {

using wire::CmAttribute;

// Names of numbers from `first` on, as wire/ has them.
template <uint32_t first, size_t count, class Name>
const value_string* names_of(Name name) {
  static const auto names = [&] {
    std::array<value_string, count + 1> all{};
    for (uint32_t i = 0; i < count; ++i) all[i] = {first + i, name(first + i)};
    return all;
  }();
  return names.data();
}

struct Field {
  CmAttribute message;
  int* field;
  uint32_t offset, size;
};
constexpr uint32_t kToTheEnd = 0;

constexpr Field kFields[] = {
    {CmAttribute::kReq, &hf_cm_local_id, 0, 4},
    {CmAttribute::kRep, &hf_cm_local_id, 0, 4},
    {CmAttribute::kRep, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kRtu, &hf_cm_local_id, 0, 4},
    {CmAttribute::kRtu, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kRej, &hf_cm_local_id, 0, 4},
    {CmAttribute::kRej, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kRej, &hf_cm_rejected, 8, 1},
    {CmAttribute::kRej, &hf_cm_reason, 10, 2},
    {CmAttribute::kDreq, &hf_cm_local_id, 0, 4},
    {CmAttribute::kDreq, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kDreq, &hf_cm_dreq_qpn, 8, 3},
    {CmAttribute::kDrep, &hf_cm_local_id, 0, 4},
    {CmAttribute::kDrep, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kMra, &hf_cm_local_id, 0, 4},
    {CmAttribute::kMra, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kMra, &hf_cm_mraed, 8, 1},
    {CmAttribute::kMra, &hf_cm_mra_timeout, 9, 1},
    {CmAttribute::kMra, &hf_cm_private, 10, kToTheEnd},
    {CmAttribute::kSidrReq, &hf_cm_request_id, 0, 4},
    {CmAttribute::kSidrReq, &hf_cm_sidr_pkey, 4, 2},
    {CmAttribute::kSidrReq, &hf_cm_service_id, 8, 8},
    {CmAttribute::kSidrReq, &hf_cm_private, 16, kToTheEnd},
    {CmAttribute::kSidrRep, &hf_cm_request_id, 0, 4},
    {CmAttribute::kSidrRep, &hf_cm_sidr_status, 4, 1},
    {CmAttribute::kSidrRep, &hf_cm_info_length, 5, 1},
    {CmAttribute::kSidrRep, &hf_cm_sidr_qpn, 8, 3},
    {CmAttribute::kSidrRep, &hf_cm_service_id, 12, 8},
    {CmAttribute::kSidrRep, &hf_cm_sidr_qkey, 20, 4},
    {CmAttribute::kSidrRep, &hf_cm_private, 96, kToTheEnd},
    {CmAttribute::kLap, &hf_cm_local_id, 0, 4},
    {CmAttribute::kLap, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kLap, &hf_cm_lap_qpn, 12, 3},
    {CmAttribute::kLap, &hf_cm_lap_response_timeout, 15, 1},
    {CmAttribute::kLap, &hf_cm_lap_local_lid, 20, 2},
    {CmAttribute::kLap, &hf_cm_lap_remote_lid, 22, 2},
    {CmAttribute::kLap, &hf_cm_lap_local_gid, 24, 16},
    {CmAttribute::kLap, &hf_cm_lap_remote_gid, 40, 16},
    {CmAttribute::kLap, &hf_cm_lap_flow_label, 56, 3},
    {CmAttribute::kLap, &hf_cm_lap_traffic_class, 59, 1},
    {CmAttribute::kLap, &hf_cm_lap_hop_limit, 60, 1},
    {CmAttribute::kLap, &hf_cm_lap_rate, 61, 1},
    {CmAttribute::kLap, &hf_cm_lap_sl, 62, 1},
    {CmAttribute::kLap, &hf_cm_lap_subnet_local, 62, 1},
    {CmAttribute::kLap, &hf_cm_lap_ack_timeout, 63, 1},
    {CmAttribute::kLap, &hf_cm_private, 64, kToTheEnd},
    {CmAttribute::kApr, &hf_cm_local_id, 0, 4},
    {CmAttribute::kApr, &hf_cm_remote_id, 4, 4},
    {CmAttribute::kApr, &hf_cm_info_length, 8, 1},
    {CmAttribute::kApr, &hf_cm_apr_status, 9, 1},
    {CmAttribute::kApr, &hf_cm_private, 84, kToTheEnd},
};

void show_fields(proto_tree* tree, tvbuff_t* tvb, const CmMessage& message) {
  const auto at = static_cast<int>(message.at);
  const auto size = static_cast<uint32_t>(message.body.size());
  for (const Field& f : kFields) {
    if (f.message != message.attribute || f.offset + (f.size == kToTheEnd ? 1 : f.size) > size) continue;
    const uint32_t length = f.size == kToTheEnd ? size - f.offset : f.size;
    const bool bytes = f.size == kToTheEnd || f.field == &hf_cm_lap_local_gid || f.field == &hf_cm_lap_remote_gid;
    proto_tree_add_item(tree, *f.field, tvb, at + static_cast<int>(f.offset), static_cast<int>(length),
                        bytes ? ENC_NA : ENC_BIG_ENDIAN);
  }
}

// Which messages belong together.
void show_links(proto_tree* tree, tvbuff_t* tvb, const CmRecord& record) {
  add_frame(tree, hf_cm_request_in, tvb, record.request_frame);
  add_time(tree, hf_cm_response_time, tvb, record.response_time);
  add_frame(tree, hf_cm_response_in, tvb, record.response_frame);
  add_frame(tree, hf_cm_original, tvb, record.first_frame);
  add_time(tree, hf_cm_resend_wait, tvb, record.since_last);
}

}  // namespace

const value_string* cm_names() {
  constexpr size_t kMessages = std::variant_size_v<wire::CmMessage>;
  return names_of<static_cast<uint32_t>(CmAttribute::kReq), kMessages>(
      [](uint32_t value) { return wire::cm_message_name(static_cast<CmAttribute>(value)); });
}
const value_string* cm_reason_names() {
  constexpr size_t kReasons = static_cast<size_t>(wire::RejReason::kVendorOption);
  return names_of<1, kReasons>(
      [](uint32_t value) { return wire::rej_reason_text(static_cast<wire::RejReason>(value)); });
}
const value_string* cm_sidr_names() {
  constexpr size_t kStatuses = static_cast<size_t>(wire::SidrStatus::kVersion) + 1;
  return names_of<0, kStatuses>(
      [](uint32_t value) { return wire::sidr_status_text(static_cast<wire::SidrStatus>(value)); });
}

const char* cm_text(packet_info* pinfo, const Datagram& datagram, const Headers& headers) {
  const auto message = find_cm_message(datagram, headers);
  if (!message) return nullptr;
  const char* const name = wire::cm_message_name(message->attribute);
  const uint8_t* const body = message->body.data();
  if (message->attribute == CmAttribute::kRej && message->body.size() >= 12) {
    const auto reason = static_cast<wire::RejReason>(wire::load_be16(body + 10));
    return wmem_strdup_printf(pinfo->pool, "%s: %s (%u)", name, wire::rej_reason_text(reason),
                              static_cast<unsigned>(reason));
  }
  if (message->attribute == CmAttribute::kSidrRep && message->body.size() > 4 && body[4] != 0) {
    return wmem_strdup_printf(pinfo->pool, "%s: %s (%u)", name,
                              wire::sidr_status_text(static_cast<wire::SidrStatus>(body[4])), body[4]);
  }
  return name;
}

const char* service_text(packet_info* pinfo, const CmExchange& exchange) {
  if (!exchange.has_service) return nullptr;
  if (const char* const space = wire::port_space_name(exchange.service)) {
    return wmem_strdup_printf(pinfo->pool, "%s port space, port %u", space, wire::service_port(exchange.service));
  }
  return wmem_strdup_printf(pinfo->pool, "service 0x%016" PRIx64, static_cast<uint64_t>(exchange.service));
}

void show_service(proto_tree* tree, tvbuff_t* tvb, const CmExchange& exchange) {
  if (!exchange.has_service) return;
  generated(proto_tree_add_uint64(tree, hf_cm_service, tvb, 0, 0, static_cast<uint64_t>(exchange.service)));
  const char* const space = wire::port_space_name(exchange.service);
  if (space == nullptr) return;
  generated(proto_tree_add_string(tree, hf_cm_port_space, tvb, 0, 0, space));
  add_uint(tree, hf_cm_port, tvb, wire::service_port(exchange.service));
  if (exchange.source_port != 0) add_uint(tree, hf_cm_source_port, tvb, exchange.source_port);
}

void show_cm(packet_info* pinfo, proto_tree* parent, const Sighting& sighting, const Headers& headers,
             const PacketRecord& record) {
  const auto message = find_cm_message(sighting.datagram, headers);
  if (!message) return;
  tvbuff_t* const tvb = sighting.tvb;
  const auto at = static_cast<int>(message->at);
  const int attribute_at = at - static_cast<int>(wire::kMadHeaderSize) + 16;
  proto_tree* const tree =
      proto_tree_add_subtree_format(parent, tvb, at, static_cast<int>(message->body.size()), ett_header, nullptr,
                                    "CM %s", cm_text(pinfo, sighting.datagram, headers));
  proto_tree_add_item(tree, hf_cm_attribute, tvb, attribute_at, 2, ENC_BIG_ENDIAN);
  show_fields(tree, tvb, *message);
  if (const CmRecord* const links = analysis->cm(record)) show_links(tree, tvb, *links);
}

}  // namespace uroce::dissector
