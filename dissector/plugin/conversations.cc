// SPDX-License-Identifier: GPL-2.0-or-later
// Conversations (one per stream: addresses and QPNs) and endpoints (one per QP), in the windows of Wireshark and with
// tshark -z conv,rocev2 and -z endpoints,rocev2.

#include "dissector/plugin/state.h"

namespace uroce::dissector {
namespace {

// The filter field for one part of a row.
const char* filter_field(bool v6, conv_filter_type_e part) {
  switch (part) {
    case CONV_FT_SRC_ADDRESS:
      return v6 ? "ipv6.src" : "ip.src";
    case CONV_FT_DST_ADDRESS:
      return v6 ? "ipv6.dst" : "ip.dst";
    case CONV_FT_ANY_ADDRESS:
      return v6 ? "ipv6.addr" : "ip.addr";
    case CONV_FT_SRC_PORT:
      return "rocev2.srcqp";
    case CONV_FT_DST_PORT:
      return "rocev2.destqp";
    case CONV_FT_ANY_PORT:
      return "rocev2.qpn";
  }
  return CONV_FILTER_INVALID;
}

const char* conversation_filter(conv_item_t* item, conv_filter_type_e part) {
  return filter_field(item->src_address.type == AT_IPv6, part);
}
const char* endpoint_filter(endpoint_item_t* item, conv_filter_type_e part) {
  return filter_field(item->myaddress.type == AT_IPv6, part);
}

ct_dissector_info_t conversation_info = {conversation_filter};
et_dissector_info_t endpoint_info = {endpoint_filter};

// While the QPN of the source is not known: 0, which no data QP has.
uint32_t source_qpn(const TapPacket& packet) {
  return packet.source_qpn == FlowKey::kConnected ? 0 : packet.source_qpn;
}

tap_packet_status on_conversation(void* table, packet_info* pinfo, epan_dissect_t*, const void* data,
                                  tap_flags_t flags) {
  const auto& packet = *static_cast<const TapPacket*>(data);
  if (packet.flow == nullptr) return TAP_PACKET_DONT_REDRAW;
  auto* const hash = static_cast<conv_hash_t*>(table);
  hash->flags = flags;
  // Keyed by the stream: its packets count together even if the first ones did not know their source QPN.
  add_conversation_table_data_with_conv_id(hash, &packet.source, &packet.destination, source_qpn(packet),
                                           packet.flow->key.destination_qpn, packet.flow->stream, 1,
                                           static_cast<int>(pinfo->fd->pkt_len), &pinfo->rel_ts, &pinfo->abs_ts,
                                           &conversation_info, CONVERSATION_IBQP);
  return TAP_PACKET_REDRAW;
}

tap_packet_status on_endpoint(void* table, packet_info* pinfo, epan_dissect_t*, const void* data, tap_flags_t flags) {
  const auto& packet = *static_cast<const TapPacket*>(data);
  if (packet.flow == nullptr) return TAP_PACKET_DONT_REDRAW;
  auto* const hash = static_cast<conv_hash_t*>(table);
  hash->flags = flags;
  const auto size = static_cast<int>(pinfo->fd->pkt_len);
  add_endpoint_table_data(hash, &packet.source, source_qpn(packet), TRUE, 1, size, &endpoint_info, ENDPOINT_NONE);
  add_endpoint_table_data(hash, &packet.destination, packet.flow->key.destination_qpn, FALSE, 1, size, &endpoint_info,
                          ENDPOINT_NONE);
  return TAP_PACKET_REDRAW;
}

}  // namespace

void register_conversations() {
  register_conversation_table(proto_rocev2, FALSE, on_conversation, on_endpoint);
}

}  // namespace uroce::dissector
