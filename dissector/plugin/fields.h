// SPDX-License-Identifier: GPL-2.0-or-later
// The fields that can be filtered on, and the expert items. Registered by fields.cc, filled in by trees.cc.
#pragma once

#include "dissector/analysis/finding.h"
#include "dissector/plugin/epan.h"

namespace uroce::dissector {

// X(variable, filter name behind "rocev2.", name, type, base, values or null, bit mask, help)
#define UROCE_FIELDS(X)                                                                                                \
  X(summary, "summary", "Summary", FT_STRING, BASE_NONE, nullptr, 0, "One line for a column")                          \
  X(batch_packet, "batch.packet", "Packet of the segment batch", FT_UINT32, BASE_DEC, nullptr, 0,                      \
    "Captured in front of segmentation offload or behind GRO, and taken apart; from 1")                                \
  X(batch_packets, "batch.packets", "Packets of the segment batch", FT_UINT32, BASE_DEC, nullptr, 0, nullptr)          \
  X(ecn, "ecn", "ECN", FT_UINT8, BASE_DEC, VALS(ecn_names), 0, "Explicit congestion notification, of the IP header")   \
  X(opcode, "opcode", "Opcode", FT_UINT8, BASE_HEX, VALS(opcode_names()), 0, nullptr)                                  \
  X(solicited, "solicited", "Solicited event", FT_BOOLEAN, 8, nullptr, 0x80, nullptr)                                  \
  X(mig_req, "migreq", "Migration request", FT_BOOLEAN, 8, nullptr, 0x40, nullptr)                                     \
  X(pad, "pad", "Pad count", FT_UINT8, BASE_DEC, nullptr, 0x30, nullptr)                                               \
  X(tver, "tver", "Transport header version", FT_UINT8, BASE_DEC, nullptr, 0x0f, nullptr)                              \
  X(pkey, "pkey", "P_Key", FT_UINT16, BASE_HEX, nullptr, 0, nullptr)                                                   \
  X(fecn, "fecn", "FECN", FT_BOOLEAN, 8, nullptr, 0x80, "Forward explicit congestion notification")                    \
  X(becn, "becn", "BECN", FT_BOOLEAN, 8, nullptr, 0x40, "Backward explicit congestion notification")                   \
  X(destqp, "destqp", "Destination QP", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                      \
  X(srcqp, "srcqp", "Source QP", FT_UINT24, BASE_HEX, nullptr, 0, "From the other direction of the stream")            \
  X(qpn, "qpn", "QP", FT_UINT24, BASE_HEX, nullptr, 0, "Source or destination QP")                                     \
  X(ack_request, "ackreq", "Acknowledge request", FT_BOOLEAN, 8, nullptr, 0x80, nullptr)                               \
  X(psn, "psn", "PSN", FT_UINT24, BASE_DEC, nullptr, 0, "Packet sequence number")                                      \
  X(relative_psn, "psn.relative", "Relative PSN", FT_INT32, BASE_DEC, nullptr, 0,                                      \
    "From the first request that was captured in the direction that the PSN belongs to")                               \
  X(srqn, "xrceth.srqn", "XRC SRQ number", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                   \
  X(qkey, "deth.qkey", "Q_Key", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                                              \
  X(deth_srcqp, "deth.srcqp", "Source QP", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                   \
  X(flush_selectivity, "feth.selectivity", "Flush selectivity", FT_UINT32, BASE_DEC, VALS(selectivity_names), 0x30,    \
    nullptr)                                                                                                           \
  X(flush_global, "feth.global", "Global visibility", FT_BOOLEAN, 32, nullptr, 0x01, nullptr)                          \
  X(flush_persistent, "feth.persistent", "Persistence", FT_BOOLEAN, 32, nullptr, 0x02, nullptr)                        \
  X(reth_va, "reth.va", "Virtual address", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)                                   \
  X(reth_rkey, "reth.rkey", "R_Key", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                                         \
  X(reth_length, "reth.length", "DMA length", FT_UINT32, BASE_DEC, nullptr, 0, nullptr)                                \
  X(atomic_va, "atomiceth.va", "Virtual address", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)                            \
  X(atomic_rkey, "atomiceth.rkey", "R_Key", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                                  \
  X(atomic_swap, "atomiceth.swap_add", "Swap or add", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)                        \
  X(atomic_compare, "atomiceth.compare", "Compare", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)                          \
  X(syndrome, "aeth.syndrome", "Syndrome", FT_UINT8, BASE_HEX, nullptr, 0, nullptr)                                    \
  X(aeth_kind, "aeth.kind", "Kind", FT_UINT8, BASE_DEC, VALS(aeth_names), 0x60, nullptr)                               \
  X(credits, "aeth.credits", "Credits", FT_UINT32, BASE_DEC, nullptr, 0, "Receive requests that the responder grants") \
  X(rnr_delay, "aeth.rnr_delay", "RNR delay", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0, "The wait that is asked for")   \
  X(nak_code, "aeth.nak", "NAK", FT_UINT8, BASE_DEC, VALS(nak_names), 0x1f, nullptr)                                   \
  X(msn, "aeth.msn", "MSN", FT_UINT24, BASE_DEC, nullptr, 0, "Message sequence number")                                \
  X(atomic_original, "atomicacketh.original", "Original value", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)              \
  X(immdt, "immdt", "Immediate data", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                                        \
  X(ieth_rkey, "ieth.rkey", "R_Key to invalidate", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                           \
  X(payload_length, "payload_length", "Payload length", FT_UINT32, BASE_DEC, nullptr, 0, "Without pad")                \
  X(icrc, "icrc", "ICRC", FT_UINT32, BASE_HEX, nullptr, 0, "Invariant CRC")                                            \
  X(icrc_status, "icrc.status", "ICRC status", FT_UINT8, BASE_NONE, VALS(proto_checksum_vals), 0, nullptr)             \
  X(icrc_expected, "icrc.expected", "Expected ICRC", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                         \
  X(cm_attribute, "cm.attribute", "CM message", FT_UINT16, BASE_HEX, VALS(cm_names()), 0, nullptr)                     \
  X(cm_service, "cm.service", "Service ID", FT_UINT64, BASE_HEX, nullptr, 0,                                           \
    "That the stream's connection was made for, or that was asked for")                                                \
  X(cm_port_space, "cm.port_space", "Port space", FT_STRING, BASE_NONE, nullptr, 0, "TCP, UDP, IPoIB, IB")             \
  X(cm_port, "cm.port", "Port", FT_UINT16, BASE_DEC, nullptr, 0, "Of the service")                                     \
  X(cm_source_port, "cm.source_port", "Source port", FT_UINT16, BASE_DEC, nullptr, 0, "Of the requester's CMA header") \
  X(cm_request_in, "cm.request_in", "Answer to the message in", FT_FRAMENUM, BASE_NONE,                                \
    FRAMENUM_TYPE(FT_FRAMENUM_REQUEST), 0, nullptr)                                                                    \
  X(cm_response_in, "cm.response_in", "Answered in", FT_FRAMENUM, BASE_NONE, FRAMENUM_TYPE(FT_FRAMENUM_RESPONSE), 0,   \
    nullptr)                                                                                                           \
  X(cm_response_time, "cm.response_time", "Response time", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,                    \
    "Since the message was sent last")                                                                                 \
  X(cm_original, "cm.original", "First transmission", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)                     \
  X(cm_resend_wait, "cm.resend_wait", "Time since the last transmission", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,     \
    nullptr)                                                                                                           \
  X(cm_rejected, "cm.rej.message", "Message rejected", FT_UINT8, BASE_DEC, VALS(cm_rejected_names), 0xc0, nullptr)     \
  X(cm_reason, "cm.rej.reason", "Reason", FT_UINT16, BASE_DEC, VALS(cm_reason_names()), 0, nullptr)                    \
  X(cm_dreq_qpn, "cm.dreq.qpn", "Remote QPN", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                \
  X(cm_local_id, "cm.local_id", "Local communication ID", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                    \
  X(cm_remote_id, "cm.remote_id", "Remote communication ID", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                 \
  X(cm_mraed, "cm.mra.message", "Message MRAed", FT_UINT8, BASE_DEC, VALS(cm_mraed_names), 0xc0, nullptr)              \
  X(cm_mra_timeout, "cm.mra.timeout", "Service timeout", FT_UINT8, BASE_DEC, nullptr, 0xf8, "4.096 us * 2^n")          \
  X(cm_request_id, "cm.sidr.request_id", "Request ID", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                       \
  X(cm_sidr_pkey, "cm.sidr.pkey", "P_Key", FT_UINT16, BASE_HEX, nullptr, 0, nullptr)                                   \
  X(cm_service_id, "cm.sidr.service_id", "Service ID", FT_UINT64, BASE_HEX, nullptr, 0, nullptr)                       \
  X(cm_sidr_status, "cm.sidr.status", "Status", FT_UINT8, BASE_DEC, VALS(cm_sidr_names()), 0, nullptr)                 \
  X(cm_info_length, "cm.info_length", "Additional information length", FT_UINT8, BASE_DEC, nullptr, 0, nullptr)        \
  X(cm_sidr_qpn, "cm.sidr.qpn", "QPN", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                       \
  X(cm_sidr_qkey, "cm.sidr.qkey", "Q_Key", FT_UINT32, BASE_HEX, nullptr, 0, nullptr)                                   \
  X(cm_lap_qpn, "cm.lap.qpn", "Remote QPN", FT_UINT24, BASE_HEX, nullptr, 0, nullptr)                                  \
  X(cm_lap_response_timeout, "cm.lap.response_timeout", "Remote CM response timeout", FT_UINT8, BASE_DEC, nullptr,     \
    0xf8, nullptr)                                                                                                     \
  X(cm_lap_local_lid, "cm.lap.local_lid", "Alternate local LID", FT_UINT16, BASE_HEX, nullptr, 0, nullptr)             \
  X(cm_lap_remote_lid, "cm.lap.remote_lid", "Alternate remote LID", FT_UINT16, BASE_HEX, nullptr, 0, nullptr)          \
  X(cm_lap_local_gid, "cm.lap.local_gid", "Alternate local GID", FT_IPv6, BASE_NONE, nullptr, 0, nullptr)              \
  X(cm_lap_remote_gid, "cm.lap.remote_gid", "Alternate remote GID", FT_IPv6, BASE_NONE, nullptr, 0, nullptr)           \
  X(cm_lap_flow_label, "cm.lap.flow_label", "Alternate flow label", FT_UINT24, BASE_HEX, nullptr, 0xfffff0, nullptr)   \
  X(cm_lap_traffic_class, "cm.lap.traffic_class", "Alternate traffic class", FT_UINT8, BASE_HEX, nullptr, 0, nullptr)  \
  X(cm_lap_hop_limit, "cm.lap.hop_limit", "Alternate hop limit", FT_UINT8, BASE_DEC, nullptr, 0, nullptr)              \
  X(cm_lap_rate, "cm.lap.rate", "Alternate packet rate", FT_UINT8, BASE_DEC, nullptr, 0x3f, nullptr)                   \
  X(cm_lap_sl, "cm.lap.sl", "Alternate SL", FT_UINT8, BASE_DEC, nullptr, 0xf0, nullptr)                                \
  X(cm_lap_subnet_local, "cm.lap.subnet_local", "Alternate subnet local", FT_BOOLEAN, 8, nullptr, 0x08, nullptr)       \
  X(cm_lap_ack_timeout, "cm.lap.ack_timeout", "Alternate local ACK timeout", FT_UINT8, BASE_DEC, nullptr, 0xf8,        \
    nullptr)                                                                                                           \
  X(cm_apr_status, "cm.apr.status", "AP status", FT_UINT8, BASE_DEC, nullptr, 0, "0: the path was loaded")             \
  X(cm_private, "cm.private_data", "Private data", FT_BYTES, BASE_NONE, nullptr, 0, nullptr)                           \
  X(stream, "stream", "Stream", FT_UINT32, BASE_DEC, nullptr, 0, "Both directions of a connection")                    \
  X(stream_first, "stream.first_frame", "First packet of this direction", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr) \
  X(stream_last, "stream.last_frame", "Last packet of this direction", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)    \
  X(message, "message", "Message", FT_UINT32, BASE_DEC, nullptr, 0, "Number in its direction, from 0")                 \
  X(message_part, "message.part", "Part of the message", FT_UINT8, BASE_DEC, VALS(part_names), 0,                      \
    "The state that the opcode leads to: a message begins, goes on, ends")                                             \
  X(message_packets, "message.packets", "Request packets", FT_UINT32, BASE_DEC, nullptr, 0, nullptr)                   \
  X(message_length, "message.length", "Message length", FT_UINT32, BASE_DEC, nullptr, 0, nullptr)                      \
  X(message_first, "message.first_frame", "First packet of the message", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)  \
  X(message_last, "message.last_frame", "Last packet of the message", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)     \
  X(message_answer, "message.answer_frame", "Completed by", FT_FRAMENUM, BASE_NONE, FRAMENUM_TYPE(FT_FRAMENUM_ACK), 0, \
    nullptr)                                                                                                           \
  X(message_time, "message.time", "Message time", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,                             \
    "From the first request packet to the answer that completes the message")                                          \
  X(analysis_root, "analysis", "Analysis", FT_NONE, BASE_NONE, nullptr, 0, nullptr)                                    \
  X(retransmission, "analysis.retransmission", "Retransmission", FT_NONE, BASE_NONE, nullptr, 0,                       \
    "A request that was sent again, for whatever reason")                                                              \
  X(missing, "analysis.missing", "Packets missing", FT_UINT32, BASE_DEC, nullptr, 0,                                   \
    "In the gap in front of this one")                                                                                 \
  X(packets_in_flight, "analysis.packets_in_flight", "Packets in flight", FT_UINT32, BASE_DEC, nullptr, 0,             \
    "PSNs sent and not answered, after this packet")                                                                   \
  X(bytes_in_flight, "analysis.bytes_in_flight", "Bytes in flight", FT_UINT32, BASE_DEC, nullptr, 0,                   \
    "Request payload sent and not acknowledged, after this packet")                                                    \
  X(original, "analysis.original", "First transmission", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)                  \
  X(request_frame, "analysis.request", "Answer to the request", FT_FRAMENUM, BASE_NONE,                                \
    FRAMENUM_TYPE(FT_FRAMENUM_REQUEST), 0, nullptr)                                                                    \
  X(answer_frame, "analysis.answer", "Answered by", FT_FRAMENUM, BASE_NONE, FRAMENUM_TYPE(FT_FRAMENUM_ACK), 0,         \
    nullptr)                                                                                                           \
  X(answer_time, "analysis.answer_time", "Time to the answer", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,                \
    "Since the request was sent last")                                                                                 \
  X(resend_wait, "analysis.resend_wait", "Time since the last transmission", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,  \
    nullptr)                                                                                                           \
  X(rnr_waited, "analysis.rnr_waited", "RNR wait", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,                            \
    "Until the requester tried again")                                                                                 \
  X(rnr_honoured, "analysis.rnr_honoured", "RNR wait honoured", FT_BOOLEAN, BASE_NONE, nullptr, 0, nullptr)            \
  X(rnr_retry, "analysis.rnr_retry", "Next attempt", FT_FRAMENUM, BASE_NONE, nullptr, 0, nullptr)                      \
  X(recovery_time, "analysis.recovery_time", "Time to recovery", FT_RELATIVE_TIME, BASE_NONE, nullptr, 0,              \
    "From the first sign of the loss that is repaired now")                                                            \
  X(rate_before, "cnp.rate_before", "Rate before (bit/s)", FT_DOUBLE, BASE_NONE, nullptr, 0,                           \
    "Of the sender that the CNP is for, over 32 packets")                                                              \
  X(rate_after, "cnp.rate_after", "Rate after (bit/s)", FT_DOUBLE, BASE_NONE, nullptr, 0,                              \
    "Of the sender that the CNP is for, over 32 packets")

#define UROCE_DECLARE(variable, ...) inline int hf_##variable = -1;
UROCE_FIELDS(UROCE_DECLARE)
#undef UROCE_DECLARE

inline int ett_root = -1, ett_bth = -1, ett_header = -1, ett_stream = -1, ett_analysis = -1;

inline expert_field ei_findings[static_cast<size_t>(Finding::kCount)];
inline expert_field ei_malformed = EI_INIT;
inline expert_field ei_not_captured = EI_INIT;

inline constexpr uint32_t kPartFirst = 1, kPartLast = 2;  // of message.part

extern const value_string ecn_names[];
extern const value_string part_names[];
extern const value_string selectivity_names[];
extern const value_string aeth_names[];
extern const value_string nak_names[];
extern const value_string cm_mraed_names[];
extern const value_string cm_rejected_names[];
const value_string* cm_names();
const value_string* cm_reason_names();
const value_string* cm_sidr_names();
const value_string* opcode_names();
const char* opcode_name(uint8_t opcode);

}  // namespace uroce::dissector
