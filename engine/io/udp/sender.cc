// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/sender.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

// What the kernel says to a run that it could have sent as packets (reference/udp-sockets.md "Segmentation offload").
bool may_be_for_the_run(int error) {
  return error == EIO || error == EINVAL || error == EMSGSIZE || error == EOPNOTSUPP;
}

}  // namespace

UdpSender::UdpSender(int fd, int ifindex, uint32_t max_udp_length, const RunLimits& limits, RunPeers& peers,
                     IoCounters& counters, Notices& notices)
    : fd_(fd),
      ifindex_(ifindex),
      max_udp_length_(max_udp_length),
      limits_(limits),
      peers_(peers),
      counters_(counters),
      notices_(notices),
      support_(notices),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(kBurst * max_udp_length)) {}

size_t UdpSender::send(std::span<io::TxPacket> packets) {
  size_t done = 0;
  while (done < packets.size()) {
    const Staged staged = stage(packets.subspan(done, std::min(packets.size() - done, kBurst)));
    const Sent sent = send_staged(staged);
    done += sent.packets;
    if (sent.full) break;
    if (staged.unreadable && sent.packets == staged.packets) packets[done++].unreadable = true;
  }
  return done;
}

// How many packets from the front leave together.
size_t UdpSender::next_message(std::span<const io::TxPacket> packets) {
  const io::TxPacket& first = packets.front();
  if (!support_.allowed(first.envelope->destination)) return 1;
  const size_t run = run_length(packets, limits_);
  return run == 1 || peers_.allow(first) ? run : 1;
}

UdpSender::Staged UdpSender::stage(std::span<io::TxPacket> packets) {
  Staged staged;
  uint8_t* out = bytes_.get();
  while (staged.packets < packets.size() && !staged.unreadable) {
    const std::span<io::TxPacket> rest = packets.subspan(staged.packets);
    const wire::Envelope& envelope = *rest.front().envelope;
    const std::span<io::TxPacket> run = rest.first(next_message(rest));
    assert(
        std::all_of(run.begin(), run.end(), [this](auto& packet) { return packet.udp_length() <= max_udp_length_; }));
    const size_t readable = stage_run(run, out);
    staged.unreadable = readable < run.size();
    if (readable == 0) break;
    uint8_t* const begin = out;
    for (const io::TxPacket& packet : run.first(readable)) out += packet.udp_length() - wire::kUdpSize;
    const size_t message = staged.messages++;
    const size_t segment = run[0].udp_length() - wire::kUdpSize;
    prepare_send(slots_[message], envelope, ifindex_, {begin, out}, segment, headers_[message].msg_hdr);
    messages_[message] = {&envelope, readable, segment};
    staged.packets += readable;
  }
  return staged;
}

UdpSender::Sent UdpSender::send_staged(const Staged& staged) {
  Sent sent;
  for (size_t next = 0; next < staged.messages;) {
    const int count = sendmmsg(fd_, &headers_[next], static_cast<unsigned>(staged.messages - next), MSG_DONTWAIT);
    const int error = count < 0 ? errno : 0;
    if (error == EINTR) continue;
    if (error == EAGAIN) {
      sent.full = true;
      break;
    }
    const Message& first = messages_[next];
    if (first.packets > 1 && may_be_for_the_run(error)) {
      support_.doubt(first.envelope->destination, error);  // what is left is staged again, this one packet by packet
      break;
    }
    if (error != 0) on_refused(first, error);
    for (const size_t end = next + static_cast<size_t>(std::max(count, 1)); next < end; ++next) {
      if (error == 0) on_sent(next);
      sent.packets += messages_[next].packets;
    }
  }
  return sent;
}

void UdpSender::on_sent(size_t index) {
  const Message& message = messages_[index];
  const wire::IpAddress& to = message.envelope->destination;
  counters_.tx_packets += message.packets;
  counters_.tx_bytes += slots_[index].buffer.iov_len + message.packets * wire::kUdpSize;
  if (notices_.any()) notices_.end(Notice::What::kTooLong, to, message.ip_length());
  if (message.packets == 1) return support_.on_alone(to, true);
  support_.on_run_sent(to);
  ++counters_.tx_runs;
  counters_.tx_run_packets += message.packets;
}

// It is lost: no route, longer than the path MTU, source address gone ...
void UdpSender::on_refused(const Message& message, int error) {
  const wire::IpAddress& to = message.envelope->destination;
  counters_.tx_errors += message.packets;
  if (message.packets == 1) support_.on_alone(to, false);
  if (error != EMSGSIZE) return;
  notices_.note({.what = Notice::What::kTooLong, .to = to, .error = error, .length = message.ip_length()});
}

uint32_t UdpSender::Message::ip_length() const {
  const size_t ip = envelope->destination.is_v4() ? wire::kIpv4Size : wire::kIpv6Size;
  return static_cast<uint32_t>(ip + wire::kUdpSize + segment);
}

}  // namespace uroce::io
