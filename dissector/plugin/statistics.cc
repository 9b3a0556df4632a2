// SPDX-License-Identifier: GPL-2.0-or-later
// The statistics trees: opcodes, and per stream packets, findings, retransmission and CNP rates (tshark -z rocev2,tree
// and -z rocev2_streams,tree). Wireshark adds rate, burst and share to each row.
#include <cstdio>

#include "dissector/plugin/fields.h"
#include "dissector/plugin/state.h"

namespace uroce::dissector {
namespace {

constexpr const char* kPackets = "RoCE v2 packets";
constexpr const char* kFindingsNode = "Findings";
constexpr const char* kStreams = "Streams";

int packets_node, findings_node, streams_node;

void begin_totals(stats_tree* st) {
  packets_node = stats_tree_create_node(st, kPackets, 0, STAT_DT_INT, TRUE);
  findings_node = stats_tree_create_node(st, kFindingsNode, 0, STAT_DT_INT, TRUE);
}

tap_packet_status count_totals(stats_tree* st, packet_info*, epan_dissect_t*, const void* data, tap_flags_t) {
  const auto& packet = *static_cast<const TapPacket*>(data);
  tick_stat_node(st, kPackets, 0, FALSE);
  const char* const opcode =
      packet.headers->has_bth ? opcode_name(static_cast<uint8_t>(packet.headers->bth.opcode)) : "headers not there";
  tick_stat_node(st, opcode, packets_node, FALSE);
  const Findings& findings = packet.record->findings;
  if (!findings.any()) return TAP_PACKET_REDRAW;
  tick_stat_node(st, kFindingsNode, 0, FALSE);
  if (findings.is_retransmission()) tick_stat_node(st, "retransmission", findings_node, FALSE);
  for (const FindingInfo& info : kFindings) {
    if (findings.has(info.finding)) tick_stat_node(st, info.name, findings_node, FALSE);
  }
  return TAP_PACKET_REDRAW;
}

void begin_streams(stats_tree* st) {
  streams_node = stats_tree_create_node(st, kStreams, 0, STAT_DT_INT, TRUE);
}

tap_packet_status count_streams(stats_tree* st, packet_info*, epan_dissect_t*, const void* data, tap_flags_t) {
  const auto& packet = *static_cast<const TapPacket*>(data);
  if (packet.flow == nullptr) return TAP_PACKET_DONT_REDRAW;
  char name[32];
  std::snprintf(name, sizeof name, "stream %u", packet.stream);
  tick_stat_node(st, kStreams, 0, FALSE);
  const int stream = tick_stat_node(st, name, streams_node, TRUE);
  const Findings& findings = packet.record->findings;
  if (packet.headers->has_bth) {
    tick_stat_node(st, packet.headers->info->request ? "requests" : "answers", stream, FALSE);
  }
  if (findings.is_retransmission()) tick_stat_node(st, "retransmission", stream, FALSE);
  for (const FindingInfo& info : kFindings) {
    if (findings.has(info.finding)) tick_stat_node(st, info.name, stream, FALSE);
  }
  return TAP_PACKET_REDRAW;
}

}  // namespace

void register_statistics() {
  stats_tree_register_plugin("rocev2", "rocev2", "RoCE v2/Opcodes and findings", 0, count_totals, begin_totals,
                             nullptr);
  stats_tree_register_plugin("rocev2", "rocev2_streams", "RoCE v2/Streams", 0, count_streams, begin_streams, nullptr);
}

}  // namespace uroce::dissector
