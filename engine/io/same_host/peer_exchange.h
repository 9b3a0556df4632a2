// SPDX-License-Identifier: BSD-2-Clause
// Peers on their way from the thread that is told of them to the SameHost of a netdev, and back when they have ended:
// to map one and to let go of one takes system calls, so neither is done under the shard's lock. No side waits for the
// other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "engine/io/same_host/peer.h"

namespace uroce::io {

class PeerExchange {
 public:
  static constexpr size_t kMostPeers = 256;  // of a netdev
  static constexpr uint32_t kStrangers = ~0u;

  PeerExchange();
  ~PeerExchange();
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  // --- one thread at a time
  // False: it is not taken. What is left of `end` is the caller's to close.
  bool add(uint32_t range, PeerEnd&& end);
  // Whoever has the range is no peer any more, or another one that comes later.
  void part(uint32_t range);
  // Likewise each of a stranger's.
  void part_from_strangers();
  // Lets go of those that have come back; of one stranger's only, as that takes as long as he likes. False: there are
  // more.
  bool bury();

  // --- SameHost
  bool any_arrived() const { return arrived_.load(std::memory_order_acquire) != nullptr; }
  // `take` gets the range of each and a std::unique_ptr<Peer>, in the order in which they came. Null: part(), and with
  // kStrangers for a range part_from_strangers().
  template <class Take>
  void take(Take&& take) {
    for (Arrival* each = in_order(arrived_.exchange(nullptr, std::memory_order_acquire)); each != nullptr;) {
      Arrival* const next = each->next;
      take(each->range, std::move(each->peer));
      push(taken_, each);
      each = next;
    }
  }
  void give_back(std::unique_ptr<Peer> peer);
  // epoll: the bells of all, and who comes.
  int events() const { return events_.get(); }

 private:
  struct Arrival {
    uint32_t range;
    std::unique_ptr<Peer> peer;
    Arrival* next = nullptr;
  };
  template <class T>
  using List = std::atomic<T*>;  // the last one first
  template <class T>
  static void push(List<T>& list, T* item) {
    item->next = list.load(std::memory_order_relaxed);
    while (!list.compare_exchange_weak(item->next, item, std::memory_order_release, std::memory_order_relaxed))
      continue;
  }
  static void destroy(List<Arrival>& list);
  static Arrival* in_order(Arrival* last);

  const UniqueFd events_;
  const UniqueFd arrivals_;  // an eventfd
  List<Arrival> arrived_{nullptr}, taken_{nullptr};
  List<Peer> ended_{nullptr};
  Peer* to_bury_ = nullptr;  // a list, of those that had ended
  size_t count_ = 0;         // those included that have not been buried
};

}  // namespace uroce::io
