// SPDX-License-Identifier: BSD-2-Clause
// What the kernel copies into the rings of net_af_packet. Without this it would be everything that the netdev sees,
// which costs each process a copy and a look: other traffic of the host, packets for other processes, runs of packets
// that are too long for the rings' buffers.
#include <iterator>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include "engine/io/dpdk/module/module.h"
#include "wire/psn.h"

namespace uroce::io::dpdk {
namespace {

#ifndef PACKET_IGNORE_OUTGOING
constexpr int PACKET_IGNORE_OUTGOING = 23;  // Linux 4.20
#endif

constexpr uint32_t kEther = 14, kTypeAt = 12, kTypeV4 = 0x0800, kTypeV6 = 0x86dd;
constexpr uint32_t kProtocolUdp = 17, kRocePort = 4791, kOffsetBits = 0x1fff;
constexpr uint32_t kV4Offset = kEther + 6, kV4Protocol = kEther + 9, kV6Protocol = kEther + 6, kV6Udp = kEther + 40;
constexpr uint32_t kPortAt = 2, kQpnAt = 8 + 4;  // in the UDP header; behind it, in a word of the BTH
constexpr uint32_t kQpnMask = wire::kMask24, kMulticast = wire::kMulticastQpn.value();
constexpr uint32_t kWhole = 0xffffffff;

}  // namespace

// Frames to UDP port 4791 that are for these QP numbers or for groups, in whole or the first fragment. A frame that is
// too short for its headers is dropped, as each load fails that is beyond it.
void take_only(int packet_socket, const PacketFilter& wanted) {
  const uint32_t last = wanted.qpn_count == 0 ? kQpnMask : wanted.first_qpn + wanted.qpn_count - 1;
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
                        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, wanted.longest_frame, 19, 0),
                        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kTypeAt),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kTypeV6, 7, 0),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kTypeV4, 0, 16),
                        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kV4Protocol),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kProtocolUdp, 0, 14),
                        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kV4Offset),
                        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kOffsetBits, 12, 0),
                        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, kEther),
                        BPF_JUMP(BPF_JMP | BPF_JA, 3, 0, 0),
                        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kV6Protocol),  // IPv6
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kProtocolUdp, 0, 8),
                        BPF_STMT(BPF_LDX | BPF_W | BPF_IMM, kV6Udp - kEther),
                        BPF_STMT(BPF_LD | BPF_H | BPF_IND, kEther + kPortAt),  // both
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRocePort, 0, 5),
                        BPF_STMT(BPF_LD | BPF_W | BPF_IND, kEther + kQpnAt),
                        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kQpnMask),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMulticast, 3, 0),
                        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, wanted.first_qpn, 0, 1),
                        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, 0),
                        BPF_STMT(BPF_RET | BPF_K, kWhole)};
  const sock_fprog program{.len = static_cast<unsigned short>(std::size(code)), .filter = code};
  setsockopt(packet_socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  const int on = 1;
  setsockopt(packet_socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
}

}  // namespace uroce::io::dpdk
