// SPDX-License-Identifier: BSD-2-Clause
// What the watching thread of a link does for leases: whom their QPs exchange packets with by memory.
#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <mutex>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "broker/client/link.h"

namespace uroce::broker {

// Null: it has been given back. Caller holds lock_.
Lease* Link::lease_of(uint32_t range) const {
  const auto lease =
      std::find_if(leases_.begin(), leases_.end(), [range](const Lease* own) { return own->range_.number == range; });
  return lease == leases_.end() ? nullptr : *lease;
}

// What the other one will read is sealed before he gets it.
void Link::prepare(const Message& message, const UniqueFd& memory) {
  std::unique_ptr<io::PeerMemory> mapped = io::PeerMemory::for_writing(memory.get(), message.of_stranger != 0);
  const std::lock_guard guard(lock_);
  Lease* const lease = lease_of(message.range);
  if (lease == nullptr || message.other > LeaseRange::kLastNumber || !mapped) return;
  lease->prepared_[message.other] = std::move(mapped);
  Message sealed = make_message(Kind::kSealed);
  sealed.range = message.range;
  sealed.other = message.other;
  send(socket_, sealed);
}

void Link::hand_over(const Message& message, Descriptors& came) {
  tend(message.range);
  // What nobody takes is closed without the lock, as ~Peer does it.
  struct Untaken {
    io::PeerEnd end;
    ~Untaken() {
      if (end.of_stranger) {
        ForkGuard().forget(end.bell.get());
      } else {
        ForkGuard().close(end.bell.release());
      }
    }
  } untaken;
  untaken.end.bell = std::move(came[1]);
  untaken.end.of_stranger = message.of_stranger != 0;
  if (!take_peer(message, came[0], untaken.end)) tend(message.range);  // the other side is to see the end of it
}

// False: it was not taken. Without the lock where the memory is mapped, which whoever wrote to it before may make slow.
bool Link::take_peer(const Message& message, UniqueFd& memory, io::PeerEnd& end) {
  std::unique_lock guard(lock_);
  Lease* const lease = lease_of(message.range);
  if (lease == nullptr) return false;
  auto own = lease->prepared_.extract(message.other);
  const Lease::TakePeer take = lease->take_peer_;
  if (own.empty() || !take) return false;
  guard.unlock();
  ForkGuard().forget(memory.get());  // closed as soon as it is mapped
  end.own = std::move(own.mapped());
  end.memory = std::move(memory);
  return take(message.other, std::move(end));
}

// Without the lock, as peers that have ended are closed there: that takes as long as there are waiters at their ends.
void Link::tend(uint32_t range) {
  std::unique_lock guard(lock_);
  const Lease* const lease = lease_of(range);
  const std::function<void()> tend = lease == nullptr ? nullptr : lease->tend_;
  guard.unlock();
  if (tend) tend();
}

void Link::part(const Message& message) {
  const std::lock_guard guard(lock_);
  Lease* const lease = lease_of(message.range);
  if (lease == nullptr) return;
  lease->prepared_.erase(message.other);
  if (lease->part_) lease->part_(message.other);
}

// Wishes that are lost are said again (io/same_host/same_host.h).
void Link::look_after_leases() {
  eventfd_t count;
  eventfd_read(event_.get(), &count);
  std::vector<uint32_t> due;
  std::unique_lock guard(lock_);
  for (Lease* const lease : leases_) {
    for (size_t i = 0; i < lease->wishes_.size(); ++i) {
      for (uint64_t bits = lease->wishes_[i].exchange(0); bits != 0; bits &= bits - 1) {
        Message message = make_message(Kind::kMeet);
        message.range = lease->range_.number;
        message.other = static_cast<uint32_t>(64 * i) + static_cast<uint32_t>(std::countr_zero(bits));
        send(socket_, message);
      }
    }
    if (lease->to_tend_.exchange(false)) due.push_back(lease->range_.number);
  }
  guard.unlock();
  for (const uint32_t range : due) tend(range);
}

}  // namespace uroce::broker
