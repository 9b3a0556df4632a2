// SPDX-License-Identifier: GPL-2.0-or-later
// The packet in one line, and what of it goes to the Info column: the findings in front, and the whole line where the
// built-in dissector has nothing to say (CNP, XRC, FLUSH, ATOMIC_WRITE).
#include "dissector/plugin/fields.h"
#include "dissector/plugin/state.h"

namespace uroce::dissector {
namespace {

void append_aeth(wmem_strbuf_t* text, const wire::Aeth& aeth) {
  switch (aeth.kind()) {
    case wire::AethKind::kAck:
      break;
    case wire::AethKind::kRnrNak:
      wmem_strbuf_append_printf(text, " RNR %.2f ms", static_cast<double>(wire::rnr_delay(aeth.value()).count()) / 1e6);
      break;
    case wire::AethKind::kNak:
      wmem_strbuf_append_printf(text, " NAK %s", val_to_str_const(aeth.value(), nak_names, "reserved code"));
      break;
    case wire::AethKind::kReserved:
      wmem_strbuf_append(text, " reserved syndrome");
      break;
  }
  wmem_strbuf_append_printf(text, " MSN=%u", aeth.msn.value());
}

void append_findings(wmem_strbuf_t* text, const Findings& findings) {
  bool first = true;
  for (const FindingInfo& info : kFindings) {
    if (info.label == nullptr || !findings.has(info.finding)) continue;
    wmem_strbuf_append_printf(text, "%s%s", first ? "[" : ", ", info.label);
    first = false;
  }
  if (!first) wmem_strbuf_append(text, "] ");
}

bool unknown_to_builtin(const wire::OpcodeInfo& info) {
  return info.known && (info.transport == wire::Transport::kCnp || info.transport == wire::Transport::kXrc ||
                        info.operation == wire::Operation::kFlush || info.operation == wire::Operation::kAtomicWrite);
}

}  // namespace

const char* packet_summary(packet_info* pinfo, const Sighting& sighting, const Headers& headers,
                           const PacketRecord& record) {
  wmem_strbuf_t* const text = wmem_strbuf_new(pinfo->pool, "");
  append_findings(text, record.findings);
  if (!headers.has_bth) {
    wmem_strbuf_append(text, header_problem_text(headers.problem));
    return wmem_strbuf_get_str(text);
  }
  wmem_strbuf_append_printf(text, "%s QP=0x%06x PSN=%u", opcode_name(static_cast<uint8_t>(headers.bth.opcode)),
                            headers.bth.dest_qp.value(), headers.bth.psn.value());
  if (record.has_psn) wmem_strbuf_append_printf(text, " (rel %d)", record.relative_psn);
  if (headers.usable() && headers.info->has_aeth) append_aeth(text, headers.aeth);
  if (headers.usable() && headers.info->has_reth) wmem_strbuf_append_printf(text, " DMA=%u", headers.reth.length);
  if (headers.usable() && headers.info->has_payload) wmem_strbuf_append_printf(text, " Len=%u", headers.payload_size);
  if (const char* const cm = cm_text(pinfo, sighting.datagram, headers)) {
    wmem_strbuf_append_printf(text, " CM %s", cm);
    const CmExchange* const exchange = analysis->exchange(record);
    const char* const service = exchange == nullptr ? nullptr : service_text(pinfo, *exchange);
    if (service != nullptr) wmem_strbuf_append_printf(text, ", %s", service);
  }
  return wmem_strbuf_get_str(text);
}

void summarise(packet_info* pinfo, const Sighting& sighting, const Headers& headers, const PacketRecord& record) {
  if (sighting.nth == 1) col_prepend_fence_fstr(pinfo->cinfo, COL_INFO, "[%u packets] ", sighting.of);
  if (!headers.has_bth) return;
  if (unknown_to_builtin(*headers.info)) {
    col_set_str(pinfo->cinfo, COL_PROTOCOL, "RRoCE");
    col_add_str(pinfo->cinfo, COL_INFO, packet_summary(pinfo, sighting, headers, record));
    return;
  }
  if (!preferences.info_tags || !record.findings.any()) return;
  wmem_strbuf_t* const tags = wmem_strbuf_new(pinfo->pool, "");
  append_findings(tags, record.findings);
  if (wmem_strbuf_get_len(tags) > 0) col_prepend_fence_fstr(pinfo->cinfo, COL_INFO, "%s", wmem_strbuf_get_str(tags));
}

}  // namespace uroce::dissector
