// SPDX-License-Identifier: BSD-2-Clause
// The data path of DpdkIo. Set-up is in open.cc.
#include "engine/io/dpdk/dpdk.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <sched.h>
#include <sys/timerfd.h>
#include <utility>

#include "base/clock.h"
#include "base/concat.h"
#include "base/fork.h"
#include "engine/io/frame_builder.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"
#include "wire/psn.h"

namespace uroce::io {
namespace {

// Without interrupts the port is looked at so often while nobody polls: soon after packets, then ever less.
constexpr Duration kShortPause = std::chrono::microseconds(50);
constexpr Duration kLongPause = std::chrono::milliseconds(1);
// A driver that takes nothing for so long has nobody at its other end, or one that was stopped.
constexpr Duration kPatience = std::chrono::milliseconds(10);

constexpr uint32_t kLooksPerLink = 4096;
// To ask for other frames is a system call with some; the packets' latency is worth more than theirs.
constexpr uint32_t kLooksPerOthers = 64;
constexpr Duration kLinkIsGone = std::chrono::milliseconds(500);

constexpr uint16_t kEtherTypeV4 = 0x0800, kEtherTypeV6 = 0x86dd, kEtherTypeVlan = 0x8100;

constexpr size_t kTagAt = 2 * sizeof(wire::MacAddress);
constexpr uint16_t kVlanId = 0xfff;  // the other bits of a tag are a priority

bool has_tag(std::span<const uint8_t> frame) {
  return frame.size() >= kTagAt + wire::kVlanTagSize && wire::load_be16(frame.data() + kTagAt) == kEtherTypeVlan;
}

// Whether a frame that is no packet was meant to be one: all the host's traffic may come to the port.
bool looks_like_roce(std::span<const uint8_t> frame) {
  if (frame.size() < wire::kMaxFrameHeaderSize) return false;
  const uint8_t* const ip = frame.data() + wire::kEthernetSize;
  const uint16_t type = wire::load_be16(ip - 2);
  if (type == kEtherTypeV6) {
    return ip[6] == wire::kIpProtocolUdp && wire::load_be16(ip + wire::kIpv6Size + 2) == wire::kRoceUdpPort;
  }
  const size_t header = size_t{4} * (ip[0] & 0x0f);
  if (type != kEtherTypeV4 || ip[9] != wire::kIpProtocolUdp) return false;
  const bool first_piece = (wire::load_be16(ip + 6) & 0x1fff) == 0;
  return first_piece && frame.size() >= wire::kEthernetSize + header + 4 &&
         wire::load_be16(ip + header + 2) == wire::kRoceUdpPort;
}

uint32_t largest_udp_length(uint32_t mtu) {
  return std::min(mtu, DpdkIo::kMaxMtu) - static_cast<uint32_t>(wire::kIpv6Size);  // the longer IP header
}

}  // namespace

DpdkIo::DpdkIo(const DpdkCalls& calls, DpdkPort* port, const DpdkPortInfo& info, const DpdkConfig& config)
    : calls_(calls),
      port_(port),
      driver_(info.driver),
      hugepages_(info.hugepages),
      interrupt_count_(info.descriptor_count),
      max_udp_length_(largest_udp_length(config.mtu)),
      qpns_(config.qpns),
      others_(config.others),
      has_netdev_(!config.netdev.empty()),
      vlan_(config.vlan),
      inserts_vlan_(info.inserts_vlan),
      mac_(config.mac),
      outgoing_(info.queues) {
  ForkGuard guard;
  for (const int fd : std::span(info.descriptors).first(info.descriptor_count)) {
    guard.close_in_children(fd);
    wait_descriptors_.push_back({fd, POLLIN, 0});
  }
  if (interrupt_count_ == 0) timer_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (timer_) wait_descriptors_.push_back({timer_.get(), POLLIN, 0});
  if (others_ && !others_cost_nothing()) wait_descriptors_.push_back({others_->descriptor(), POLLIN, 0});
}

DpdkIo::~DpdkIo() {
  for (uint32_t queue = 0; queue < outgoing_.size(); ++queue) {
    while (!transmit(queue)) sched_yield();  // for kPatience at most, then they are lost
  }
  release_held();
  for (const Outgoing& queue : outgoing_) calls_.release(queue.frames.data(), queue.count);
  calls_.release(spare_.data(), spare_count_);
  ForkGuard guard;  // from when they are forgotten until they are closed
  for (const pollfd& descriptor : std::span(wait_descriptors_).first(interrupt_count_)) guard.forget(descriptor.fd);
  calls_.close(port_);
}

// --- receiving
// --------------------------------------------------------------------------------------------------------

void DpdkIo::release_held() {
  calls_.release(held_.data(), std::exchange(held_count_, 0));
}

size_t DpdkIo::receive(std::span<RxPacket> out) {
  release_held();
  held_count_ = calls_.receive(port_, held_.data(), std::min(out.size(), kMaxBurst));
  size_t count = 0;
  for (size_t i = 0; i < held_count_; ++i) {
    if (take(held_[i], count, out[count])) ++count;
  }
  counters_.rx_packets += count;
  if (count > 0) quiet_ = false;
  if (others_) look_after_others();
  return count;
}

// False: it is no packet for us.
bool DpdkIo::take(const DpdkBuffer& buffer, size_t slot, RxPacket& packet) {
  const std::span<const uint8_t> frame = frame_of(buffer, slot);
  if (!is_to_us(buffer, frame)) return false;
  const wire::FrameError error =
      buffer.bad_checksum ? wire::FrameError::kBadIpChecksum : wire::parse_frame(frame, packet.envelope, packet.ib);
  if (error != wire::FrameError::kNone) {
    const bool tagged = has_tag(frame);
    if (looks_like_roce(frame.subspan(tagged ? wire::kVlanTagSize : 0))) {
      // net_af_packet cuts off what its buffers cannot hold: a run of packets, which comes to the socket beside it.
      const bool of_run = error == wire::FrameError::kTruncated && has_netdev_ && frame.size() > longest_frame();
      if (!of_run) count_malformed(frame, error);
    } else if (others_) {
      give_others(frame, tagged);
    }
    return false;
  }
  if (is_for_others(packet.ib)) return false;
  packet.renew();
  packet.frame = frame;
  counters_.rx_bytes += packet.ib.size() + wire::kUdpSize;
  return true;
}

// In one piece; empty: there is none.
std::span<const uint8_t> DpdkIo::frame_of(const DpdkBuffer& buffer, size_t slot) {
  if (buffer.segments == 1) return {buffer.data, buffer.size};
  if (buffer.segments == 0) {
    ++counters_.ring_errors;
    return {};
  }
  if (buffer.total > kMaxFrameSize) {
    ++counters_.rx_too_long;
    return {};
  }
  bounce_.resize(kMaxBurst * kMaxFrameSize);
  uint8_t* const start = bounce_.data() + slot * kMaxFrameSize;
  const size_t size = calls_.gather(&buffer, start, kMaxFrameSize);
  if (size == 0) ++counters_.ring_errors;
  return {start, size};
}

// By its MAC addresses, as a port may show frames of others, and those that this host sends; and by its VLAN. A port on
// a netdev has none: a tag is of a VLAN whose netdev is another one.
bool DpdkIo::is_to_us(const DpdkBuffer& buffer, std::span<const uint8_t> frame) const {
  if (frame.size() < wire::kEthernetSize) return false;
  const bool to_group = (frame[0] & 1) != 0;
  if (!to_group && std::memcmp(frame.data(), mac_.data(), mac_.size()) != 0) return false;
  if (std::memcmp(frame.data() + mac_.size(), mac_.data(), mac_.size()) == 0) return false;
  if (!has_tag(frame)) return buffer.vlan == vlan_;
  return vlan_ != 0 && buffer.vlan == 0 && (wire::load_be16(frame.data() + kTagAt + 2) & kVlanId) == vlan_;
}

void DpdkIo::give_others(std::span<const uint8_t> frame, bool tagged) {
  if (!tagged) return others_->take(frame);
  untagged_.assign(frame.begin(), frame.begin() + kTagAt);
  untagged_.insert(untagged_.end(), frame.begin() + kTagAt + wire::kVlanTagSize, frame.end());
  others_->take(untagged_);
}

// Who has not even a QP number is for the engine to judge.
bool DpdkIo::is_for_others(std::span<const uint8_t> ib) const {
  constexpr size_t kQpnAt = 5;  // in the BTH
  if (!qpns_ || ib.size() < kQpnAt + 3) return false;
  const wire::Qpn qpn{wire::load_be24(ib.data() + kQpnAt)};
  return qpn != wire::kMulticastQpn && !qpns_->contains(qpn);
}

void DpdkIo::count_malformed(std::span<const uint8_t> frame, wire::FrameError error) {
  ++counters_.rx_malformed;
  if (malformed_observer_) malformed_observer_(frame, error);
}

// --- sending
// ----------------------------------------------------------------------------------------------------------

size_t DpdkIo::send(std::span<io::TxPacket> burst) {
  size_t count = 0;
  while (count < burst.size() && send_one(burst[count])) ++count;
  if (count < burst.size()) ++counters_.tx_backpressure;
  return count;
}

// False: no room. The source port picks the queue, so that a flow stays in order.
bool DpdkIo::send_one(io::TxPacket& packet) {
  const auto number = static_cast<uint32_t>(packet.envelope->source_port % outgoing_.size());
  Outgoing& queue = outgoing_[number];
  if (queue.count == queue.frames.size() && !transmit(number) && queue.count == queue.frames.size()) return false;
  if (spare_count_ == 0) spare_count_ = calls_.reserve(port_, spare_.data(), spare_.size() / 2);
  if (spare_count_ == 0) return false;
  DpdkBuffer buffer = spare_[spare_count_ - 1];
  const auto size = static_cast<uint32_t>(frame_size(packet));
  packet.ip_id = next_ip_id_++;
  assert(size + wire::kVlanTagSize <= buffer.size);
  if (!build_frame_guarded(packet, packet.ip_id, frame_start(buffer))) {
    packet.unreadable = true;
    return true;
  }
  --spare_count_;
  finish_frame(buffer, size);
  queue.frames[queue.count++] = buffer;
  ++counters_.tx_packets;
  counters_.tx_bytes += packet.udp_length();
  return true;
}

// Where a frame is built: with room for the tag in front of it, if that is not the driver's work.
uint8_t* DpdkIo::frame_start(const DpdkBuffer& buffer) const {
  return buffer.data + (vlan_ != 0 && !inserts_vlan_ ? wire::kVlanTagSize : 0);
}

void DpdkIo::finish_frame(DpdkBuffer& buffer, size_t size) const {
  const uint8_t* const start = frame_start(buffer);
  if (start != buffer.data) {
    std::memmove(buffer.data, start, kTagAt);
    wire::store_be16(buffer.data + kTagAt, kEtherTypeVlan);
    wire::store_be16(buffer.data + kTagAt + 2, vlan_);
  } else {
    buffer.vlan = vlan_;
  }
  buffer.size = static_cast<uint32_t>(size + static_cast<size_t>(start - buffer.data));
}

// False: some are left.
bool DpdkIo::transmit(uint32_t number) {
  Outgoing& queue = outgoing_[number];
  if (queue.count == 0) return true;
  const size_t taken = calls_.send(port_, number, queue.frames.data(), queue.count);
  std::move(queue.frames.begin() + taken, queue.frames.begin() + queue.count, queue.frames.begin());
  queue.count -= taken;
  if (queue.count == 0 || taken > 0) {
    queue.stalled_since = kNever;
    return queue.count == 0;
  }
  const Time now = monotonic_now();
  if (queue.stalled_since == kNever) queue.stalled_since = now;
  if (calls_.link_up(port_) && now - queue.stalled_since < kPatience) return false;  // which may bring the link back
  // Lost, as on a wire. The next ones are tried, and lost at once while the link is down.
  calls_.release(queue.frames.data(), queue.count);
  counters_.tx_errors += std::exchange(queue.count, 0);
  return true;
}

bool DpdkIo::flush() {
  if (others_ && others_cost_nothing()) send_others();
  bool all = true;
  for (uint32_t number = 0; number < outgoing_.size(); ++number) all = transmit(number) && all;
  return all;
}

// As many as a burst, at most.
void DpdkIo::send_others() {
  Outgoing& queue = outgoing_.front();
  while (queue.count < queue.frames.size()) {
    if (spare_count_ == 0) spare_count_ = calls_.reserve(port_, spare_.data(), spare_.size() / 2);
    if (spare_count_ == 0) return;
    DpdkBuffer buffer = spare_[spare_count_ - 1];
    uint8_t* const start = frame_start(buffer);
    const size_t size = others_->next({start, buffer.data + buffer.size});
    if (size == 0) return;
    if (size > longest_other_frame()) {  // the netdev's MTU has grown since
      ++counters_.tx_errors;
      continue;
    }
    --spare_count_;
    finish_frame(buffer, size);
    queue.frames[queue.count++] = buffer;
  }
}

// In each round, also of a program that sends nothing.
void DpdkIo::look_after_others() {
  if (++looks_ >= kLooksPerLink) tell_link();
  if (others_cost_nothing() || looks_ % kLooksPerOthers == 0) send_others();
  if (outgoing_.front().count > 0) transmit(0);
}

// A port whose other end has not come yet (net_memif) is not broken, nor is one whose other end comes back at once.
void DpdkIo::tell_link() {
  looks_ = 0;
  if (calls_.link_up(port_)) {
    had_link_ = true;
    down_since_ = kNever;
    return others_->link(true);
  }
  const Time now = monotonic_now();
  if (down_since_ == kNever) down_since_ = now;
  if (had_link_ && now - down_since_ >= kLinkIsGone) others_->link(false);
}

// --- sleeping
// ---------------------------------------------------------------------------------------------------------

bool DpdkIo::prepare_to_wait() {
  if (interrupt_count_ == 0) arm_timer();
  if (others_) {
    tell_link();
    send_others();
    flush();
  }
  return calls_.arm(port_);
}

void DpdkIo::arm_timer() {
  pause_ = std::exchange(quiet_, true) ? std::min(2 * std::max(pause_, kShortPause / 2), kLongPause) : kShortPause;
  itimerspec when{};
  when.it_value.tv_nsec = pause_.count();
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

// ----------------------------------------------------------------------------------------------------------------------

std::string DpdkIo::description() const {
  return concat("dpdk, ", driver_, interrupt_count_ > 0 ? "" : ", polled", hugepages_ ? ", hugepages" : "", ", ",
                outgoing_.size(), outgoing_.size() == 1 ? " queue" : " queues");
}

IoCounters DpdkIo::counters() const {
  IoCounters counters = counters_;
  DpdkPortCounters port{};
  calls_.counters(port_, &port);
  counters.rx_no_buffer += port.rx_no_buffer;
  counters.tx_errors += port.tx_errors;
  return counters;
}

}  // namespace uroce::io
