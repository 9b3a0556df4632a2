// SPDX-License-Identifier: BSD-2-Clause
// The data path of AfXdp. Set-up is in open.cc.
#include "engine/io/af_xdp/af_xdp.h"

#include <algorithm>
#include <system_error>

#include "engine/io/frame_builder.h"
#include "engine/io/netdev_query.h"

namespace uroce::io {

AfXdp::~AfXdp() {
  held_.hold(program_.link_fd());
  for (const std::unique_ptr<Queue>& queue : queues_) held_.hold(queue->xsk.fd());
}

size_t AfXdp::send(std::span<io::TxPacket> burst) {
  for (const std::unique_ptr<Queue>& queue : queues_) queue->xsk.reap(tx_slots_, counters_.ring_errors);
  size_t count = 0;
  while (count < burst.size() && send_one(burst[count])) ++count;
  for (const std::unique_ptr<Queue>& queue : queues_) queue->xsk.submit_tx();
  if (count < burst.size()) ++counters_.tx_backpressure;
  return count;
}

// False: no room. The source port picks the queue, so that a flow stays in order. A packet that is too long is of a QP
// whose path MTU is that of an earlier opening: lost, as where the netdev's MTU has shrunk.
bool AfXdp::send_one(io::TxPacket& packet) {
  const auto size = static_cast<uint32_t>(frame_size(packet));
  if (size > tx_slots_.slot_size()) {
    ++counters_.tx_errors;
    return true;
  }
  const uint32_t chunks = (size + xsk_config_.chunk_size - 1) / xsk_config_.chunk_size;
  XskQueue& xsk = queues_[packet.envelope->source_port % queues_.size()]->xsk;
  if (tx_slots_.empty() || xsk.tx_room(chunks) < chunks) return false;
  const uint64_t address = tx_slots_.take(chunks);
  packet.ip_id = next_ip_id_++;
  if (!build_frame_guarded(packet, packet.ip_id, area_.data(address))) {
    packet.unreadable = true;
    for (uint32_t i = 0; i < chunks; ++i) tx_slots_.complete(address);
    return true;
  }
  for (uint32_t offset = 0; offset < size; offset += xsk_config_.chunk_size) {
    const uint32_t rest = size - offset;
    xsk.push_tx(address + offset, std::min(rest, xsk_config_.chunk_size), rest > xsk_config_.chunk_size);
  }
  ++counters_.tx_packets;
  counters_.tx_bytes += packet.udp_length();
  return true;
}

bool AfXdp::flush() {
  bool all = true;
  for (const std::unique_ptr<Queue>& queue : queues_) {
    switch (queue->xsk.kick(counters_.tx_errors)) {
      case XskQueue::Kick::kDone:
        break;
      case XskQueue::Kick::kLater:
        all = false;
        break;
      case XskQueue::Kick::kError:  // a netdev that is down, say: left to the timers
        ++counters_.kick_errors;
        break;
    }
  }
  return all;
}

bool AfXdp::prepare_to_wait() {
  for (const std::unique_ptr<Queue>& queue : queues_) {
    queue->xsk.wake_rx_if_needed();
    if (!queue->xsk.rx_empty()) return false;
  }
  return true;
}

int AfXdp::set_local_addresses(std::span<const wire::IpAddress> addresses) {
  return program_.set_local_addresses(addresses);
}

std::string AfXdp::outgrown(const std::string& netdev, uint32_t mtu) const {
  std::string all;
  const auto add = [&all](const char* what, uint32_t from, uint32_t to) {
    if (to <= from) return;
    all += all.empty() ? "" : ", ";
    all += what + (" (" + std::to_string(from) + " when AF_XDP was opened, now ") + std::to_string(to) + ")";
  };
  add("the netdev has more receive queues", queue_count_, rx_queue_count(netdev));
  add("the MTU has grown", opened_mtu_, mtu);
  return all;
}

bool AfXdp::is_detached() const {
  return is_detached_xdp_link(program_.link_fd());
}

std::string AfXdp::description() const {
  std::string text = "af_xdp, ";
  text += program_.mode() == XdpProgram::Mode::kNative ? "native, " : "generic, ";
  text += queues_.front()->xsk.zero_copy() ? "zero-copy, " : "copy, ";
  if (multi_buffer()) text += "multi-buffer, ";
  text += std::to_string(queues_.size()) + (queues_.size() == 1 ? " queue" : " queues");
  if (program_.native_error() != 0) {
    text += " (native XDP refused: " + std::generic_category().message(program_.native_error()) + ")";
  }
  return text;
}

IoCounters AfXdp::counters() const {
  IoCounters counters = counters_;
  const IoCounters& received = receiver_.counters();
  counters.rx_packets = received.rx_packets;
  counters.rx_bytes = received.rx_bytes;
  counters.rx_malformed = received.rx_malformed;
  counters.ring_errors += received.ring_errors;
  counters.rx_too_long = received.rx_too_long;
  for (const std::unique_ptr<Queue>& queue : queues_) {
    const XskQueue::Dropped dropped = queue->xsk.dropped();
    counters.rx_no_buffer += dropped.no_buffer;
    counters.rx_too_long += dropped.too_long;
  }
  return counters;
}

}  // namespace uroce::io
