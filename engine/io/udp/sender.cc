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

UdpSender::UdpSender(int fd, int ifindex, uint32_t max_udp_length, const RunLimits& limits, IoCounters& counters)
    : fd_(fd),
      ifindex_(ifindex),
      max_udp_length_(max_udp_length),
      limits_(limits),
      counters_(counters),
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

UdpSender::Staged UdpSender::stage(std::span<io::TxPacket> packets) {
  RunLimits limits = limits_;
  if (!support_.allowed()) limits.packets = 1;
  Staged staged;
  uint8_t* out = bytes_.get();
  while (staged.packets < packets.size() && !staged.unreadable) {
    const std::span<io::TxPacket> rest = packets.subspan(staged.packets);
    const std::span<io::TxPacket> run = rest.first(run_length(rest, limits));
    uint8_t* const begin = out;
    size_t readable = 0;
    for (; readable < run.size(); ++readable) {
      io::TxPacket& packet = run[readable];
      assert(packet.udp_length() <= max_udp_length_);
      if (!stage_packet(packet, readable, out)) break;
      out += packet.udp_length() - wire::kUdpSize;
    }
    staged.unreadable = readable < run.size();
    if (readable == 0) break;
    const size_t message = staged.messages++;
    prepare_send(slots_[message], *run[0].envelope, ifindex_, {begin, out}, run[0].udp_length() - wire::kUdpSize,
                 headers_[message].msg_hdr);
    packets_in_[message] = readable;
    staged.packets += readable;
  }
  return staged;
}

UdpSender::Sent UdpSender::send_staged(const Staged& staged) {
  Sent sent;
  for (size_t message = 0; message < staged.messages;) {
    const auto left = static_cast<unsigned>(staged.messages - message);
    const int count = sendmmsg(fd_, &headers_[message], left, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      sent.full = true;
      break;
    }
    if (count < 0 && packets_in_[message] > 1 && may_be_for_the_run(errno)) {
      support_.doubt();  // what is left is staged again, packet by packet
      break;
    }
    for (const size_t end = message + static_cast<size_t>(std::max(count, 1)); message < end; ++message) {
      account(message, count > 0);
      sent.packets += packets_in_[message];
    }
  }
  return sent;
}

// A refused packet is lost: no route, larger than the path MTU, source address gone ...
void UdpSender::account(size_t message, bool sent) {
  const size_t packets = packets_in_[message];
  if (packets == 1) support_.on_alone(sent);
  if (!sent) {
    counters_.tx_errors += packets;
    return;
  }
  counters_.tx_packets += packets;
  counters_.tx_bytes += slots_[message].buffer.iov_len + packets * wire::kUdpSize;
  if (packets == 1) return;
  support_.on_run_sent();
  ++counters_.tx_runs;
  counters_.tx_run_packets += packets;
}

}  // namespace uroce::io
