// SPDX-License-Identifier: BSD-2-Clause
// A captured frame as the analysis takes it. Used by the tests of the analysis without Wireshark.
#pragma once

#include <vector>

#include "dissector/analysis/datagram.h"
#include "pcapng/record.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {

// As plugin/hook.cc describes a frame without VLAN, tunnel or fragments. False: not RoCE v2.
inline bool describe(const pcapng::Record& record, uint32_t number, Datagram& out) {
  const std::vector<uint8_t>& f = record.frame;
  constexpr size_t kIb = wire::kEthernetSize + wire::kIpv4Size + wire::kUdpSize;
  if (f.size() < kIb) return false;
  const uint8_t* const ip = f.data() + wire::kEthernetSize;
  const auto view = wire::Ipv4View::at(ip);
  if (ip[0] != 0x45 || view.protocol() != wire::kIpProtocolUdp || (view.flags_and_offset() & 0x3fff) != 0) return false;
  if (wire::load_be16(ip + wire::kIpv4Size + 2) != wire::kRoceUdpPort) return false;
  out.frame = number;
  out.time = record.time.time_since_epoch().count();
  out.source = wire::IpAddress::v4(view.source());
  out.destination = wire::IpAddress::v4(view.destination());
  out.source_port = wire::load_be16(ip + wire::kIpv4Size);
  out.has_ip_id = true;
  out.ip_id = view.id();
  out.traffic_class = view.traffic_class();
  out.ip = {ip, wire::kIpv4Size};
  out.ib = std::span(f).subspan(kIb);
  out.ib_size = static_cast<uint32_t>(out.ib.size());
  return true;
}

}  // namespace uroce::dissector
