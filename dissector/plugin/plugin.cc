// SPDX-License-Identifier: GPL-2.0-or-later
// The entry points of the plugin, and the post-dissector: for each RoCE v2 datagram of a frame the record that the
// first pass has made, shown.

#include "dissector/plugin/state.h"

namespace uroce::dissector {
namespace {

void begin() {
  delete analysis;
  analysis = new Analysis;
  hook_udp_port();
}

void end() {
  delete analysis;
  analysis = nullptr;
}

void feed_taps(packet_info* pinfo, const Sighting& sighting, const Headers& headers, const PacketRecord& record) {
  if (!have_tap_listener(tap_rocev2)) return;
  auto* const packet = wmem_new0(pinfo->pool, TapPacket);
  auto* const kept = new (wmem_alloc(pinfo->pool, sizeof(Headers))) Headers(headers);
  packet->headers = kept;
  packet->record = &record;
  packet->flow = analysis->flow(record);
  packet->stream = packet->flow == nullptr ? 0 : analysis->stream(record);
  packet->source = sighting.source;
  packet->destination = sighting.destination;
  packet->source_qpn = analysis->source_qpn(record);
  packet->size = sighting.datagram.ib_size;
  tap_queue_packet(tap_rocev2, pinfo, packet);
}

int dissect(tvbuff_t*, packet_info* pinfo, proto_tree* tree, void*) {
  const Sighting* const first = sightings(pinfo);
  if (first == nullptr || analysis == nullptr) return 0;
  const bool known = PINFO_FD_VISITED(pinfo);
  Analysis::Range range{};
  if (known) range = analysis->of_frame(pinfo->num);
  uint32_t nth = 0;
  for (const Sighting* sighting = first; sighting != nullptr; sighting = sighting->next, ++nth) {
    const Headers headers = parse_headers(sighting->datagram.ib, sighting->datagram.ib_size);
    if (known && range.first + nth >= range.last) break;
    const uint32_t index =
        known ? range.first + nth : analysis->add(sighting->datagram, headers, preferences.check_icrc);
    const PacketRecord& record = analysis->packet(index);
    show(pinfo, tree, *sighting, headers, record);
    summarise(pinfo, *sighting, headers, record);
    feed_taps(pinfo, *sighting, headers, record);
  }
  return 0;
}

void register_preferences() {
  module_t* const module = prefs_register_protocol(proto_rocev2, nullptr);
  prefs_register_bool_preference(module, "check_icrc", "Verify the ICRC",
                                 "Compute the ICRC of each packet that was captured whole. Packets with a bad one are "
                                 "kept out of the analysis, as their receiver drops them.",
                                 &preferences.check_icrc);
  prefs_register_bool_preference(module, "info_tags", "Findings in the Info column",
                                 "Put what the analysis finds in front of the Info column.", &preferences.info_tags);
}

void register_protocol() {
  proto_rocev2 = proto_register_protocol("RoCE v2 Analysis", "RoCEv2", "rocev2");
  register_hook();
  register_fields();
  register_preferences();
  tap_rocev2 = register_tap("rocev2");
  register_conversations();
  register_response_times();
  register_init_routine(begin);
  register_cleanup_routine(end);
  register_postdissector(register_dissector("rocev2", dissect, proto_rocev2));
}

void handoff() {
  register_statistics();
}

}  // namespace
}  // namespace uroce::dissector

extern "C" {

#define UROCE_EXPORT __attribute__((visibility("default")))

UROCE_EXPORT extern const char plugin_version[];
UROCE_EXPORT extern const int plugin_want_major;
UROCE_EXPORT extern const int plugin_want_minor;
UROCE_EXPORT void plugin_register();

const char plugin_version[] = UROCE_VERSION;
const int plugin_want_major = WIRESHARK_VERSION_MAJOR;
const int plugin_want_minor = WIRESHARK_VERSION_MINOR;

void plugin_register() {
  static proto_plugin plugin;
  plugin.register_protoinfo = uroce::dissector::register_protocol;
  plugin.register_handoff = uroce::dissector::handoff;
  proto_register_plugin(&plugin);
}
}
