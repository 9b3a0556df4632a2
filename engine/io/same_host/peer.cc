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
// By how much more, before there are no more rings, and how much one of them may count: the processor of a virtual
// machine may be taken away during one.
constexpr Duration kMostRingDebt = std::chrono::milliseconds(1), kMostOfRing = kMostRingDebt * 2 / 3;

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
  const Duration begin = thread_time();  // others may have had the processor meanwhile
  ring_bell(bell_.get());
  const Duration more = std::min(thread_time() - begin - kFairRing, kMostOfRing);
  ring_debt_ = std::max(ring_debt_ + more, Duration{});
  if (ring_debt_ > kMostRingDebt) costly_ = ended_ = true;
}

// Nothing is in it, but to close it takes as long as there are waiters at the other end: a fork() does not wait for a
// stranger's. A child that comes between the two keeps it, which nobody but the stranger sees.
Peer::~Peer() {
  if (of_stranger_) {
    ForkGuard().forget(bell_.get());
    bell_.reset();
  } else {
    ForkGuard().close(bell_.release());
  }
}

}  // namespace uroce::io
