// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/same_host/peer_exchange.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <utility>

#include "base/bell.h"

namespace uroce::io {

PeerExchange::PeerExchange()
    : events_(epoll_create1(EPOLL_CLOEXEC)), arrivals_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event told{};
  told.events = EPOLLIN | EPOLLET;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, arrivals_.get(), &told);
}

PeerExchange::~PeerExchange() {
  destroy(arrived_);
  destroy(taken_);
  while (!bury()) continue;
}

// A sleeper hears the new bell, maybe before it finds the peer; so it is woken once more, by what does not go with the
// peer: that may have come back and be gone as soon as it has been pushed.
bool PeerExchange::add(uint32_t range, PeerEnd&& end) {
  if (count_ == kMostPeers) return false;
  std::unique_ptr<Peer> peer = Peer::open(range, std::move(end));
  if (!peer) return false;
  ++count_;
  if (wait_for_bell(events_.get(), peer->bell(), peer.get()) != 0) {
    Peer* const refused = peer.release();
    refused->next = std::exchange(to_bury_, refused);
    return false;
  }
  push(arrived_, new Arrival{range, std::move(peer)});
  eventfd_write(arrivals_.get(), 1);
  return true;
}

void PeerExchange::part(uint32_t range) {
  push(arrived_, new Arrival{range, nullptr});
  eventfd_write(arrivals_.get(), 1);  // who sleeps would keep them all
}

void PeerExchange::part_from_strangers() {
  push(arrived_, new Arrival{kStrangers, nullptr});
  eventfd_write(arrivals_.get(), 1);
}

bool PeerExchange::bury() {
  destroy(taken_);
  for (Peer* ended = ended_.exchange(nullptr, std::memory_order_acquire); ended != nullptr;) {
    Peer* const next = ended->next;
    ended->next = std::exchange(to_bury_, ended);
    ended = next;
  }
  for (bool slow = false; to_bury_ != nullptr && !slow; --count_) {
    const std::unique_ptr<Peer> peer(std::exchange(to_bury_, to_bury_->next));
    slow = peer->is_of_stranger();
  }
  return to_bury_ == nullptr;
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

void PeerExchange::destroy(List<Arrival>& list) {
  for (Arrival* item = list.exchange(nullptr, std::memory_order_acquire); item != nullptr;) {
    delete std::exchange(item, item->next);
  }
}

}  // namespace uroce::io
