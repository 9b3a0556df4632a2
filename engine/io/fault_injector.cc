#include "engine/io/fault_injector.h"

#include <algorithm>
#include <iterator>

namespace uroce::io {
namespace {

constexpr int kMaxOvertaking = 8;

}  // namespace

FaultInjector::FaultInjector(std::unique_ptr<PacketIo> inner, const FaultSpec& spec)
    : inner_(std::move(inner)), spec_(spec), random_(spec.seed) {}

bool FaultInjector::happens(double probability) {
  if (probability <= 0) return false;
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;  // 53 random bits as a fraction
}

std::string FaultInjector::description() const {
  return inner_->description() + ", faults " + format_fault_spec(spec_);
}

// Every packet is copied, whatever happens to it: a test tool may be slow, and one kind of ownership is simple.
size_t FaultInjector::receive(std::span<RxPacket> out) {
  arrived_.resize(out.size());
  const size_t arrived = inner_->receive(arrived_);
  for (size_t i = 0; i < arrived; ++i) pass_through_faults(arrived_[i]);
  idle_polls_ = arrived == 0 ? idle_polls_ + 1 : 0;
  if (idle_polls_ >= kIdlePolls) release_all_held();

  const size_t count = std::min(out.size(), due_.size());
  const auto end = due_.begin() + static_cast<ptrdiff_t>(count);
  handed_out_.assign(std::make_move_iterator(due_.begin()), std::make_move_iterator(end));
  due_.erase(due_.begin(), end);
  for (size_t i = 0; i < count; ++i) out[i] = {handed_out_[i].envelope, handed_out_[i].ib};
  return count;
}

void FaultInjector::pass_through_faults(const RxPacket& packet) {
  if (happens(spec_.drop)) {
    ++faults_.rx_dropped;
    return;
  }
  Copy copy(packet);
  if (happens(spec_.corrupt)) corrupt(copy);
  if (happens(spec_.duplicate)) {
    ++faults_.rx_duplicated;
    due_.push_back(copy);
  }
  if (happens(spec_.reorder)) {
    ++faults_.rx_reordered;
    copy.later_packets = 1 + static_cast<int>(random_() % kMaxOvertaking);
    held_.push_back(std::move(copy));
  } else {
    due_.push_back(std::move(copy));
    release_overtaken();
  }
}

void FaultInjector::corrupt(Copy& copy) {
  if (copy.ib.empty()) return;
  const uint64_t bit = random_() % (copy.ib.size() * 8);
  copy.ib[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  ++faults_.rx_corrupted;
}

// Another packet has gone ahead of those held back; the ones that waited for just this one follow it.
void FaultInjector::release_overtaken() {
  for (Copy& copy : held_) --copy.later_packets;
  const auto overtaken =
      std::stable_partition(held_.begin(), held_.end(), [](const Copy& copy) { return copy.later_packets > 0; });
  std::move(overtaken, held_.end(), std::back_inserter(due_));
  held_.erase(overtaken, held_.end());
}

void FaultInjector::release_all_held() {
  std::move(held_.begin(), held_.end(), std::back_inserter(due_));
  held_.clear();
}

// Runs of packets without a fault go down as they are. A dropped one counts as taken; a duplicate that meets
// backpressure is given up.
size_t FaultInjector::send(std::span<wire::TxPacket> burst) {
  size_t sent = 0;
  size_t end = 0;
  while (end < burst.size()) {
    const bool drop = happens(spec_.drop);
    const bool duplicate = !drop && happens(spec_.duplicate);
    if (!drop) ++end;
    if (!drop && !duplicate && end < burst.size()) continue;
    sent += inner_->send(burst.subspan(sent, end - sent));
    if (sent < end) return sent;
    if (drop) {
      ++faults_.tx_dropped;
      sent = ++end;
    } else if (duplicate) {
      faults_.tx_duplicated += inner_->send(burst.subspan(end - 1, 1));
    }
  }
  return sent;
}

}  // namespace uroce::io
