// SPDX-License-Identifier: GPL-2.0-or-later
// What the parts of the plugin share: the analysis of the open capture, preferences, and what goes to taps.
#pragma once

#include "dissector/analysis/analysis.h"
#include "dissector/plugin/epan.h"

namespace uroce::dissector {

inline int proto_rocev2 = -1;
inline int tap_rocev2 = -1;

// Of the open capture file; made anew by plugin.cc whenever Wireshark begins from the first packet.
inline Analysis* analysis = nullptr;

struct Preferences {
  gboolean check_icrc = TRUE;
  gboolean info_tags = TRUE;
};
inline Preferences preferences;

// A datagram as hook.cc found it, for the post-dissector. In the packet's memory.
struct Sighting {
  Datagram datagram;
  tvbuff_t* tvb;  // BTH to ICRC
  address source, destination;
  Sighting* next;
  uint32_t nth = 0, of = 0;  // packet of a segment batch, from 1; 0: it came alone
};

// What a tap listener gets for each RoCE v2 packet.
struct TapPacket {
  const Headers* headers;
  const PacketRecord* record;
  const Flow* flow;  // may be null
  uint32_t stream;   // of the packet, if there is a flow: that of a CM exchange is not the flow's
  address source, destination;
  uint32_t source_qpn;  // FlowKey::kConnected: not known
  uint32_t size;        // UDP payload
};

// hook.cc
void register_hook();
void hook_udp_port();                           // again and again: see there
const Sighting* sightings(packet_info* pinfo);  // of this frame, or null

// fields.cc
void register_fields();

// trees.cc
void show(packet_info* pinfo, proto_tree* tree, const Sighting& sighting, const Headers& headers,
          const PacketRecord& record);

// cm_tree.cc
// "REJ: by the application (28)"; null: not a message of the CM.
const char* cm_text(packet_info* pinfo, const Datagram& datagram, const Headers& headers);
// "TCP port space, port 7471"; null: not known.
const char* service_text(packet_info* pinfo, const CmExchange& exchange);
void show_service(proto_tree* tree, tvbuff_t* tvb, const CmExchange& exchange);
void show_cm(packet_info* pinfo, proto_tree* tree, const Sighting& sighting, const Headers& headers,
             const PacketRecord& record);

// summary.cc
void summarise(packet_info* pinfo, const Sighting& sighting, const Headers& headers, const PacketRecord& record);
const char* packet_summary(packet_info* pinfo, const Sighting& sighting, const Headers& headers,
                           const PacketRecord& record);

// taps: conversations.cc, statistics.cc, response_times.cc
void register_conversations();
void register_statistics();
void register_response_times();

}  // namespace uroce::dissector
