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
  destroy(taken_);
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
  Peer* const added = peer.get();
  push(arrived_, new Arrival{range, std::move(peer)});
  wait_again_for_bell(events_.get(), bell, added);
  return true;
}

void PeerExchange::part(uint32_t range) {
  push(arrived_, new Arrival{range, nullptr});
}

void PeerExchange::bury() {
  destroy(taken_);
  count_ -= destroy(ended_);
}

void PeerExchange::give_back(std::unique_ptr<Peer> peer) {
  push(ended_, peer.release());
}

PeerExchange::Arrival* PeerExchange::in_order(Arrival* last) {
  Arrival* first = nullptr;
  while (last != nullptr) {
    Arrival* const before = std::exchange(last->next, first);
    first = last;
    last = before;
  }
  return first;
}

template <class T>
size_t PeerExchange::destroy(List<T>& list) {
  size_t count = 0;
  for (T* item = list.exchange(nullptr, std::memory_order_acquire); item != nullptr; ++count) {
    delete std::exchange(item, item->next);
  }
  return count;
}

}  // namespace uroce::io
