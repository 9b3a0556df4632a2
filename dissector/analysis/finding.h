// SPDX-License-Identifier: GPL-2.0-or-later
// What the analysis can find in a packet, as one table: the analysis sets bits, the plugin makes of each row an expert
// item with a filter field "rocev2.analysis.<name>".
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::dissector {

enum class Finding : uint8_t {
  kPsnGap,
  kOutOfOrder,
  kTimeoutRetransmission,
  kNakRetransmission,
  kRnrRetransmission,
  kImpliedNakRetransmission,
  kSpuriousRetransmission,
  kDuplicatePacket,
  kDuplicateRequest,
  kDuplicateAck,
  kAckUnseen,
  kNakSequence,
  kNakInvalidRequest,
  kNakRemoteAccess,
  kNakRemoteOperational,
  kNakOther,
  kRnrNak,
  kRnrNotHonoured,
  kImpliedNak,
  kResponseGap,
  kResponseReplay,
  kZeroCredits,
  kNoProgress,
  kOpcodeSequence,
  kLength,
  kPsnJump,
  kRecovered,
  kCongestionMarked,
  kCnp,
  kRateCut,
  kCmRetransmission,
  kCmNoAnswer,
  kCmReject,
  kCmMra,
  kCmUnseen,
  kCmIdReuse,
  kBadIcrc,
  kBadIpChecksum,
  kCount,
};

enum class FindingSeverity : uint8_t { kChat, kNote, kWarning, kError };
enum class FindingGroup : uint8_t { kSequence, kProtocol, kChecksum, kResponse };

struct FindingInfo {
  Finding finding;
  const char* name;   // of the filter field, behind "rocev2.analysis."
  const char* label;  // for the packet list, short; null: not shown there
  const char* text;
  FindingSeverity severity;
  FindingGroup group;
};

// In the order of the enumeration.
inline constexpr FindingInfo kFindings[] = {
    {Finding::kPsnGap, "psn_gap", "PSN gap", "PSN gap: requests before this one were not captured (lost or late)",
     FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kOutOfOrder, "out_of_order", "Out of order", "Out of order: overtaken by packets that were sent later",
     FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kTimeoutRetransmission, "timeout_retransmission", "Retransmission: timeout",
     "Retransmission after a timeout: nothing that was captured asked for it", FindingSeverity::kWarning,
     FindingGroup::kSequence},
    {Finding::kNakRetransmission, "nak_retransmission", "Retransmission: NAK",
     "Retransmission that a PSN sequence error NAK asked for", FindingSeverity::kNote, FindingGroup::kSequence},
    {Finding::kRnrRetransmission, "rnr_retransmission", "Retransmission: RNR", "Retransmission after an RNR NAK",
     FindingSeverity::kNote, FindingGroup::kSequence},
    {Finding::kImpliedNakRetransmission, "implied_nak_retransmission", "Retransmission: implied NAK",
     "Retransmission after an answer that passed an unanswered READ or atomic", FindingSeverity::kNote,
     FindingGroup::kSequence},
    {Finding::kSpuriousRetransmission, "spurious_retransmission", "Retransmission: spurious",
     "Spurious retransmission: the request was answered before", FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kDuplicatePacket, "duplicate_packet", "Duplicate packet",
     "Duplicate packet: the same packet again, by the network or by the capture", FindingSeverity::kNote,
     FindingGroup::kSequence},
    {Finding::kDuplicateRequest, "duplicate_request", nullptr,
     "Duplicate request: the responder has executed it and answers again", FindingSeverity::kNote,
     FindingGroup::kSequence},
    {Finding::kDuplicateAck, "duplicate_ack", "Duplicate ACK", "Duplicate ACK: acknowledges nothing new",
     FindingSeverity::kNote, FindingGroup::kSequence},
    {Finding::kAckUnseen, "ack_unseen", "ACK of unseen request", "Answer to a request that was not captured",
     FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kNakSequence, "nak_psn_sequence_error", "NAK: PSN sequence error",
     "NAK: PSN sequence error, the responder misses the request with this PSN", FindingSeverity::kWarning,
     FindingGroup::kResponse},
    {Finding::kNakInvalidRequest, "nak_invalid_request", "NAK: invalid request",
     "NAK: invalid request; ends the connection", FindingSeverity::kError, FindingGroup::kResponse},
    {Finding::kNakRemoteAccess, "nak_remote_access_error", "NAK: remote access error",
     "NAK: remote access error (R_Key, bounds or rights); ends the connection", FindingSeverity::kError,
     FindingGroup::kResponse},
    {Finding::kNakRemoteOperational, "nak_remote_operational_error", "NAK: remote operational error",
     "NAK: remote operational error; ends the connection", FindingSeverity::kError, FindingGroup::kResponse},
    {Finding::kNakOther, "nak_other", "NAK: reserved code", "NAK or syndrome with a code that RoCE v2 does not use",
     FindingSeverity::kError, FindingGroup::kResponse},
    {Finding::kRnrNak, "rnr_nak", "RNR NAK", "RNR NAK: no receive request was posted", FindingSeverity::kNote,
     FindingGroup::kResponse},
    {Finding::kRnrNotHonoured, "rnr_not_honoured", "RNR wait not honoured",
     "Sent again before the wait that the RNR NAK asked for was over (or the NAK was lost behind the capture)",
     FindingSeverity::kWarning, FindingGroup::kProtocol},
    {Finding::kImpliedNak, "implied_nak", "Implied NAK", "Passes an unanswered READ or atomic: an implied NAK for it",
     FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kResponseGap, "response_gap", "READ response gap",
     "Gap in the READ responses: some before this one were not captured", FindingSeverity::kWarning,
     FindingGroup::kSequence},
    {Finding::kResponseReplay, "response_replay", "READ response replay",
     "Response that was sent again: replay for a repeated READ or atomic", FindingSeverity::kNote,
     FindingGroup::kSequence},
    {Finding::kZeroCredits, "zero_credits", "Zero credits", "The responder grants no credits: no receive request left",
     FindingSeverity::kNote, FindingGroup::kResponse},
    {Finding::kNoProgress, "no_progress", "No progress",
     "The third or a later attempt from the same PSN without progress", FindingSeverity::kWarning,
     FindingGroup::kSequence},
    {Finding::kOpcodeSequence, "opcode_sequence", "Opcode sequence", "Opcode that may not follow the packet before",
     FindingSeverity::kError, FindingGroup::kProtocol},
    {Finding::kLength, "length", "Length violation", "Payload or message length that the opcode or the RETH forbids",
     FindingSeverity::kError, FindingGroup::kProtocol},
    {Finding::kPsnJump, "psn_jump", "PSN jump",
     "PSN far from all before: a new connection with the same QPNs, or much was not captured; a new stream begins",
     FindingSeverity::kNote, FindingGroup::kSequence},
    {Finding::kRecovered, "recovered", "Recovered", "The loss is repaired: all that was under way then is answered",
     FindingSeverity::kChat, FindingGroup::kSequence},
    {Finding::kCongestionMarked, "ce", "CE", "Congestion experienced: marked by a switch", FindingSeverity::kChat,
     FindingGroup::kSequence},
    {Finding::kCnp, "cnp", nullptr, "Congestion notification", FindingSeverity::kChat, FindingGroup::kSequence},
    {Finding::kRateCut, "rate_cut", nullptr, "The sender slowed down by a tenth or more after this CNP",
     FindingSeverity::kChat, FindingGroup::kSequence},
    {Finding::kCmRetransmission, "cm_retransmission", "CM retransmission",
     "Retransmission of a CM message: no answer came in time", FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kCmNoAnswer, "cm_no_answer", "CM no answer",
     "The third or a later attempt of a CM message without answer", FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kCmReject, "cm_reject", "CM rejected", "Rejected by the CM", FindingSeverity::kWarning,
     FindingGroup::kResponse},
    {Finding::kCmMra, "cm_mra", "CM wait", "MRA: the answer takes longer, nothing is sent again before",
     FindingSeverity::kNote, FindingGroup::kResponse},
    {Finding::kCmUnseen, "cm_unseen", "CM answer to unseen", "Answer to a CM message that was not captured",
     FindingSeverity::kWarning, FindingGroup::kSequence},
    {Finding::kCmIdReuse, "cm_id_reuse", "CM id reuse",
     "Request with a communication id whose last connection was not seen to end", FindingSeverity::kNote,
     FindingGroup::kSequence},
    {Finding::kBadIcrc, "bad_icrc", "Bad ICRC", "Bad ICRC: the receiver drops this packet", FindingSeverity::kError,
     FindingGroup::kChecksum},
    {Finding::kBadIpChecksum, "bad_ip_checksum", "Bad IP checksum",
     "Bad IPv4 header checksum: the receiver drops this packet", FindingSeverity::kError, FindingGroup::kChecksum},
};
static_assert(sizeof kFindings / sizeof kFindings[0] == static_cast<size_t>(Finding::kCount));

class Findings {
 public:
  void add(Finding finding) { bits_ |= bit(finding); }
  void set(Finding finding, bool found) { bits_ = found ? bits_ | bit(finding) : bits_ & ~bit(finding); }
  bool has(Finding finding) const { return (bits_ & bit(finding)) != 0; }
  bool any() const { return bits_ != 0; }
  // Sent again by the requester, for whatever reason.
  bool is_retransmission() const {
    return (bits_ & (bit(Finding::kTimeoutRetransmission) | bit(Finding::kNakRetransmission) |
                     bit(Finding::kRnrRetransmission) | bit(Finding::kImpliedNakRetransmission) |
                     bit(Finding::kSpuriousRetransmission))) != 0;
  }

 private:
  static constexpr uint64_t bit(Finding finding) { return uint64_t{1} << static_cast<uint8_t>(finding); }
  uint64_t bits_ = 0;
};
static_assert(static_cast<size_t>(Finding::kCount) <= 64);

}  // namespace uroce::dissector
