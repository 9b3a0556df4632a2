// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/plugin/fields.h"

#include <array>
#include <cstdio>

#include "dissector/plugin/state.h"
#include "wire/opcode.h"

namespace uroce::dissector {

const value_string part_names[] = {
    {0, "middle"}, {kPartFirst, "first"}, {kPartLast, "last"}, {kPartFirst | kPartLast, "only"}, {0, nullptr}};
const value_string ecn_names[] = {
    {0, "not ECN-capable"}, {1, "ECT(1)"}, {2, "ECT(0)"}, {3, "congestion experienced"}, {0, nullptr}};
const value_string selectivity_names[] = {{0, "range"}, {1, "whole memory region"}, {0, nullptr}};
const value_string aeth_names[] = {{0, "ACK"}, {1, "RNR NAK"}, {2, "reserved"}, {3, "NAK"}, {0, nullptr}};
const value_string nak_names[] = {{0, "PSN sequence error"},  {1, "invalid request"},
                                  {2, "remote access error"}, {3, "remote operational error"},
                                  {4, "invalid RD request"},  {0, nullptr}};

// "RC RDMA_WRITE_FIRST", from the table of wire/opcode.h.
const value_string* opcode_names() {
  struct Names {
    std::array<std::array<char, 40>, 256> text;
    std::array<value_string, 257> values;
    Names() {
      size_t n = 0;
      for (unsigned code = 0; code < 256; ++code) {
        const wire::OpcodeInfo& info = wire::opcode_info(static_cast<wire::Opcode>(code));
        if (!info.known) continue;
        const bool cnp = info.transport == wire::Transport::kCnp;
        std::snprintf(text[n].data(), text[n].size(), "%s%s%s", cnp ? "" : wire::transport_name(info.transport),
                      cnp ? "" : " ", info.name);
        values[n] = {code, text[n].data()};
        ++n;
      }
      values[n] = {0, nullptr};
    }
  };
  static const Names names;
  return names.values.data();
}

const char* opcode_name(uint8_t opcode) {
  return val_to_str_const(opcode, opcode_names(), "unknown opcode");
}

namespace {

int severity_of(FindingSeverity severity) {
  constexpr int kSeverities[] = {PI_CHAT, PI_NOTE, PI_WARN, PI_ERROR};
  return kSeverities[static_cast<size_t>(severity)];
}

int group_of(FindingGroup group) {
  constexpr int kGroups[] = {PI_SEQUENCE, PI_PROTOCOL, PI_CHECKSUM, PI_RESPONSE_CODE};
  return kGroups[static_cast<size_t>(group)];
}

void register_expert_items() {
  constexpr size_t kCount = static_cast<size_t>(Finding::kCount);
  static ei_register_info items[kCount + 2];
  static std::array<std::array<char, 80>, kCount> names;
  for (size_t i = 0; i < kCount; ++i) {
    const FindingInfo& info = kFindings[i];
    std::snprintf(names[i].data(), names[i].size(), "rocev2.analysis.%s", info.name);
    ei_findings[i] = EI_INIT;
    items[i] = {&ei_findings[i],
                {names[i].data(), group_of(info.group), severity_of(info.severity), info.text, EXPFILL}};
  }
  items[kCount] = {&ei_malformed, {"rocev2.malformed", PI_MALFORMED, PI_ERROR, "Malformed RoCE v2 packet", EXPFILL}};
  items[kCount + 1] = {&ei_not_captured,
                       {"rocev2.not_captured", PI_UNDECODED, PI_NOTE, "Headers not captured completely", EXPFILL}};
  expert_register_field_array(expert_register_protocol(proto_rocev2), items, kCount + 2);
}

}  // namespace

void register_fields() {
#define UROCE_REGISTER(variable, filter, name, type, base, values, mask, help) \
  {&hf_##variable, {name, "rocev2." filter, type, base, values, mask, help, HFILL}},
  static hf_register_info fields[] = {UROCE_FIELDS(UROCE_REGISTER)};
#undef UROCE_REGISTER
  proto_register_field_array(proto_rocev2, fields, array_length(fields));
  static int* subtrees[] = {&ett_root, &ett_bth, &ett_header, &ett_stream, &ett_analysis};
  proto_register_subtree_array(subtrees, array_length(subtrees));
  register_expert_items();
}

}  // namespace uroce::dissector
