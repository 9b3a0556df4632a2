// SPDX-License-Identifier: GPL-2.0-or-later
// The tree of a RoCE v2 packet: its headers, its stream and message, and what the analysis says. Called by the
// post-dissector. Expert items are added without a tree too: statistics count them.
#include "dissector/plugin/fields.h"
#include "dissector/plugin/items.h"
#include "dissector/plugin/state.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

// Adds header fields at successive offsets, only where the packet has been captured.
class HeaderTree {
 public:
  HeaderTree(proto_tree* parent, tvbuff_t* tvb, uint32_t parsed) : parent_(parent), tvb_(tvb), parsed_(parsed) {}

  // False: not captured.
  bool begin(const char* name, int size) {
    start_ = at_;
    at_ += size;
    if (static_cast<uint32_t>(at_) > parsed_) return false;
    tree_ = proto_tree_add_subtree(parent_, tvb_, start_, size, ett_header, &item_, name);
    return true;
  }
  void add(int field, int offset, int size) {
    proto_tree_add_item(tree_, field, tvb_, start_ + offset, size, ENC_BIG_ENDIAN);
  }
  proto_tree* tree() const { return tree_; }
  proto_item* item() const { return item_; }
  int start() const { return start_; }

 private:
  proto_tree* parent_;
  tvbuff_t* tvb_;
  uint32_t parsed_;
  proto_tree* tree_ = nullptr;
  proto_item* item_ = nullptr;
  int start_ = 0;
  int at_ = 0;
};

void add_hidden_qpn(proto_tree* tree, tvbuff_t* tvb, uint32_t qpn) {
  proto_item* const item = proto_tree_add_uint(tree, hf_qpn, tvb, 0, 0, qpn);
  proto_item_set_hidden(item);
}

void show_bth(proto_tree* parent, tvbuff_t* tvb, const Headers& headers) {
  proto_item* item;
  proto_tree* const tree = proto_tree_add_subtree_format(
      parent, tvb, 0, static_cast<int>(wire::kBthSize), ett_bth, &item, "Base Transport Header: %s, PSN %u",
      opcode_name(static_cast<uint8_t>(headers.bth.opcode)), headers.bth.psn.value());
  struct Field {
    int field, offset, size;
  };
  const Field fields[] = {{hf_opcode, 0, 1}, {hf_solicited, 1, 1},   {hf_mig_req, 1, 1}, {hf_pad, 1, 1},
                          {hf_tver, 1, 1},   {hf_pkey, 2, 2},        {hf_fecn, 4, 1},    {hf_becn, 4, 1},
                          {hf_destqp, 5, 3}, {hf_ack_request, 8, 1}, {hf_psn, 9, 3}};
  for (const Field& f : fields) proto_tree_add_item(tree, f.field, tvb, f.offset, f.size, ENC_BIG_ENDIAN);
  add_hidden_qpn(tree, tvb, headers.bth.dest_qp.value());
}

void show_aeth(HeaderTree& at, tvbuff_t* tvb, const wire::Aeth& aeth) {
  at.add(hf_syndrome, 0, 1);
  at.add(hf_aeth_kind, 0, 1);
  switch (aeth.kind()) {
    case wire::AethKind::kAck:
      if (aeth.value() != wire::kNoCreditsCode) {
        generated(proto_tree_add_uint(at.tree(), hf_credits, tvb, at.start(), 1, wire::credit_count(aeth.value())));
      }
      break;
    case wire::AethKind::kRnrNak: {
      nstime_t time;
      set_time(time, wire::rnr_delay(aeth.value()).count());
      generated(proto_tree_add_time(at.tree(), hf_rnr_delay, tvb, at.start(), 1, &time));
      break;
    }
    case wire::AethKind::kNak:
      at.add(hf_nak_code, 0, 1);
      break;
    case wire::AethKind::kReserved:
      break;
  }
  at.add(hf_msn, 1, 3);
}

void show_extensions(proto_tree* parent, tvbuff_t* tvb, const Headers& headers) {
  const wire::OpcodeInfo& info = *headers.info;
  tvbuff_t* const rest = tvb_new_subset_remaining(tvb, static_cast<int>(wire::kBthSize));
  HeaderTree at(parent, rest, headers.parsed - static_cast<uint32_t>(wire::kBthSize));
  if (info.has_xrceth && at.begin("XRC Extended Transport Header", 4)) at.add(hf_srqn, 1, 3);
  if (info.has_deth && at.begin("Datagram Extended Transport Header", 8)) {
    at.add(hf_qkey, 0, 4);
    at.add(hf_deth_srcqp, 5, 3);
  }
  if (info.has_feth && at.begin("Flush Extended Transport Header", 4)) {
    at.add(hf_flush_selectivity, 0, 4);
    at.add(hf_flush_persistent, 0, 4);
    at.add(hf_flush_global, 0, 4);
  }
  if (info.has_reth && at.begin("RDMA Extended Transport Header", 16)) {
    at.add(hf_reth_va, 0, 8);
    at.add(hf_reth_rkey, 8, 4);
    at.add(hf_reth_length, 12, 4);
  }
  if (info.has_atomic_eth && at.begin("Atomic Extended Transport Header", 28)) {
    at.add(hf_atomic_va, 0, 8);
    at.add(hf_atomic_rkey, 8, 4);
    at.add(hf_atomic_swap, 12, 8);
    at.add(hf_atomic_compare, 20, 8);
  }
  if (info.has_aeth && at.begin("ACK Extended Transport Header", 4)) show_aeth(at, rest, headers.aeth);
  if (info.has_atomic_ack_eth && at.begin("Atomic ACK Extended Transport Header", 8)) at.add(hf_atomic_original, 0, 8);
  if (info.has_immdt && at.begin("Immediate Data", 4)) at.add(hf_immdt, 0, 4);
  if (info.has_ieth && at.begin("Invalidate Extended Transport Header", 4)) at.add(hf_ieth_rkey, 0, 4);
}

void show_icrc(packet_info* pinfo, proto_tree* tree, const Sighting& sighting, const PacketRecord& record) {
  const Datagram& datagram = sighting.datagram;
  if (!datagram.captured_whole() || datagram.ib_size < wire::kBthSize + wire::kIcrcSize) return;
  const guint at = datagram.ib_size - static_cast<guint>(wire::kIcrcSize);
  const bool checked = record.icrc != IcrcStatus::kUnchecked;
  proto_tree_add_checksum(tree, sighting.tvb, at, hf_icrc, hf_icrc_status,
                          &ei_findings[static_cast<size_t>(Finding::kBadIcrc)], pinfo, record.expected_icrc,
                          ENC_LITTLE_ENDIAN, checked ? PROTO_CHECKSUM_VERIFY : PROTO_CHECKSUM_NO_FLAGS);
  if (!checked) return;
  generated(proto_tree_add_uint(tree, hf_icrc_expected, sighting.tvb, static_cast<int>(at), 4, record.expected_icrc));
}

void show_message(proto_tree* parent, tvbuff_t* tvb, const Headers& headers, const PacketRecord& record) {
  const MessageRecord* const message = analysis->message(record);
  if (message == nullptr) return;
  add_uint(parent, hf_message, tvb, message->number);
  if (headers.info->operation != wire::Operation::kAcknowledge) {
    add_uint(parent, hf_message_part, tvb,
             (headers.info->first ? kPartFirst : 0) | (headers.info->last ? kPartLast : 0));
  }
  add_uint(parent, hf_message_packets, tvb, message->packets);
  if (message->length_known) add_uint(parent, hf_message_length, tvb, message->length);
  add_frame(parent, hf_message_first, tvb, message->first_frame);
  add_frame(parent, hf_message_last, tvb, message->last_frame);
  add_frame(parent, hf_message_answer, tvb, message->answer_frame);
}

void show_stream(packet_info* pinfo, proto_tree* parent, tvbuff_t* tvb, const Headers& headers,
                 const PacketRecord& record) {
  const Flow* const flow = analysis->flow(record);
  if (flow == nullptr) return;
  const uint32_t stream = analysis->stream(record);
  const CmExchange* const exchange = analysis->exchange(record);
  const char* const service = exchange == nullptr ? nullptr : service_text(pinfo, *exchange);
  proto_item* item;
  proto_tree* const tree =
      proto_tree_add_subtree_format(parent, tvb, 0, 0, ett_stream, &item, "Stream %u%s%s", stream,
                                    service == nullptr ? "" : ", ", service == nullptr ? "" : service);
  generated(item);
  add_uint(tree, hf_stream, tvb, stream);
  if (exchange != nullptr) show_service(tree, tvb, *exchange);
  const uint32_t source_qpn = analysis->source_qpn(record);
  if (source_qpn != FlowKey::kConnected) {
    add_uint(tree, hf_srcqp, tvb, source_qpn);
    add_hidden_qpn(tree, tvb, source_qpn);
  }
  const bool cm = analysis->cm(record) != nullptr && exchange != nullptr;
  add_frame(tree, hf_stream_first, tvb, cm ? exchange->first_frame : flow->first_frame);
  add_frame(tree, hf_stream_last, tvb, cm ? exchange->last_frame : flow->last_frame);
  if (record.has_psn) generated(proto_tree_add_int(tree, hf_relative_psn, tvb, 0, 0, record.relative_psn));
  if (headers.usable()) show_message(tree, tvb, headers, record);
  // Once per message, so that averages in graphs are of messages.
  analysis->for_completed(record, [&](const MessageRecord& m) { add_time(tree, hf_message_time, tvb, m.time); });
}

void show_numbers(proto_tree* tree, tvbuff_t* tvb, const Headers& headers, const PacketRecord& record) {
  if (record.missing != 0) add_uint(tree, hf_missing, tvb, record.missing);
  if (record.has_flight) {
    add_uint(tree, hf_packets_in_flight, tvb, record.packets_in_flight);
    add_uint(tree, hf_bytes_in_flight, tvb, record.bytes_in_flight);
  }
  add_time(tree, hf_recovery_time, tvb, record.recovery);
  if (headers.info->request) {
    add_frame(tree, hf_original, tvb, record.related);
    add_frame(tree, hf_answer_frame, tvb, record.answer);
    add_time(tree, hf_resend_wait, tvb, record.wait);
    return;
  }
  add_frame(tree, hf_request_frame, tvb, record.related);
  add_time(tree, hf_answer_time, tvb, record.answer_time);
  if (!record.findings.has(Finding::kRnrNak) || record.wait < 0) return;
  add_time(tree, hf_rnr_waited, tvb, record.wait);
  add_frame(tree, hf_rnr_retry, tvb, record.answer);
  const int64_t asked = wire::rnr_delay(headers.aeth.value()).count();
  generated(proto_tree_add_boolean(tree, hf_rnr_honoured, tvb, 0, 0, record.wait >= asked - asked / 50));
}

void show_cnp(proto_tree* tree, tvbuff_t* tvb, const CnpRecord* cnp) {
  if (cnp == nullptr) return;
  if (cnp->rate_before > 0) generated(proto_tree_add_double(tree, hf_rate_before, tvb, 0, 0, cnp->rate_before));
  if (cnp->rate_after > 0) generated(proto_tree_add_double(tree, hf_rate_after, tvb, 0, 0, cnp->rate_after));
}

// `cm`: the message of the communication management in words; a REJ's expert item says why.
void show_findings(packet_info* pinfo, proto_item* item, const PacketRecord& record, const char* cm) {
  for (const FindingInfo& info : kFindings) {
    if (info.finding == Finding::kBadIcrc || !record.findings.has(info.finding)) continue;  // the checksum shows that
    expert_field* const field = &ei_findings[static_cast<size_t>(info.finding)];
    if (info.finding == Finding::kCmReject && cm != nullptr) {
      expert_add_info_format(pinfo, item, field, "%s", cm);
    } else {
      expert_add_info(pinfo, item, field);
    }
  }
}

void show_analysis(packet_info* pinfo, proto_tree* parent, const Sighting& sighting, const Headers& headers,
                   const PacketRecord& record) {
  tvbuff_t* const tvb = sighting.tvb;
  proto_item* const item = proto_tree_add_item(parent, hf_analysis_root, tvb, 0, 0, ENC_NA);
  generated(item);
  proto_tree* const tree = proto_item_add_subtree(item, ett_analysis);
  if (headers.has_bth) {
    show_numbers(tree, tvb, headers, record);
    show_cnp(tree, tvb, analysis->cnp(record, headers));
  }
  if (record.findings.is_retransmission()) {
    generated(proto_tree_add_item(tree, hf_retransmission, tvb, 0, 0, ENC_NA));
  }
  show_findings(pinfo, item, record, cm_text(pinfo, sighting.datagram, headers));
}

void show_problem(packet_info* pinfo, proto_item* item, const Headers& headers) {
  if (headers.problem == HeaderProblem::kNone) return;
  expert_field* const field = headers.problem == HeaderProblem::kNotCaptured ? &ei_not_captured : &ei_malformed;
  expert_add_info_format(pinfo, item, field, "%s", header_problem_text(headers.problem));
}

}  // namespace

void show(packet_info* pinfo, proto_tree* tree, const Sighting& sighting, const Headers& headers,
          const PacketRecord& record) {
  if (tree == nullptr) {  // for the statistics of expert items
    show_problem(pinfo, nullptr, headers);
    if (record.findings.any()) show_findings(pinfo, nullptr, record, cm_text(pinfo, sighting.datagram, headers));
    if (record.icrc == IcrcStatus::kBad) {
      expert_add_info(pinfo, nullptr, &ei_findings[static_cast<size_t>(Finding::kBadIcrc)]);
    }
    return;
  }
  tvbuff_t* const tvb = sighting.tvb;
  proto_item* const item = proto_tree_add_item(tree, proto_rocev2, tvb, 0, -1, ENC_NA);
  proto_tree* const root = proto_item_add_subtree(item, ett_root);
  const char* const text = packet_summary(pinfo, sighting, headers, record);
  proto_item_append_text(item, ": %s", text);
  proto_item_set_hidden(proto_tree_add_string(root, hf_summary, tvb, 0, 0, text));
  if (sighting.of > 0) {
    add_uint(root, hf_batch_packet, tvb, sighting.nth);
    add_uint(root, hf_batch_packets, tvb, sighting.of);
  }
  if (!sighting.datagram.ip.empty()) {
    add_uint(root, hf_ecn, tvb, sighting.datagram.traffic_class & wire::kEcnMask);
  }
  show_problem(pinfo, item, headers);
  if (headers.has_bth) {
    show_bth(root, tvb, headers);
    if (headers.info->known && headers.parsed > wire::kBthSize) show_extensions(root, tvb, headers);
    if (headers.usable()) add_uint(root, hf_payload_length, tvb, headers.payload_size);
    show_cm(pinfo, root, sighting, headers, record);
  }
  show_icrc(pinfo, root, sighting, record);
  show_stream(pinfo, root, tvb, headers, record);
  show_analysis(pinfo, root, sighting, headers, record);
}

}  // namespace uroce::dissector
