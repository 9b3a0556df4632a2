// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer_exchange.h"

#include <sys/epoll.h>
#include <utility>

#include "engine/base/bell.h"
#include "engine/base/fork.h"

namespace uroce::io {

PeerExchange::PeerExchange() : events_(epoll_create1(EPOLL_CLOEXEC)) {}

PeerExchange::~PeerExchange() {
  destroy(arrived_);
  destroy(ended_);
}

// A sleeper hears the new bell, maybe before it finds the peer; so it is woken once more.
bool PeerExchange::add(uint32_t range, PeerEnd end) {
  bury();
  if (count_ == kMostPeers) {
    ForkGuard().close(end.bell.release());
    return false;
  }
  std::unique_ptr<Peer> peer = Peer::open(range, std::move(end));
  if (!peer || wait_for_bell(events_.get(), peer->bell(), peer.get()) != 0) return false;
  ++count_;
  const int bell = peer->bell();
  Peer* const added = peer.release();
  push(arrived_, added);
  wait_again_for_bell(events_.get(), bell, added);
  return true;
}

void PeerExchange::bury() {
  count_ -= destroy(ended_);
}

void PeerExchange::give_back(std::unique_ptr<Peer> peer) {
  push(ended_, peer.release());
}

void PeerExchange::push(List& list, Peer* peer) {
  peer->next = list.load(std::memory_order_relaxed);
  while (!list.compare_exchange_weak(peer->next, peer, std::memory_order_release, std::memory_order_relaxed)) continue;
}

Peer* PeerExchange::in_order(Peer* last) {
  Peer* first = nullptr;
  while (last != nullptr) {
    Peer* const before = std::exchange(last->next, first);
    first = last;
    last = before;
  }
  return first;
}

size_t PeerExchange::destroy(List& list) {
  size_t count = 0;
  for (Peer* peer = list.exchange(nullptr, std::memory_order_acquire); peer != nullptr; ++count) {
    delete std::exchange(peer, peer->next);
  }
  return count;
}

}  // namespace uroce::io
