// SPDX-License-Identifier: GPL-2.0-or-later
// The CM messages that the built-in dissector does not take apart: MRA, SIDR_REQ, SIDR_REP, LAP, APR; of the others
// their name only. Offsets: wire.md "RDMA CM"; LAP and APR: IBTA 12.8.
#include "dissector/plugin/fields.h"
#include "dissector/plugin/state.h"

namespace uroce::dissector {

const value_string cm_names[] = {{0x10, "REQ"},      {0x11, "MRA"},  {0x12, "REJ"},  {0x13, "REP"},
                                 {0x14, "RTU"},      {0x15, "DREQ"}, {0x16, "DREP"}, {0x17, "SIDR_REQ"},
                                 {0x18, "SIDR_REP"}, {0x19, "LAP"},  {0x1a, "APR"},  {0, nullptr}};
const value_string cm_mraed_names[] = {{0, "REQ"}, {1, "REP"}, {2, "LAP"}, {0, nullptr}};
const value_string cm_sidr_names[] = {{0, "valid"},      {1, "service ID not supported"}, {2, "rejected"}, {3, "no QP"},
                                      {4, "redirected"}, {5, "version not supported"},    {0, nullptr}};

namespace {

struct Field {
  CmAttribute message;
  int* field;
  uint32_t offset, size;
};
constexpr uint32_t kToTheEnd = 0;

constexpr Field kFields[] = {
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

}  // namespace

const char* cm_message_name(const Datagram& datagram, const Headers& headers) {
  const auto message = find_cm_message(datagram, headers);
  return message ? val_to_str_const(static_cast<uint32_t>(message->attribute), cm_names, "?") : nullptr;
}

void show_cm(proto_tree* parent, const Sighting& sighting, const Headers& headers) {
  const auto message = find_cm_message(sighting.datagram, headers);
  if (!message) return;
  tvbuff_t* const tvb = sighting.tvb;
  const auto at = static_cast<int>(message->at);
  const auto size = static_cast<uint32_t>(message->body.size());
  const int attribute_at = at - static_cast<int>(kMadHeaderSize) + 16;
  proto_tree* const tree =
      proto_tree_add_subtree_format(parent, tvb, at, static_cast<int>(size), ett_header, nullptr, "CM %s",
                                    val_to_str_const(static_cast<uint32_t>(message->attribute), cm_names, "?"));
  proto_tree_add_item(tree, hf_cm_attribute, tvb, attribute_at, 2, ENC_BIG_ENDIAN);
  for (const Field& f : kFields) {
    if (f.message != message->attribute || f.offset + (f.size == kToTheEnd ? 1 : f.size) > size) continue;
    const uint32_t length = f.size == kToTheEnd ? size - f.offset : f.size;
    const bool bytes = f.size == kToTheEnd || f.field == &hf_cm_lap_local_gid || f.field == &hf_cm_lap_remote_gid;
    proto_tree_add_item(tree, *f.field, tvb, at + static_cast<int>(f.offset), static_cast<int>(length),
                        bytes ? ENC_NA : ENC_BIG_ENDIAN);
  }
}

}  // namespace uroce::dissector
