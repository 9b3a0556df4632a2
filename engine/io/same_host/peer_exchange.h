// SPDX-License-Identifier: BSD-2-Clause
// Peers on their way from the thread that is told of them to the SameHost of a netdev, and back when they have ended:
// to map one and to let go of one takes system calls, so neither is done under the shard's lock. No side waits for the
// other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/base/unique_fd.h"
#include "engine/io/same_host/peer.h"

namespace uroce::io {

class PeerExchange {
 public:
  static constexpr size_t kMostPeers = 256;  // of a netdev

  PeerExchange();
  ~PeerExchange();
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  // --- one thread at a time
  // ------------------------------------------------------------------------------------------- False: it is not taken.
  bool add(uint32_t range, PeerEnd end);
  // Lets go of those that have come back.
  void bury();

  // --- SameHost
  // -------------------------------------------------------------------------------------------------------
  bool any_arrived() const { return arrived_.load(std::memory_order_acquire) != nullptr; }
  // `take` gets each as a std::unique_ptr, in the order in which they were added.
  template <class Take>
  void take(Take&& take) {
    for (Peer* peer = in_order(arrived_.exchange(nullptr, std::memory_order_acquire)); peer != nullptr;) {
      Peer* const next = peer->next;
      take(std::unique_ptr<Peer>(peer));
      peer = next;
    }
  }
  void give_back(std::unique_ptr<Peer> peer);
  // epoll: the bells of all.
  int events() const { return events_.get(); }

 private:
  using List = std::atomic<Peer*>;  // the last one first
  static void push(List& list, Peer* peer);
  static Peer* in_order(Peer* last);
  static size_t destroy(List& list);

  const UniqueFd events_;
  List arrived_{nullptr}, ended_{nullptr};
  size_t count_ = 0;  // those included that have not been buried
};

}  // namespace uroce::io
