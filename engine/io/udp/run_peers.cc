// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/run_peers.h"

#include <algorithm>
#include <cstring>
#include <sys/socket.h>

#include "base/random.h"
#include "engine/io/udp/message.h"
#include "wire/bth.h"
#include "wire/icrc.h"

namespace uroce::io {
namespace {

// Two of those that IBTA 9.2.1 leaves to manufacturers.
constexpr auto kQuestion = wire::Opcode{0xc0}, kAnswer = wire::Opcode{0xc1};
constexpr uint32_t kLast = 1;  // the PSN of the packet that is answered

bool acknowledged(const io::TxPacket& packet) {
  const wire::Transport transport = wire::opcode_info(wire::BthView::at(packet.header.data()).opcode()).transport;
  return transport == wire::Transport::kRc || transport == wire::Transport::kXrc;
}

}  // namespace

RunPeers::RunPeers(int fd, int ifindex, Now now)
    : fd_(fd), ifindex_(ifindex), now_(now), cookie_(engine::secure_random()) {}

bool RunPeers::allow(const io::TxPacket& packet) {
  if (acknowledged(packet)) return true;
  const wire::IpAddress& to = packet.envelope->destination;
  if (to.is_multicast()) return false;
  const Clock::time_point now = now_();
  Peer* const known = find(to);
  Peer* const peer = known != nullptr ? known : place_for(to, now);
  if (peer == nullptr) return false;
  if (now >= peer->ask_at) {
    ask(packet);
    peer->ask_at = now + peer->interval;
    peer->interval = std::min(2 * peer->interval, kLongestInterval);
  }
  return now < peer->trusted_until;
}

RunPeers::Peer* RunPeers::find(const wire::IpAddress& address) {
  const auto end = peers_.begin() + count_;
  const auto found = std::find_if(peers_.begin(), end, [&](const Peer& peer) { return peer.address == address; });
  return found == end ? nullptr : &*found;
}

// Null: all places are taken by peers that packets have gone to lately.
RunPeers::Peer* RunPeers::place_for(const wire::IpAddress& address, Clock::time_point now) {
  const auto end = peers_.begin() + count_;
  const auto unused = std::find_if(peers_.begin(), end, [=](const Peer& p) { return p.ask_at + kTrust <= now; });
  if (unused == peers_.end()) return nullptr;
  if (unused == end) ++count_;
  *unused = {.address = address};
  return &*unused;
}

bool RunPeers::take_ours(const RxPacket& packet) {
  const std::span<const uint8_t> ib = packet.ib;
  const auto bth = wire::BthView::at(ib.data());
  if (bth.opcode() != kQuestion && bth.opcode() != kAnswer) return false;
  if (packet.envelope.destination.is_multicast() || !wire::icrc_matches(packet.envelope, ib)) return false;
  if (bth.opcode() == kQuestion) {
    if (bth.psn() == wire::Psn(kLast)) answer(packet);
  } else if (Peer* const peer = find(packet.envelope.source);
             peer != nullptr && wire::load_be32(&ib[kCookieAt]) == cookie_) {
    peer->interval = kInterval;
    peer->trusted_until = now_() + kTrust;
  }
  return true;
}

void RunPeers::ask(const io::TxPacket& packet) {
  std::array<uint8_t, kIcrcAt - kQpnAt> body;
  wire::store_be32(&body[0], packet.source_qpn.value());
  wire::store_be32(&body[kCookieAt - kQpnAt], cookie_);
  send(*packet.envelope, kQuestion, wire::BthView::at(packet.header.data()).dest_qp(), body, kLast + 1);
}

void RunPeers::answer(const RxPacket& question) {
  const Clock::time_point now = now_();
  if (now < next_answer_) return;
  const auto& asks = question.envelope.source;
  if (std::find(local_addresses_.begin(), local_addresses_.end(), asks) != local_addresses_.end()) return;
  wire::Envelope back;
  back.source = question.envelope.destination;
  back.destination = question.envelope.source;
  const wire::Qpn to(wire::load_be32(&question.ib[kQpnAt]) & wire::kMask24);
  send(back, kAnswer, to, question.ib.subspan<kQpnAt, kIcrcAt - kQpnAt>(), 1);
  next_answer_ = now + std::max(kAnswerInterval, kShareOfAnswers * (now_() - now));
}

// What is lost is asked again.
void RunPeers::send(const wire::Envelope& envelope, wire::Opcode opcode, wire::Qpn to, Body body, size_t packets) {
  std::array<uint8_t, (kLast + 1) * kSize> bytes;
  std::array<io::TxPacket, kLast + 1> run;
  for (uint32_t i = 0; i < packets; ++i) {
    io::TxPacket& packet = run[i];
    packet.envelope = &envelope;
    packet.header_size = kIcrcAt;
    std::copy(body.begin(), body.end(), &packet.header[kQpnAt]);
    wire::Bth{.opcode = opcode, .dest_qp = to, .psn = wire::Psn(i)}.emit(packet.header.data());
  }
  static_cast<void>(stage_run(std::span(run).first(packets), bytes.data()));
  UdpTxSlot slot;
  msghdr message;
  prepare_send(slot, envelope, ifindex_, std::span(bytes).first(packets * kSize), kSize, message);
  static_cast<void>(sendmsg(fd_, &message, MSG_DONTWAIT));
}

}  // namespace uroce::io
