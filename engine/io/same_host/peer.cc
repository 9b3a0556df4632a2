// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer.h"

#include <utility>

#include "base/fork.h"

namespace uroce::io {

std::unique_ptr<Peer> Peer::open(uint32_t range, PeerEnd&& end) {
  TheirMemory theirs = PeerMemory::for_reading(end.memory.get(), end.of_stranger);
  if (end.own && theirs && end.bell) {
    return std::unique_ptr<Peer>(
        new Peer(range, std::move(end.own), std::move(theirs), std::move(end.bell), end.of_stranger));
  }
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
