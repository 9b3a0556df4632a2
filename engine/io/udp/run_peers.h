// SPDX-License-Identifier: BSD-2-Clause
// Which peers take runs of packets that nobody acknowledges: those of UC and UD, whose loss nobody would notice. A peer
// is asked, by a run of two packets with an opcode of our own, and one that is uroce over UDP sockets answers the
// second one: it reads runs, and the path carries them. Whoever else gets the question drops it, and gets these packets
// one by one (reference/udp-sockets.md "Asking for runs"). Part of UdpIo, for one socket.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/io/packet_io.h"
#include "engine/io/tx_packet.h"
#include "wire/envelope.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace uroce::io {

class RunPeers {
 public:
  using Clock = std::chrono::steady_clock;
  // A peer that has answered is asked again while there are packets for it, and may stay silent for so long; it may
  // have become another one. Where nobody answers, the time between questions doubles.
  static constexpr Clock::duration kInterval = std::chrono::seconds(1), kLongestInterval = std::chrono::minutes(1);
  static constexpr Clock::duration kTrust = 3 * kInterval;
  static constexpr size_t kPeers = 64;  // others are not asked
  // Answers are no more frequent, and take no more than a part of the time: who waits at the socket of whoever has
  // asked is woken by them, and may be millions.
  static constexpr Clock::duration kAnswerInterval = std::chrono::microseconds(100);
  static constexpr int kShareOfAnswers = 100;

  using Now = Clock::time_point (*)();
  // `ifindex`: for link-local destinations.
  RunPeers(int fd, int ifindex, Now now = Clock::now);

  // They are this host's, where nobody is answered: packets by memory need no runs, and what is sent to another user's
  // process is accounted for elsewhere (same_host/same_host.h).
  void set_local_addresses(std::span<const wire::IpAddress> addresses) {
    local_addresses_.assign(addresses.begin(), addresses.end());
  }
  // Whether this packet may leave in a run.
  bool allow(const io::TxPacket& packet);
  // False: the packet is no question and no answer.
  bool take(const RxPacket& packet) { return packet.ib.size() == kSize && take_ours(packet); }

 private:
  // Behind the BTH: the QPN that the answer goes to, so that it gets to the process that asks, and its cookie.
  static constexpr size_t kQpnAt = wire::kBthSize, kCookieAt = kQpnAt + 4, kIcrcAt = kCookieAt + 4;
  static constexpr size_t kSize = kIcrcAt + wire::kIcrcSize;
  using Body = std::span<const uint8_t, kIcrcAt - kQpnAt>;
  struct Peer {
    wire::IpAddress address;
    Clock::time_point ask_at{}, trusted_until{};
    Clock::duration interval = kInterval;
  };

  bool take_ours(const RxPacket& packet);
  Peer* find(const wire::IpAddress& address);
  Peer* place_for(const wire::IpAddress& address, Clock::time_point now);
  void ask(const io::TxPacket& packet);
  void answer(const RxPacket& question);
  void send(const wire::Envelope& envelope, wire::Opcode opcode, wire::Qpn to, Body body, size_t packets);

  const int fd_;
  const int ifindex_;
  const Now now_;
  const uint32_t cookie_;  // what answers repeat: only who has got the question knows it
  std::array<Peer, kPeers> peers_;
  size_t count_ = 0;
  Clock::time_point next_answer_{};
  std::vector<wire::IpAddress> local_addresses_;
};

}  // namespace uroce::io
