// SPDX-License-Identifier: GPL-2.0-or-later
// Service response times: from a message's first request packet to the answer that completes it, by operation
// (tshark -z rocev2,srt).

#include "dissector/plugin/state.h"

namespace uroce::dissector {
namespace {

struct Row {
  wire::Operation operation;
  const char* name;
};
constexpr Row kRows[] = {{wire::Operation::kSend, "SEND"},
                         {wire::Operation::kWrite, "RDMA WRITE"},
                         {wire::Operation::kReadRequest, "RDMA READ"},
                         {wire::Operation::kCompareSwap, "COMPARE & SWAP"},
                         {wire::Operation::kFetchAdd, "FETCH & ADD"},
                         {wire::Operation::kFlush, "FLUSH"},
                         {wire::Operation::kAtomicWrite, "ATOMIC WRITE"}};
constexpr int kRowCount = static_cast<int>(array_length(kRows));

void begin(struct register_srt*, GArray* tables) {
  srt_stat_table* const table =
      init_srt_table("RoCE v2 messages", nullptr, tables, kRowCount, "Operation", nullptr, nullptr);
  for (int i = 0; i < kRowCount; ++i) init_srt_table_row(table, i, kRows[i].name);
}

void add(srt_stat_table* table, packet_info* pinfo, const MessageRecord& message) {
  if (message.time < 0) return;
  nstime_t start;
  start.secs = message.start / 1'000'000'000;
  start.nsecs = static_cast<int>(message.start % 1'000'000'000);
  for (int i = 0; i < kRowCount; ++i) {
    if (static_cast<uint8_t>(kRows[i].operation) == message.operation) add_srt_table_data(table, i, &start, pinfo);
  }
}

tap_packet_status on_packet(void* listener, packet_info* pinfo, epan_dissect_t*, const void* data, tap_flags_t) {
  const auto& packet = *static_cast<const TapPacket*>(data);
  if (packet.record->completed == kNone) return TAP_PACKET_DONT_REDRAW;
  auto* const tables = static_cast<srt_data_t*>(listener)->srt_array;
  srt_stat_table* const table = g_array_index(tables, srt_stat_table*, 0);
  analysis->for_completed(*packet.record, [&](const MessageRecord& message) { add(table, pinfo, message); });
  return TAP_PACKET_REDRAW;
}

}  // namespace

void register_response_times() {
  register_srt_table(proto_rocev2, "rocev2", 1, on_packet, begin, nullptr);
}

}  // namespace uroce::dissector
