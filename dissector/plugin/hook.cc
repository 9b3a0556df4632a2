// SPDX-License-Identifier: GPL-2.0-or-later
// Where RoCE v2 datagrams are seen: in front of the built-in dissector at UDP port 4791, so that Wireshark's own layers
// (VLAN, VXLAN, GRE, whatever) have found the IP and UDP headers. The hook notes the datagram and calls the built-in
// dissector; the post-dissector in plugin.cc does the work afterwards, also if the built-in one has thrown.
#include <cstring>
#include <vector>

#include "dissector/analysis/batch.h"
#include "dissector/plugin/state.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

constexpr guint32 kKey = 0;

int proto_hook = -1;
dissector_handle_t hook_handle = nullptr;
dissector_handle_t builtin_handle = nullptr;

wire::IpAddress address_of(const address& a) {
  const auto* bytes = static_cast<const uint8_t*>(a.data);
  if (a.type == AT_IPv4) return wire::IpAddress::v4(bytes);
  if (a.type == AT_IPv6) return wire::IpAddress::v6(bytes);
  return {};
}

// The IP header in front of the datagram, in the buffer of captured bytes that the datagram is a part of. Not there if
// it has options or extension headers, or if the datagram was put together from fragments.
std::span<const uint8_t> ip_header(tvbuff_t* tvb, const Datagram& datagram) {
  tvbuff_t* const whole = tvb_get_ds_tvb(tvb);
  const auto at = static_cast<uint32_t>(tvb_raw_offset(tvb));
  const bool v4 = datagram.has_ip_id;
  const uint32_t ip_size = v4 ? wire::kIpv4Size : wire::kIpv6Size;
  const uint32_t prefix = ip_size + wire::kUdpSize;
  if (at < prefix || at > tvb_captured_length(whole)) return {};
  const uint8_t* const ip = tvb_get_ptr(whole, static_cast<gint>(at - prefix), static_cast<gint>(prefix));
  if (v4) {
    const auto view = wire::Ipv4View::at(ip);
    const bool fits = ip[0] == 0x45 && view.protocol() == wire::kIpProtocolUdp &&
                      std::memcmp(view.source(), datagram.source.v4_bytes(), 4) == 0 &&
                      (view.flags_and_offset() & 0x3fff) == 0;
    if (!fits || std::memcmp(view.destination(), datagram.destination.v4_bytes(), 4) != 0) return {};
  } else {
    const auto view = wire::Ipv6View::at(ip);
    const bool fits = view.version() == 6 && view.next_header() == wire::kIpProtocolUdp &&
                      std::memcmp(view.source(), datagram.source.bytes.data(), 16) == 0 &&
                      std::memcmp(view.destination(), datagram.destination.bytes.data(), 16) == 0;
    if (!fits) return {};
  }
  return {ip, ip_size};
}

Datagram describe(tvbuff_t* tvb, packet_info* pinfo) {
  Datagram out;
  out.frame = pinfo->num;
  out.time = static_cast<int64_t>(pinfo->abs_ts.secs) * 1'000'000'000 + pinfo->abs_ts.nsecs;
  out.source = address_of(pinfo->src);
  out.destination = address_of(pinfo->dst);
  out.source_port = static_cast<uint16_t>(pinfo->srcport);
  out.has_ip_id = pinfo->src.type == AT_IPv4;
  out.ib_size = tvb_reported_length(tvb);
  const guint captured = tvb_captured_length(tvb);
  if (captured > 0) out.ib = {tvb_get_ptr(tvb, 0, static_cast<gint>(captured)), captured};
  out.ip = ip_header(tvb, out);
  if (out.ip.empty()) {
    out.has_ip_id = false;
  } else if (out.has_ip_id) {
    out.ip_id = wire::Ipv4View::at(out.ip.data()).id();
    out.traffic_class = wire::Ipv4View::at(out.ip.data()).traffic_class();
  } else {
    out.traffic_class = wire::Ipv6View::at(out.ip.data()).traffic_class();
  }
  return out;
}

void add(packet_info* pinfo, const Sighting& seen) {
  auto* const sighting = new (wmem_alloc(pinfo->pool, sizeof(Sighting))) Sighting(seen);
  copy_address_wmem(pinfo->pool, &sighting->source, &pinfo->src);
  copy_address_wmem(pinfo->pool, &sighting->destination, &pinfo->dst);
  auto* last = static_cast<Sighting*>(p_get_proto_data(pinfo->pool, pinfo, proto_rocev2, kKey));
  if (last == nullptr) {
    p_add_proto_data(pinfo->pool, pinfo, proto_rocev2, kKey, sighting);
    return;
  }
  while (last->next != nullptr) last = last->next;
  last->next = sighting;
}

void note(tvbuff_t* tvb, packet_info* pinfo) {
  const bool ip = pinfo->src.type == AT_IPv4 || pinfo->src.type == AT_IPv6;
  if (!ip || pinfo->flags.in_error_pkt || !proto_is_protocol_enabled(find_protocol_by_id(proto_rocev2))) return;
  const Datagram datagram = describe(tvb, pinfo);
  const std::vector<BatchPacket> packets = packets_of_batch(datagram);
  if (packets.empty()) return add(pinfo, {datagram, tvb, {}, {}, nullptr});
  const auto count = static_cast<uint32_t>(packets.size());
  for (uint32_t i = 0; i < count; ++i) {
    const BatchPacket& packet = packets[i];
    Sighting sighting{packet.datagram, nullptr, {}, {}, nullptr, i + 1, count};
    const auto* const headers =
        static_cast<const uint8_t*>(wmem_memdup(pinfo->pool, packet.headers.data(), packet.headers.size()));
    sighting.datagram.ip = {headers, datagram.ip.size()};
    sighting.tvb =
        tvb_new_subset_length(tvb, static_cast<gint>(packet.offset), static_cast<gint>(packet.datagram.ib_size));
    add(pinfo, sighting);
  }
}

int dissect(tvbuff_t* tvb, packet_info* pinfo, proto_tree* tree, void* data) {
  note(tvb, pinfo);
  const int taken = builtin_handle == nullptr ? 0 : call_dissector_only(builtin_handle, tvb, pinfo, tree, data);
  return taken > 0 ? taken : static_cast<int>(tvb_captured_length(tvb));
}

}  // namespace

void register_hook() {
  proto_hook = proto_register_protocol("RoCE v2 datagram", "RoCEv2 UDP", "rocev2_udp");
  proto_set_cant_toggle(proto_hook);
  hook_handle = register_dissector("rocev2_udp", dissect, proto_hook);
}

// The built-in dissector takes the port back whenever one of its preferences changes, so this is called at the start of
// each dissection. What the user has put there with Decode As stays.
void hook_udp_port() {
  const dissector_table_t table = find_dissector_table("udp.port");
  const dissector_handle_t current = dissector_get_uint_handle(table, wire::kRoceUdpPort);
  if (current == hook_handle) return;
  if (current != nullptr && dissector_handle_get_protocol_index(current) != proto_get_id_by_filter_name("infiniband"))
    return;
  builtin_handle = current;
  dissector_add_uint("udp.port", wire::kRoceUdpPort, hook_handle);
}

const Sighting* sightings(packet_info* pinfo) {
  return static_cast<const Sighting*>(p_get_proto_data(pinfo->pool, pinfo, proto_rocev2, kKey));
}

}  // namespace uroce::dissector
