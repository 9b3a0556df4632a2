// SPDX-License-Identifier: BSD-2-Clause
// Frame template of xsk_bench. The MAC addresses are broadcast and a local one: XDP on the peer redirects before
// anything looks at them.
#include "bench/limits_src/frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

namespace uroce::limits {
namespace {

constexpr uint16_t kRoceUdpPort = 4791;

uint16_t ip_checksum(const iphdr& ip) {
  uint16_t words[sizeof(iphdr) / 2];
  std::memcpy(words, &ip, sizeof ip);
  uint32_t sum = 0;
  for (uint16_t word : words) sum += word;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

void write_frame(uint8_t* frame, uint32_t bytes) {
  std::memset(frame, 0, bytes);

  ethhdr eth = {};
  std::memset(eth.h_dest, 0xff, sizeof eth.h_dest);
  eth.h_source[0] = 0x02;
  eth.h_proto = htons(ETH_P_IP);

  iphdr ip = {};
  ip.version = 4;
  ip.ihl = 5;
  ip.tot_len = htons(static_cast<uint16_t>(bytes - sizeof eth));
  ip.frag_off = htons(0x4000);  // don't fragment
  ip.ttl = 64;
  ip.protocol = IPPROTO_UDP;
  ip.saddr = htonl(0xc0000201);  // 192.0.2.1
  ip.daddr = htonl(0xc0000202);
  ip.check = ip_checksum(ip);

  udphdr udp = {};
  udp.source = htons(0xc000);
  udp.dest = htons(kRoceUdpPort);
  udp.len = htons(static_cast<uint16_t>(bytes - sizeof eth - sizeof ip));

  std::memcpy(frame, &eth, sizeof eth);
  std::memcpy(frame + sizeof eth, &ip, sizeof ip);
  std::memcpy(frame + sizeof eth + sizeof ip, &udp, sizeof udp);
}

bool is_our_frame(const uint8_t* frame, uint32_t bytes) {
  if (bytes < kMinFrameBytes) return false;
  uint16_t ether_type, udp_port;
  std::memcpy(&ether_type, frame + 12, sizeof ether_type);
  std::memcpy(&udp_port, frame + 36, sizeof udp_port);
  return ether_type == htons(ETH_P_IP) && udp_port == htons(kRoceUdpPort);
}

}  // namespace uroce::limits
