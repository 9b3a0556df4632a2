// SPDX-License-Identifier: GPL-2.0-or-later
// What the first pass keeps: one PacketRecord for each RoCE v2 packet, one MessageRecord for each message (at most one
// per packet), one CnpRecord for each CNP, one CmRecord for each message of the communication management. Later passes
// only show it.
#pragma once

#include <cstdint>

#include "dissector/analysis/finding.h"
#include "dissector/analysis/icrc.h"
#include "wire/cm_message.h"
#include "wire/opcode.h"

namespace uroce::dissector {

inline constexpr uint32_t kNone = 0xffffffff;

struct PacketRecord {
  Findings findings;
  uint32_t frame = 0;
  uint32_t flow = kNone;       // index into the flows
  uint32_t message = kNone;    // index into the messages; of a CNP into the CNPs, of CM into those
  uint32_t completed = kNone;  // of an answer: the last of the messages that it completes; see MessageRecord::also
  uint32_t expected_icrc = 0;
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

// A message of the communication management. Frames: 0 is none that was captured.
struct CmRecord {
  uint32_t exchange = kNone;    // index into the exchanges
  uint32_t request_frame = 0;   // what it answers, as it was sent last
  uint32_t response_frame = 0;  // what answers it
  uint32_t first_frame = 0;     // the same message, when it was sent first
  int64_t response_time = -1;   // ns since the request was sent last
  int64_t since_last = -1;      // ns since this message was sent last
};

// A message that wants an answer, and may come again until it has one.
struct CmQuestion {
  uint32_t count = 0;
  uint32_t first_frame = 0, last_frame = 0;
  uint32_t last_cm = kNone;  // index into the CmRecords
  int64_t last_time = 0;
  bool answered = false;
};

// From REQ to DREP, or from SIDR_REQ to SIDR_REP.
struct CmExchange {
  wire::IpAddress requester, responder;
  uint32_t stream = 0;
  uint32_t first_frame = 0, last_frame = 0;
  bool has_service = false;  // else the beginning was not captured
  bool over = false;
  wire::Transport transport{};
  wire::ServiceId service{};
  uint16_t source_port = 0;  // 0: none was said
  uint64_t transaction = 0;
  uint32_t qpn = 0;                                // the requester's
  wire::Psn responder_starts;                      // the PSN that the requester asks the other side to start with
  uint32_t answered_qpn = 0xffffffff;              // the QPN of the REP that was seen
  CmQuestion request, reply, disconnect[2], path;  // disconnect: of the responder, of the requester
};

}  // namespace uroce::dissector
