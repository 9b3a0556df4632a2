// SPDX-License-Identifier: BSD-2-Clause
#include "tests/fuzz/hostile_packet.h"

#include <algorithm>

#include "tests/engine/transport/peer_packet.h"

namespace uroce::fuzz {

namespace {

constexpr uint8_t kOpcodes = 0x20;  // of each transport

uint8_t first_opcode(wire::Transport transport) {
  switch (transport) {
    case wire::Transport::kUc:
      return 0x20;
    case wire::Transport::kUd:
      return 0x60;
    case wire::Transport::kXrc:
      return 0xa0;
    default:
      return 0;
  }
}

wire::Opcode opcode(Input& input, wire::Transport transport) {
  const uint8_t choice = input.byte();
  const uint8_t operation = transport == wire::Transport::kUd ? 4 + choice % 2 : choice % kOpcodes;
  if (choice < 7 * kOpcodes) return static_cast<wire::Opcode>(first_opcode(transport) + operation);
  return choice % 2 == 0 ? wire::Opcode::kCnp : static_cast<wire::Opcode>(input.byte());
}

// As long as the opcode wants it, or one byte off, or shorter, or anything.
std::vector<uint8_t> payload(Input& input, const wire::OpcodeInfo& info, uint32_t path_mtu) {
  const uint8_t choice = input.byte();
  uint32_t size = 0;
  if (choice >= 240) {
    size = input.below(4400);
  } else if (info.has_payload) {
    size = info.last ? input.below(path_mtu + 1) : path_mtu;
    if (choice >= 220) {
      size = input.below(size + 1);
    } else if (choice >= 200) {
      size += choice % 2 == 0 ? 1 : size > 0 ? -1 : 0;
    }
  }
  return std::vector<uint8_t>(size, choice);
}

uint32_t message_length(Input& input, uint32_t usual) {
  constexpr uint32_t kLimits[] = {0, 1, 8, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};
  const uint8_t choice = input.byte();
  return choice < 200 ? usual : choice < 220 ? input.word() : kLimits[choice % std::size(kLimits)];
}

}  // namespace

std::vector<uint8_t> hostile_packet(Input& input, const Arena& victim, uint32_t path_mtu, wire::Psn psn,
                                    wire::Transport transport) {
  const wire::Opcode code = opcode(input, transport);
  const wire::OpcodeInfo& info = wire::opcode_info(code);
  transport::test::PeerPacket packet(code, psn.value());
  const uint8_t flags = input.byte();
  if (flags & 1) packet.ack_request();
  if (flags & 2) packet.solicited();
  const std::vector<uint8_t> data = payload(input, info, path_mtu);
  packet.payload(data);
  if ((flags & 0x1c) == 0x1c) packet.pad(flags >> 5 & 3);
  const auto here = static_cast<uint32_t>(data.size());
  if (info.has_reth) {
    const bool whole = info.last && info.has_payload;
    const queue::Sge range = victim.range(input, whole ? here : 6000);
    packet.reth(range.address, range.lkey, message_length(input, whole ? here : range.length));
  }
  if (info.has_atomic_eth) {
    const queue::Sge range = victim.range(input, 8);
    packet.atomic(range.address & ~uint64_t{flags & 0x40 ? 0u : 7u}, range.lkey, input.word(), input.byte());
  }
  if (info.has_xrceth) packet.srqn(flags & 0x80 ? input.below(8) : kSrqn);
  if (info.has_deth) packet.datagram(flags & 0x80 ? input.word() : kQkey, input.byte());
  if (info.has_feth) packet.flush(input.byte() & 0xf, input.byte() & 3);
  if (info.has_aeth) packet.aeth(input.byte(), input.word());
  if (info.has_atomic_ack_eth) packet.original(input.word());
  if (info.has_immdt) packet.immediate(input.byte());
  if (info.has_ieth) packet.invalidate(victim.range(input, 0).lkey);
  return packet.bytes();
}

}  // namespace uroce::fuzz
