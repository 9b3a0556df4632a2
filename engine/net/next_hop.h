// SPDX-License-Identifier: BSD-2-Clause
// A next hop as everybody who sends to it shares it: one entry per netdev and address, which NetView keeps up to date.
// Paths hold it, so a change of a neighbour is a change of one entry, however many QPs send there. Reading it is one
// load and needs no lock: the data path does it for every packet.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/time.h"
#include "wire/envelope.h"

namespace uroce::net {

enum class NeighbourState : uint8_t { kUnknown, kResolving, kUsable, kStale, kFailed };

struct Neighbour {
  NeighbourState state = NeighbourState::kUnknown;
  wire::MacAddress mac{};  // valid in kUsable and kStale, else zero

  bool has_mac() const { return state == NeighbourState::kUsable || state == NeighbourState::kStale; }
  friend bool operator==(const Neighbour&, const Neighbour&) = default;
};

class NextHop {
 public:
  NextHop(int its_netdev, const wire::IpAddress& its_address, const Neighbour& now = {})
      : netdev_index(its_netdev), address(its_address), word_(pack(now)) {}

  const int netdev_index;
  const wire::IpAddress address;

  Neighbour neighbour() const { return unpack(word_.load(std::memory_order_seq_cst)); }

  // What the kernel says now; one thread at a time. A neighbour that failed stays so while the kernel tries again: who
  // sends there need not wait another time. True: somebody waits for this (await()).
  bool set(Neighbour now) {
    if (now.state == NeighbourState::kResolving && neighbour().state == NeighbourState::kFailed) return false;
    const uint64_t word = pack(now);
    if (word_.exchange(word, std::memory_order_seq_cst) == word) return false;
    const bool decided = now.has_mac() || now.state == NeighbourState::kFailed;
    return decided && awaited_.exchange(false, std::memory_order_seq_cst);
  }
  // The next decision is to be told to NetView's listeners. Call it, then look at neighbour() once more.
  void await() { awaited_.store(true, std::memory_order_seq_cst); }

  // True if it is time to ask the kernel to find or confirm this neighbour, for there are packets for it: one that is
  // not known every 100 ms, one that is stale every 5 s (the kernel takes as long before it probes it).
  bool ask_now(Time now) {
    constexpr Duration kFind = std::chrono::milliseconds(100);
    constexpr Duration kConfirm = std::chrono::seconds(5);
    const NeighbourState state = neighbour().state;
    if (state == NeighbourState::kUsable) return false;
    const int64_t interval = (state == NeighbourState::kStale ? kConfirm : kFind).count();
    int64_t asked = asked_at_.load(std::memory_order_relaxed);
    const int64_t at = now.time_since_epoch().count();
    return (asked == kNeverAsked || at - asked >= interval) &&
           asked_at_.compare_exchange_strong(asked, at, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kNeverAsked = INT64_MIN;
  // Read and written as one word.
  struct Packed {
    wire::MacAddress mac;
    NeighbourState state;
    uint8_t unused;
  };

  static uint64_t pack(const Neighbour& neighbour) {
    return std::bit_cast<uint64_t>(Packed{neighbour.mac, neighbour.state, 0});
  }
  static Neighbour unpack(uint64_t word) {
    const auto packed = std::bit_cast<Packed>(word);
    return {packed.state, packed.mac};
  }

  std::atomic<uint64_t> word_;
  std::atomic<bool> awaited_{false};
  std::atomic<int64_t> asked_at_{kNeverAsked};
};

// The next hops that somebody holds. Not thread-safe.
class NextHops {
 public:
  // Null: nobody holds it.
  std::shared_ptr<NextHop> find(int netdev_index, const wire::IpAddress& address) const {
    const auto found = hops_.find({netdev_index, address.bytes});
    return found == hops_.end() ? nullptr : found->second.lock();
  }

  std::shared_ptr<NextHop> add(int netdev_index, const wire::IpAddress& address, const Neighbour& now) {
    if (hops_.size() >= sweep_at_) sweep();
    auto hop = std::make_shared<NextHop>(netdev_index, address, now);
    hops_.insert_or_assign({netdev_index, address.bytes}, hop);
    return hop;
  }

  template <class F>
  void for_each(F&& f) const {
    for (const auto& [key, weak] : hops_) {
      if (const auto hop = weak.lock()) f(*hop);
    }
  }
  // Entries, with those that nobody holds any more: never more than twice as many as are held, or kFewest.
  size_t size() const { return hops_.size(); }

 private:
  static constexpr size_t kFewest = 64;

  void sweep() {
    std::erase_if(hops_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kFewest, 2 * hops_.size());
  }

  std::map<std::pair<int, std::array<uint8_t, 16>>, std::weak_ptr<NextHop>> hops_;
  size_t sweep_at_ = kFewest;
};

}  // namespace uroce::net
