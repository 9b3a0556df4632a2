// SPDX-License-Identifier: GPL-2.0-or-later
// What the first pass keeps: one PacketRecord for each RoCE v2 packet, one MessageRecord for each message (at most one
// per packet), one CnpRecord for each CNP. Later passes only show it.
#pragma once

#include <cstdint>

#include "dissector/analysis/finding.h"
#include "dissector/analysis/icrc.h"

namespace uroce::dissector {

inline constexpr uint32_t kNone = 0xffffffff;

struct PacketRecord {
  uint32_t frame = 0;
  uint32_t flow = kNone;       // index into the flows
  uint32_t message = kNone;    // index into the messages; of a CNP into the CNPs
  uint32_t completed = kNone;  // of an answer: the last of the messages that it completes; see MessageRecord::also
  uint32_t expected_icrc = 0;
  Findings findings;
  IcrcStatus icrc = IcrcStatus::kUnchecked;
  bool has_psn = false;            // relative_psn counts
  bool has_flight = false;         // packets_in_flight and bytes_in_flight count
  int32_t relative_psn = 0;        // from the first request seen in the direction that the PSN belongs to
  uint32_t missing = 0;            // packets that a gap spans
  uint32_t packets_in_flight = 0;  // PSNs sent and not answered, behind this packet
  uint32_t bytes_in_flight = 0;    // request payload in them
  uint32_t related = 0;            // frame: request -> its first transmission; answer -> the request with its PSN
  uint32_t answer = 0;       // frame: request -> the answer that covers it; RNR NAK -> the packet that ended the wait
  int64_t answer_time = -1;  // answer: ns since the request with its PSN was sent last
  int64_t wait = -1;         // retransmission: ns since the last transmission; RNR NAK: until the next attempt
  int64_t recovery = -1;     // ns since the first sign of the loss that this answer repairs
};

struct MessageRecord {
  uint32_t number = 0;       // in its direction, from 0
  uint32_t first_frame = 0;  // 0: not captured
  uint32_t last_frame = 0;
  uint32_t answer_frame = 0;
  uint32_t packets = 0;  // requests, each PSN once
  uint32_t length = 0;   // bytes, once known
  bool length_known = false;
  uint8_t operation = 0;  // wire::Operation
  uint32_t also = kNone;  // the message before that the same answer completes
  int64_t start = 0;      // when the first packet was sent first
  int64_t time = -1;      // ns from there to the answer that completes it
};

struct CnpRecord {
  double rate_before = -1;  // bits per second of the flow that the CNP is about; negative: not known
  double rate_after = -1;
};

}  // namespace uroce::dissector
