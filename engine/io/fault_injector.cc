// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/fault_injector.h"

#include <algorithm>
#include <iterator>

#include "engine/io/frame_builder.h"
#include "engine/memory/memory_access.h"

namespace uroce::io {
namespace {

constexpr int kMaxOvertaking = 8;

}  // namespace

FaultInjector::FaultInjector(std::unique_ptr<PacketIo> inner, const FaultSpec& spec)
    : inner_(std::move(inner)), spec_(spec), random_(spec.seed) {
  inner_->show_packets(true);  // faults are of such as are on a wire
}

bool FaultInjector::happens(double probability) {
  if (probability <= 0) return false;
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;  // 53 random bits as a fraction
}

std::string FaultInjector::description() const {
  return inner_->description() + ", faults " + format_fault_spec(spec_);
}

// --- one direction ---------------------------------------------------------------------------------------------------

template <class Packet>
void FaultInjector::Lane<Packet>::pass(Packet packet) {
  due_.push_back(std::move(packet));
  for (Held& held : held_) --held.later_packets;
  const auto overtaken =
      std::stable_partition(held_.begin(), held_.end(), [](const Held& held) { return held.later_packets > 0; });
  for (auto held = overtaken; held != held_.end(); ++held) due_.push_back(std::move(held->packet));
  held_.erase(overtaken, held_.end());
}

template <class Packet>
void FaultInjector::Lane<Packet>::release_all() {
  for (Held& held : held_) due_.push_back(std::move(held.packet));
  held_.clear();
}

// Every packet is copied, whatever happens to it: a test tool may be slow, and one kind of ownership is simple.
template <class Packet>
uint8_t FaultInjector::pass_through_faults(Packet packet, Lane<Packet>& lane, Counts counts) {
  if (happens(spec_.drop)) {
    ++counts.dropped;
    return kFaultDropped;
  }
  if (happens(spec_.corrupt)) {
    ++counts.corrupted;
    packet.faults |= kFaultCorrupted;
    flip_bit(packet);
  }
  if (happens(spec_.duplicate)) {
    ++counts.duplicated;
    lane.due().push_back(packet);
    packet.faults |= kFaultDuplicated;
  }
  const bool reorder = happens(spec_.reorder);
  if (reorder) packet.faults |= kFaultReordered;
  const uint8_t faults = packet.faults;
  if (reorder) {
    ++counts.reordered;
    lane.hold(std::move(packet), 1 + static_cast<int>(random_() % kMaxOvertaking));
  } else {
    lane.pass(std::move(packet));
  }
  return faults;
}

// --- arriving --------------------------------------------------------------------------------------------------------

size_t FaultInjector::receive(std::span<RxPacket> out) {
  arrived_.resize(out.size());
  const size_t arrived = inner_->receive(arrived_);
  for (size_t i = 0; i < arrived; ++i) {
    const uint8_t faults =
        pass_through_faults(Arriving(arrived_[i]), arriving_,
                            {faults_.rx_dropped, faults_.rx_duplicated, faults_.rx_reordered, faults_.rx_corrupted});
    if (faults == kFaultDropped && dropped_observer_) {
      arriving_.due().emplace_back(arrived_[i]).faults = faults;  // shown when its turn comes
    }
  }
  idle_polls_ = arrived == 0 ? idle_polls_ + 1 : 0;
  if (idle_polls_ >= kIdlePolls) {
    arriving_.release_all();
    leaving_.release_all();
  }

  take_due(out.size());
  for (size_t i = 0; i < handed_out_.size(); ++i) out[i] = handed_out_[i].as_received();
  return handed_out_.size();
}

// What is handed out next: up to the next dropped packet. Whoever watches that one has seen all before it by then.
void FaultInjector::take_due(size_t most) {
  std::vector<Arriving>& due = arriving_.due();
  handed_out_.clear();
  size_t taken = 0;
  for (; taken < due.size() && handed_out_.size() < most; ++taken) {
    Arriving& packet = due[taken];
    if (packet.faults != kFaultDropped) {
      handed_out_.push_back(std::move(packet));
    } else if (handed_out_.empty()) {
      dropped_observer_(packet.as_received());
    } else {
      break;
    }
  }
  due.erase(due.begin(), due.begin() + static_cast<ptrdiff_t>(taken));
}

FaultInjector::Arriving::Arriving(const RxPacket& original)
    : envelope(original.envelope), whole_frame(!original.frame.empty()), ib_size(original.ib.size()) {
  const std::span<const uint8_t> all = whole_frame ? original.frame : original.ib;
  bytes.assign(all.begin(), all.end());
  ib_at = static_cast<size_t>(original.ib.data() - all.data());
  if (original.without_icrc) add_icrc(envelope, ib());
}

// Valid until it is moved.
RxPacket FaultInjector::Arriving::as_received() const {
  RxPacket packet;
  packet.envelope = envelope;
  packet.ib = std::span(bytes).subspan(ib_at, ib_size);
  if (whole_frame) packet.frame = bytes;
  packet.faults = faults;
  return packet;
}

void FaultInjector::flip_bit(Arriving& packet) {
  const std::span<uint8_t> ib = packet.ib();
  if (ib.empty()) return;
  const uint64_t bit = random_() % (ib.size() * 8);
  ib[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
}

// --- leaving ---------------------------------------------------------------------------------------------------------

FaultInjector::Leaving::Leaving(const io::TxPacket& original)
    : envelope(*original.envelope), payload(original.payload_size), packet(original) {
  readable = guard_payload(original, [&] {
    uint8_t* to = payload.data();
    for (size_t i = 0; i < original.fragment_count; ++i) {
      to = std::copy_n(original.fragments[i].data, original.fragments[i].size, to);
    }
  });
  packet.completes = false;  // the original has been taken
}

std::span<io::TxPacket> FaultInjector::Leaving::as_burst() {
  packet.envelope = &envelope;
  packet.fragment_count = payload.empty() ? 0 : 1;
  packet.fragments[0] = {payload.data(), static_cast<uint32_t>(payload.size())};
  return {&packet, 1};
}

// The backend computes the ICRC of what it is given: it is told the difference to that of the packet as it was.
void FaultInjector::flip_bit(Leaving& leaving) {
  io::TxPacket& packet = leaving.as_burst().front();
  const size_t covered = packet.header_size + leaving.payload.size();
  const uint64_t bit = random_() % ((covered + sizeof(packet.icrc_damage)) * 8);
  const auto mask = static_cast<uint8_t>(1u << (bit % 8));
  if (bit / 8 >= covered) {
    packet.icrc_damage ^= 1u << (bit - covered * 8);
    return;
  }
  const uint32_t icrc = packet_icrc(packet, leaving.envelope);
  (bit / 8 < packet.header_size ? packet.header[bit / 8] : leaving.payload[bit / 8 - packet.header_size]) ^= mask;
  packet.icrc_damage ^= icrc ^ packet_icrc(packet, leaving.envelope);
}

size_t FaultInjector::send(std::span<io::TxPacket> burst) {
  size_t taken = 0;
  offered_ = burst;
  ++call_;
  for (; taken < burst.size(); ++taken) {
    if (leaving_.due().size() >= kBacklog) send_due();
    if (leaving_.due().size() >= kBacklog) break;
    Leaving packet(burst[taken]);
    packet.call = call_;
    packet.index = taken;
    burst[taken].unreadable = !packet.readable;
    burst[taken].ip_id = 0;
    if (!packet.readable) continue;
    burst[taken].faults =
        pass_through_faults(std::move(packet), leaving_,
                            {faults_.tx_dropped, faults_.tx_duplicated, faults_.tx_reordered, faults_.tx_corrupted});
  }
  send_due();
  offered_ = {};
  return taken;
}

// All at once: where packets leave in runs, those that got no fault do so as they would without an injector.
void FaultInjector::send_due() {
  std::vector<Leaving>& due = leaving_.due();
  burst_.clear();
  for (Leaving& leaving : due) burst_.push_back(leaving.as_burst().front());
  const size_t sent = inner_->send(burst_);
  for (size_t i = 0; i < sent; ++i) {
    if (due[i].call == call_ && !offered_.empty()) offered_[due[i].index].ip_id = burst_[i].ip_id;
  }
  due.erase(due.begin(), due.begin() + static_cast<ptrdiff_t>(sent));
}

bool FaultInjector::flush() {
  send_due();
  return inner_->flush() && leaving_.due().empty();
}

}  // namespace uroce::io
