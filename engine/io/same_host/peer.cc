// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/fork.h"

namespace uroce::io {
namespace {

// What a ring of a stranger may take in the long run; one thread that sleeps is woken in a tenth of that.
constexpr Duration kFairRing = std::chrono::microseconds(50);
// By how much more, before there are no more rings.
constexpr Duration kMostRingDebt = std::chrono::milliseconds(1);

}  // namespace

std::unique_ptr<Peer> Peer::open(uint32_t range, PeerEnd end) {
  TheirMemory theirs = PeerMemory::for_reading(end.memory.get());
  if (end.own && theirs && end.bell) {
    return std::unique_ptr<Peer>(
        new Peer(range, std::move(end.own), std::move(theirs), std::move(end.bell), end.of_stranger));
  }
  ForkGuard().close(end.bell.release());
  return nullptr;
}

Peer::Peer(uint32_t its_range, OwnMemory own, TheirMemory theirs, UniqueFd bell, bool of_stranger)
    : range(its_range),
      out(own->words(), theirs->words(), own->ring()),
      in(own->words(), theirs->words(), theirs->ring()),
      own_(std::move(own)),
      theirs_(std::move(theirs)),
      bell_(std::move(bell)),
      of_stranger_(of_stranger) {}

void Peer::wake() {
  if (costly_) return;
  if (!of_stranger_) return ring_bell(bell_.get());
  const bool timed = is_timed_;
  const auto now = [timed] { return timed ? thread_time() : monotonic_now().time_since_epoch(); };
  const Duration begin = now();
  ring_bell(bell_.get());
  account_for_ring(now() - begin);
}

// The clock says nothing against the peer, as others may have had the processor meanwhile: it is looked at closer then.
void Peer::account_for_ring(Duration took) {
  ring_debt_ = std::max(ring_debt_ + took - kFairRing, Duration{});
  if (ring_debt_ > kMostRingDebt) {
    costly_ |= is_timed_;
    ended_ |= is_timed_;
    is_timed_ = true;
    ring_debt_ = Duration{1};
  } else if (ring_debt_ == Duration{}) {
    is_timed_ = false;
  }
}

// Nothing is in it that could make closing it wait.
Peer::~Peer() {
  ForkGuard().close(bell_.release());
}

}  // namespace uroce::io
