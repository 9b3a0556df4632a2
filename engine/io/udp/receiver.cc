// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/receiver.h"

#include <algorithm>
#include <utility>

#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

// Buffers do not begin at the same place of a page and of a cache's set: most messages are short.
constexpr size_t kStagger = 17 * 64;

}  // namespace

UdpReceiver::UdpReceiver(int fd, int netdev, RunPeers& peers, IoCounters& counters, Notices& notices)
    : fd_(fd),
      netdev_(netdev),
      peers_(peers),
      counters_(counters),
      notices_(notices),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(kMessages * (kMessageSize + kStagger))) {
  prepare(kMessages);
}

void UdpReceiver::prepare(size_t messages) {
  for (size_t i = 0; i < messages; ++i) {
    prepare_receive(slots_[i], {&bytes_[i * (kMessageSize + kStagger)], kMessageSize}, headers_[i].msg_hdr);
  }
}

size_t UdpReceiver::receive(std::span<RxPacket> out) {
  if (out.empty()) return 0;
  if (!left_over()) receive_messages();
  return left_over() ? hand_out(out) : 0;
}

void UdpReceiver::receive_messages() {
  current_ = arrived_ = 0;
  prepare(std::exchange(written_, 0));
  const int received = recvmmsg(fd_, headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
  last_ = static_cast<size_t>(std::max(received, 0));
  if (received <= 0) return;
  written_ = last_;
  for (size_t i = 0; i < written_; ++i) {
    Run& run = runs_[arrived_];
    if (!parse_received(headers_[i].msg_hdr, headers_[i].msg_len, run.arrival, dropped_)) {
      ++counters_.rx_malformed;
      continue;
    }
    if (is_from_elsewhere(run.arrival)) {
      ++counters_.rx_wrong_netdev;
      notices_.note({.what = Notice::What::kCameElsewhere,
                     .to = run.arrival.envelope.destination,
                     .netdev = run.arrival.ifindex});
      continue;
    }
    run.offset = 0;
    expect_ids(run);
    ++arrived_;
  }
}

bool UdpReceiver::is_from_elsewhere(const UdpArrival& arrival) const {
  return netdev_ != 0 && arrival.ifindex != netdev_ && !arrival.envelope.destination.is_multicast();
}

size_t UdpReceiver::hand_out(std::span<RxPacket> out) {
  size_t count = 0;
  while (count < out.size() && left_over()) {
    Run& run = runs_[current_];
    RxPacket& packet = out[count];
    const bool first = run.offset == 0;
    next_packet(run, packet);
    if (run.offset == run.arrival.bytes.size()) ++current_;
    if (peers_.take(packet)) continue;
    ++count;
    const bool in_run = packet.in_run = run.arrival.segment < run.arrival.bytes.size();
    counters_.rx_runs += in_run && first;
    counters_.rx_run_packets += in_run;
    ++counters_.rx_packets;
    counters_.rx_bytes += packet.ib.size() + wire::kUdpSize;
  }
  return count;
}

void UdpReceiver::next_packet(Run& run, RxPacket& packet) {
  const UdpArrival& arrival = run.arrival;
  packet.renew();
  packet.envelope = arrival.envelope;
  packet.envelope.ip_id = run.ip_id;
  packet.ib = arrival.bytes.subspan(run.offset, std::min(arrival.segment, arrival.bytes.size() - run.offset));
  run.ip_id = static_cast<uint16_t>(run.ip_id + run.step);
  run.offset += packet.ib.size();
}

// The socket hides the IPv4 IDs, which the ICRCs cover. A run counts up from where its sender or the network has begun
// it, mostly 0; or it is of packets that were sent alone, which all have one ID. Only a guess: who checks an ICRC finds
// out.
void UdpReceiver::expect_ids(Run& run) {
  const UdpArrival& arrival = run.arrival;
  run.ip_id = 0;
  run.step = 1;
  if (arrival.envelope.ip_id_known || arrival.bytes.size() < 2 * arrival.segment) return;
  wire::Envelope second = arrival.envelope;
  second.ip_id = 1;
  const auto second_id = wire::icrc_ip_id(second, arrival.bytes.subspan(arrival.segment, arrival.segment));
  if (!second_id || *second_id == 1) return;
  const auto first_id = wire::icrc_ip_id(arrival.envelope, arrival.bytes.first(arrival.segment));
  if (first_id == second_id) run.step = 0;
  run.ip_id = static_cast<uint16_t>(*second_id - run.step);
}

}  // namespace uroce::io
