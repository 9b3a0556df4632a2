// SPDX-License-Identifier: BSD-2-Clause
// The rules of a reliable connection, and of its making and ending by the connection manager, that the oracle judges,
// with their clauses in IBTA volume 1. One table: judges name a rule, reports print it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::oracle {

enum class Severity : uint8_t {
  kError,  // breaks the specification
  kQuirk,  // breaks it in a way that well-known endpoints do and everybody copes with
  kNote,   // worth a look
};

// name, text for reports and for people who look for it, severity, what the rule asks, clause
#define UROCE_RULES(X)                                                                                                \
  /* every packet */                                                                                                  \
  X(kFrame, "frame", kError, "IP and UDP headers agree with each other", "annex A17")                                 \
  X(kOpcode, "opcode", kError, "only opcodes that are defined", "9.2.1")                                              \
  X(kTver, "tver", kError, "transport header version 0", "9.2")                                                       \
  X(kPad, "pad", kError, "zero to three pad bytes that fill up four, all zero", "9.2")                                \
  X(kPkey, "pkey", kError, "the same P_Key throughout a connection", "9.2")                                           \
  X(kDestination, "destination", kError, "only to the QP it is connected to", "9.2")                                  \
  X(kIcrc, "icrc", kError, "right ICRC", "7.8.1")                                                                     \
  X(kLength, "length", kError, "headers and payload of the length that the opcode has", "9.6")                        \
  X(kSendsAfterFatal, "sends-after-fatal", kError, "silence after a NAK that ends the connection", "9.9.2")           \
  /* requester */                                                                                                     \
  X(kPsnConsecutive, "psn-consecutive", kError, "new requests have consecutive PSNs", "9.7.3.1")                      \
  X(kPsnWindow, "psn-window", kError, "fewer than 2^23 PSNs outstanding", "9.7.3.1")                                  \
  X(kOpcodeSequence, "opcode-sequence", kError, "First, Middle, Last of one message in a row", "9.7.3.2")             \
  X(kPayloadSize, "payload-size", kError, "First and Middle full, Last 1 to PMTU, Only up to PMTU", "9.7.3.3")        \
  X(kMessageLength, "message-length", kError, "packets of a WRITE add up to its RETH length", "9.7.3.3")              \
  X(kMessageTooLong, "message-too-long", kError, "messages of at most 2^31 bytes", "9.7.3.3")                         \
  X(kSolicited, "solicited", kError, "SE only where a receive request is completed", "9.2")                           \
  X(kResendDiffers, "resend-differs", kError, "what is sent again is the same packet", "9.7.3.1")                     \
  X(kResendsAcknowledged, "resends-acknowledged", kError, "nothing is sent again that was acknowledged", "9.7.6.1")   \
  X(kGoBackOrder, "go-back-order", kError, "after going back it continues in order", "9.7.3.1")                       \
  X(kNakIgnored, "nak-ignored", kError, "a PSN NAK is answered from its PSN on", "9.7.6.1")                           \
  X(kRnrWait, "rnr-wait", kError, "nothing behind an RNR NAK before its time is over", "9.7.5.2.8")                   \
  X(kRnrBudget, "rnr-budget", kError, "at most rnr_retry answers to RNR NAKs", "9.9.2")                               \
  X(kRetryBudget, "retry-budget", kError, "at most retry_cnt retries without progress", "9.7.6.1.3")                  \
  X(kRdAtomicDepth, "rd-atomic-depth", kError, "at most max_rd_atomic READs and atomics outstanding", "9.7.3.1")      \
  X(kCreditLimit, "credit-limit", kError, "beyond the credits one packet of a SEND at a time", "9.7.7.2")             \
  X(kNotPosted, "not-posted", kError, "what is sent was posted", "10.8.3")                                            \
  X(kCompletionOrder, "completion-order", kError, "completions once and in the order of posting", "10.8.5")           \
  X(kCompletionEarly, "completion-early", kError, "success only after the acknowledgement", "9.7.6.1")                \
  X(kCompletionMissing, "completion-missing", kError, "what was acknowledged completes", "9.7.6.1")                   \
  /* responder */                                                                                                     \
  X(kAcksUnreceived, "acks-unreceived", kError, "only what arrived in order is acknowledged", "9.7.5.1.2")            \
  X(kAcksInvalid, "acks-invalid", kError, "a message of wrong opcodes or sizes is refused", "9.7.4.1")                \
  X(kNakPsn, "nak-psn", kError, "a PSN NAK carries the expected PSN, and something ahead of it arrived", "9.7.5.1")   \
  X(kOneNakPerGap, "one-nak-per-gap", kError, "one PSN NAK for a gap", "9.7.5.1")                                     \
  X(kNakAfterRnr, "nak-after-rnr", kError, "no PSN NAK from an RNR NAK to the return of its PSN", "9.7.5.2.8")        \
  X(kRnrPlace, "rnr-place", kError, "RNR NAK only for a request that needs a resource", "9.7.5.2.8")                  \
  X(kMsn, "msn", kError, "MSN is the number of completed messages", "9.7.7.1")                                        \
  X(kDuplicateAnswer, "duplicate-answer", kError, "duplicates of SEND and WRITE are answered by ACKs", "9.7.5.1")     \
  X(kResponseOrder, "response-order", kError, "responses in PSN order, ACKs do not overtake READs", "9.7.5.1")        \
  X(kResponseUnrequested, "response-unrequested", kError, "READ responses and atomic ACKs only for such requests",    \
    "9.7.5.1")                                                                                                        \
  X(kResponsePosition, "response-position", kError, "First, Middle, Last or Only as the READ's length asks",          \
    "9.7.5.1")                                                                                                        \
  X(kResponseSize, "response-size", kError, "full responses but for the last, as long as requested", "9.7.5.1")       \
  X(kReplayBegin, "replay-begin", kQuirk, "a repeated READ begins with First or Only", "9.7.5.1")                     \
  X(kAtomicReplay, "atomic-replay", kError, "a repeated atomic gets the original answer", "9.7.5.1")                  \
  X(kResponderDepth, "responder-depth", kError, "more than max_dest_rd_atomic READs and atomics are refused",         \
    "9.7.4.1")                                                                                                        \
  X(kUnanswered, "unanswered", kError, "a request that asks for it is acknowledged", "9.7.5.1")                       \
  X(kSyndrome, "syndrome", kError, "no reserved syndromes, READ responses say ACK", "9.7.5.2")                        \
  X(kCredits, "credits", kError, "credits exactly where receive requests are counted", "9.7.7.2")                     \
  /* connection management: clauses as far as they are known without reading them again (conformance.md) */           \
  X(kCmPacket, "cm-packet", kError, "UD SEND Only of 256 bytes from QP1 to QP1, Q_Key 80010000, default P_Key",       \
    "13.5")                                                                                                           \
  X(kCmHeader, "cm-header", kError, "base version 1, class version 2, method Send, status 0, a message of the CM",    \
    "13.4, 12.6")                                                                                                     \
  X(kCmReserved, "cm-reserved", kError, "reserved bits are zero", "12.6")                                             \
  X(kCmField, "cm-field", kError, "fields in their range, and what RoCE v2 makes of them", "12.7, annex A17")         \
  X(kCmNames, "cm-names", kQuirk, "a service of an IP port space: IP addresses in front of the private data",         \
    "annex A11")                                                                                                      \
  X(kCmId, "cm-id", kError, "communication ids: not zero, one connection at a time, the other side's as it said",     \
    "12.7")                                                                                                           \
  X(kCmTransaction, "cm-transaction", kError, "an answer repeats the transaction id", "13.4, 12.6")                   \
  X(kCmResendDiffers, "cm-resend-differs", kError, "what is sent again is the same message", "12.9")                  \
  X(kCmResendEarly, "cm-resend-early", kError, "nothing again before the response timeout, or the MRA's", "12.9")     \
  X(kCmRetries, "cm-retries", kError, "nothing again more often than Max CM Retries", "12.9")                         \
  X(kCmOrder, "cm-order", kError, "messages only in states that have them", "12.9")                                   \
  X(kCmReject, "cm-reject", kError, "REJ: the right message, a reason, and its information", "12.6.7")                \
  X(kCmDepth, "cm-depth", kQuirk, "a REP grants no more READs and atomics than the REQ asks for", "12.7")             \
  X(kCmSidr, "cm-sidr", kError, "SIDR_REP: the request's id and service, a status, and a QP if it is valid", "12.11") \
  X(kCmUnanswered, "cm-unanswered", kError, "what needs no application is answered at once", "12.9")                  \
  X(kCmIgnored, "cm-ignored", kNote, "a REQ is answered (Linux drops it while the backlog is full)", "12.9")

enum class Rule : uint8_t {
#define X(name, id, severity, text, clause) name,
  UROCE_RULES(X)
#undef X
      kCount
};

struct RuleInfo {
  const char* id;
  Severity severity;
  const char* text;
  const char* clause;  // of IBTA volume 1
};

inline constexpr RuleInfo kRuleInfos[] = {
#define X(name, id, severity, text, clause) {id, Severity::severity, text, clause},
    UROCE_RULES(X)
#undef X
};

constexpr const RuleInfo& rule_info(Rule rule) {
  return kRuleInfos[static_cast<size_t>(rule)];
}

}  // namespace uroce::oracle
