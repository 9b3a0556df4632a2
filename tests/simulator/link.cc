// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/link.h"

#include <algorithm>
#include <utility>

#include "wire/ip_udp.h"

namespace uroce::simulator {

namespace {

constexpr size_t kWireOverhead = 24;  // preamble, FCS and gap of Ethernet

// RFC 1624: the IPv4 header's checksum after one byte of it has changed.
void set_ipv4_traffic_class(uint8_t* ip, uint8_t value) {
  ip[1] = value;
  ip[10] = ip[11] = 0;
  uint32_t sum = 0;
  for (size_t i = 0; i < wire::kIpv4Size; i += 2) sum += wire::load_be16(ip + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  wire::store_be16(ip + 10, static_cast<uint16_t>(~sum));
}

}  // namespace

void Link::send(Frame frame) {
  ++counters.sent;
  if (down || (filter && !filter(frame))) return;
  const uint32_t length = queued();
  if (lengths != nullptr) lengths->add(length);
  if (length >= config.queue_frames) {
    ++counters.overflowed;
    return;
  }
  mark(frame);
  const auto bits = static_cast<double>(8 * (frame.size() + kWireOverhead));
  free_at_ = std::max(free_at_, events_.now()) + Duration(static_cast<int64_t>(1e9 * bits / config.bits_per_second));
  leaving_.push_back(free_at_);

  // What the cable does to it.
  if (still_dropping_ == 0 && chance(config.drop)) still_dropping_ = config.drop_burst;
  if (still_dropping_ > 0) {
    --still_dropping_;
    ++counters.dropped;
    return;
  }
  if (chance(config.corrupt)) {
    const size_t behind_ethernet = frame.size() - wire::kEthernetSize;
    frame[wire::kEthernetSize + random_() % behind_ethernet] ^= static_cast<uint8_t>(1 << random_() % 8);
    ++counters.corrupted;
  }
  if (chance(config.duplicate)) {
    ++counters.duplicated;
    deliver(frame, free_at_ + config.delay + jitter());
  }
  deliver(std::move(frame), free_at_ + config.delay + jitter());
}

void Link::mark(Frame& frame) {
  const uint32_t length = queued();
  if (config.mark_all_from == 0 || length < config.mark_from) return;
  const double span = std::max(1.0, static_cast<double>(config.mark_all_from) - config.mark_from);
  const double part = (length - config.mark_from + 1) / span;
  if (!chance(part < 1 ? part * config.mark_at_most : 1)) return;
  uint8_t* const ip = frame.data() + wire::kEthernetSize;
  const bool v4 = ip[0] >> 4 == 4;
  const auto traffic_class = static_cast<uint8_t>(v4 ? ip[1] : wire::load_be16(ip) >> 4);
  if ((traffic_class & wire::kEcnMask) == 0) return;  // not ECN-capable
  if (v4) {
    set_ipv4_traffic_class(ip, traffic_class | wire::kEcnCe);
  } else {
    ip[1] |= wire::kEcnCe << 4;
  }
  ++counters.marked;
}

// Frames that stay in order need one event at a time.
void Link::deliver(Frame frame, Time at) {
  if (!under_way_.empty() && at < under_way_.back().at) {
    events_.at(at, [this, frame = std::move(frame)]() mutable { receiver_(std::move(frame)); });
    return;
  }
  under_way_.push_back({at, std::move(frame)});
  if (under_way_.size() == 1) events_.at(at, [this] { deliver_first(); });
}

void Link::deliver_first() {
  Frame frame = std::move(under_way_.front().frame);
  under_way_.pop_front();
  if (!under_way_.empty()) events_.at(under_way_.front().at, [this] { deliver_first(); });
  receiver_(std::move(frame));
}

uint32_t Link::queued() const {
  while (!leaving_.empty() && leaving_.front() <= events_.now()) leaving_.pop_front();
  return static_cast<uint32_t>(leaving_.size());
}

bool Link::chance(double p) {
  return p > 0 && static_cast<double>(random_() >> 11) * 0x1p-53 < p;
}

Duration Link::jitter() {
  if (!chance(config.reorder)) return Duration{};
  ++counters.reordered;
  return Duration(static_cast<int64_t>(random_() % static_cast<uint64_t>(config.reorder_delay.count())));
}

}  // namespace uroce::simulator
