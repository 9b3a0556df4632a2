// SPDX-License-Identifier: BSD-2-Clause
#include "capture/comment.h"

#include "base/counters.h"

namespace uroce::io {
namespace {

// Counters that say nothing about the packet on whose account they moved.
constexpr uint64_t bit(Counter counter) {
  return uint64_t{1} << static_cast<uint8_t>(counter);
}
constexpr uint64_t kOrdinary = bit(Counter::kRxRequests) | bit(Counter::kRxAcks) | bit(Counter::kRxCnps) |
                               bit(Counter::kTxAcks) | bit(Counter::kTxCnps) | bit(Counter::kTxNaks) |
                               bit(Counter::kTxRnrNaks) | bit(Counter::kTxReadResponses) | bit(Counter::kTxRequests) |
                               bit(Counter::kPaced);

// Of one packet, where the counters speak of many.
const char* verdict_text(Counter counter) {
  switch (counter) {
    case Counter::kRxDuplicates:
      return "duplicate request";
    case Counter::kRxOutOfSequence:
      return "ahead of the expected PSN";
    case Counter::kRxPsnNaks:
      return "NAK: the peer misses this PSN";
    case Counter::kRxRnrNaks:
      return "RNR NAK: the peer has no receive request";
    case Counter::kRxFatalNaks:
      return "NAK that ends the QP";
    case Counter::kRxImpliedNaks:
      return "implied NAK: a response was lost";
    case Counter::kRxCongestionMarks:
      return "congestion mark (CE)";
    case Counter::kCqOverruns:
      return "the completion queue overran";
    default:
      return Counters::text(counter);
  }
}

void append(std::string& text, const char* remark) {
  if (!text.empty()) text += "; ";
  text += remark;
}

// What is sent is shown as it was meant: the injector changes it afterwards.
void append_faults(const CapturedPacket& packet, std::string& text) {
  const struct {
    Fault fault;
    const char *sent, *received;
  } kTexts[] = {
      {kFaultDropped, "fault injected: dropped on send", "fault injected: dropped on receive"},
      {kFaultDuplicated, "fault injected: sent twice", "fault injected: second copy"},
      {kFaultReordered, "fault injected: sent behind later packets",
       "fault injected: held back, later packets went ahead"},
      {kFaultCorrupted, "fault injected: sent with one bit flipped", "fault injected: one bit flipped"},
  };
  for (const auto& each : kTexts) {
    if (packet.faults & each.fault) append(text, packet.outbound ? each.sent : each.received);
  }
}

}  // namespace

void capture_comment(const CapturedPacket& packet, std::string& text) {
  if (packet.missing > 0) {
    append(text, "capture: ");
    text += std::to_string(packet.missing);
    text += packet.missing == 1 ? " packet is missing before this one" : " packets are missing before this one";
  }
  if (packet.reason != io::SendReason::kFirst) append(text, io::text(packet.reason));
  if (packet.malformed != wire::FrameError::kNone) {
    append(text, "drop: not a well-formed IP/UDP packet: ");
    text += wire::frame_error_text(packet.malformed);
  }
  append_faults(packet, text);
  for (uint64_t rest = packet.verdict & ~kOrdinary; rest != 0; rest &= rest - 1) {
    append(text, verdict_text(static_cast<Counter>(__builtin_ctzll(rest))));
  }
}

}  // namespace uroce::io
