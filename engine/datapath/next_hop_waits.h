// SPDX-License-Identifier: BSD-2-Clause
// Packets whose next hop has no link-layer address yet, and the QPs that wait for one. Called by TxScheduler for every
// packet; the engine takes what the kernel is to be asked for. Owned by Datapath; under the progress lock, except where
// it says any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/datapath/schedule.h"
#include "engine/net/next_hop.h"
#include "engine/objects/path.h"
#include "engine/objects/qp.h"

namespace uroce::engine {

class NextHopWaits {
 public:
  using List = std::vector<std::shared_ptr<net::NextHop>>;
  static constexpr size_t kMostWanted = 256;
  enum class Reach : uint8_t {
    kNow,
    kLater,  // the kernel is looking for the next hop: nothing is taken from the QP until then
    kNot,
  };

  NextHopWaits() { wanted_.reserve(kMostWanted); }
  ~NextHopWaits();
  NextHopWaits(const NextHopWaits&) = delete;
  NextHopWaits& operator=(const NextHopWaits&) = delete;

  // `kernel_routes`: the packet I/O needs no next hops. `ask` is called when the kernel is to be asked for some:
  // take_wanted().
  void attach(bool kernel_routes, std::function<void()> ask);

  // --- any thread -------------------------------------------------------------------------------------------------
  // A next hop that QPs wait for may have been found or not.
  void note_change() { changed_.store(true, std::memory_order_seq_cst); }
  bool changed() const { return changed_.load(std::memory_order_seq_cst); }
  bool wants_some() const { return wants_some_.load(std::memory_order_relaxed); }
  bool has_waiters() const { return has_waiters_.load(std::memory_order_relaxed); }

  // --- under the progress lock --------------------------------------------------------------------------------------
  // Whether a packet of the QP can be sent now; brings the envelope up to date.
  Reach reach(Path& path, const Qp& qp, Time now);
  // After Reach::kLater.
  void wait(Qp& qp, Destination& to, Time now);
  // QPs that need wait no longer take their turns.
  void look_after(Time now, Schedule& schedule);
  // When look_after() has something to do again, if nothing changes.
  Time next_deadline() const { return deadline_; }
  // Next hops that there are packets for and the kernel is to find or confirm. `into` is empty and has room.
  void take_wanted(List& into) {
    wanted_.swap(into);
    wants_some_.store(false, std::memory_order_relaxed);
  }

 private:
  void want(const std::shared_ptr<net::NextHop>& hop, Time now);
  void stop_waiting_for(Destination& to);

  bool kernel_routes_ = false;
  std::function<void()> ask_;
  std::atomic<bool> changed_{false};
  std::atomic<bool> wants_some_{false};
  std::atomic<bool> has_waiters_{false};
  List wanted_;           // never more than kMostWanted
  WaitedFor waited_for_;  // destinations that have waiters
  Time deadline_ = kNever;
};

}  // namespace uroce::engine
