// SPDX-License-Identifier: BSD-2-Clause
// A large capture for timing: WRITEs of 8 packets over 16 connections, acknowledged, with a READ now and then and one
// packet in 500 lost and sent again. Usage: make_large FILE MEGABYTES
#include <cstdio>
#include <cstdlib>

#include "tests/dissector/script.h"

namespace uroce::golden {
namespace {

constexpr uint32_t kMtu = 1024;
constexpr uint32_t kPackets = 8;
constexpr uint32_t kConnections = 16;

struct Peer {
  Connection connection;
  uint32_t psn, msn = 0;
};

void write_message(Script& s, Peer& peer, bool lossy) {
  const auto packet = [&](uint32_t i) {
    const Opcode opcode = i == 0              ? Opcode::kRcWriteFirst
                          : i + 1 == kPackets ? Opcode::kRcWriteLast
                                              : Opcode::kRcWriteMiddle;
    return Packet{.opcode = opcode, .psn = (peer.psn + i) & wire::kMask24, .size = kMtu, .dma = kPackets * kMtu};
  };
  constexpr uint32_t kLost = 3;
  for (uint32_t i = 0; i < kPackets; ++i) {
    if (!lossy || i != kLost) s.forth(peer.connection, packet(i));
  }
  if (lossy) {
    const auto nak = wire::Aeth::make_nak(wire::NakCode::kPsnSequenceError, wire::Msn(peer.msn));
    s.back(peer.connection, {.opcode = Opcode::kRcAcknowledge, .psn = (peer.psn + kLost) & wire::kMask24, .aeth = nak});
    for (uint32_t i = kLost; i < kPackets; ++i) s.forth(peer.connection, packet(i));
  }
  peer.psn = (peer.psn + kPackets) & wire::kMask24;
  ++peer.msn;
  s.back(peer.connection, {.opcode = Opcode::kRcAcknowledge,
                           .psn = (peer.psn - 1) & wire::kMask24,
                           .aeth = wire::Aeth::make_ack(wire::kNoCreditsCode, wire::Msn(peer.msn))});
}

void read_message(Script& s, Peer& peer) {
  ++peer.msn;
  s.forth(peer.connection, {.opcode = Opcode::kRcReadRequest, .psn = peer.psn, .dma = kPackets * kMtu});
  for (uint32_t i = 0; i < kPackets; ++i) {
    const Opcode opcode = i == 0              ? Opcode::kRcReadResponseFirst
                          : i + 1 == kPackets ? Opcode::kRcReadResponseLast
                                              : Opcode::kRcReadResponseMiddle;
    s.back(peer.connection, {.opcode = opcode,
                             .psn = (peer.psn + i) & wire::kMask24,
                             .size = kMtu,
                             .aeth = wire::Aeth::make_ack(wire::kNoCreditsCode, wire::Msn(peer.msn))});
  }
  peer.psn = (peer.psn + kPackets) & wire::kMask24;
}

}  // namespace
}  // namespace uroce::golden

int main(int argc, char** argv) {
  using namespace uroce::golden;
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_large FILE MEGABYTES\n");
    return 2;
  }
  Script s{std::string(argv[1])};
  std::vector<Peer> peers;
  for (uint32_t i = 0; i < kConnections; ++i) peers.push_back({{0x1000 + i, 0x2000 + i}, 0x100000 * i});
  const uint64_t bytes = std::strtoull(argv[2], nullptr, 10) << 20;
  for (uint64_t n = 0; s.bytes_written() < bytes; ++n) {
    Peer& peer = peers[n % kConnections];
    n % 7 == 6 ? read_message(s, peer) : write_message(s, peer, n % 60 == 0);
  }
  return 0;
}
