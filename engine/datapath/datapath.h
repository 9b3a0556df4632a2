// SPDX-License-Identifier: BSD-2-Clause
// Everything that happens to packets of one netdev between the packet I/O and the QPs, one round at a time: doorbells,
// transmissions (tx_scheduler.h), arrivals (rx_demux.h), timers and ACKs (schedule.h), waits for next hops
// (next_hop_waits.h). All of it under the progress lock, except where it says any thread. Owned by Device, as are
// the tables in which it looks things up; Progress decides who runs iterate() and when.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "base/counters.h"
#include "engine/datapath/doorbells.h"
#include "engine/datapath/moderated_cqs.h"
#include "engine/datapath/next_hop_waits.h"
#include "engine/datapath/rx_demux.h"
#include "engine/datapath/schedule.h"
#include "engine/datapath/tx_scheduler.h"
#include "engine/io/packet_io.h"
#include "engine/objects/qp.h"
#include "engine/objects/tables.h"

namespace uroce::engine {

class Datapath {
 public:
  // Who runs a round: a thread that has posted, one that polls, one that may wait for a descriptor next, one that waits
  // here for an event, or the background thread.
  enum class Caller : uint8_t { kPosting, kPolling, kAttending, kWaiting, kBackground };
  struct Moved {  // packets
    size_t received = 0;
    size_t sent = 0;
    bool more_to_come = false;  // the last that were received have left a message incomplete
    bool pressed = false;       // some wait for room
    explicit operator bool() const { return received + sent > 0; }
    // What takes so long to send that arrivals are not left for the next poll.
    bool many() const { return received + sent >= 32; }
    Moved& operator+=(const Moved& other) {
      received += other.received;
      sent += other.sent;
      if (other.received > 0) more_to_come = other.more_to_come;
      pressed = other.pressed;
      return *this;
    }
  };

  // Of one shard of a device. `tables` outlive it.
  explicit Datapath(Tables& tables, uint32_t shard = 0);

  // `wire` moves packets from now on. `ask` is called, with the lock held, when the kernel is to be asked for next
  // hops. `loop`: what moves packets between QPs of this process; null: what does so far. Returns what moved them until
  // now: its end may take long.
  std::unique_ptr<io::PacketIo> attach(std::unique_ptr<io::PacketIo> wire, std::function<void()> ask,
                                       std::unique_ptr<io::PacketIo> loop = nullptr);
  io::PacketIo* wire() const { return wire_.get(); }

  // --- any thread -------------------------------------------------------------------------------------------------
  // The QP has new work.
  void ring(Qp& qp) { doorbells_.ring(qp); }
  bool rung() const { return doorbells_.rung(); }
  const Counters& counters() const { return counters_; }

  // --- under the progress lock, except what NextHopWaits says of its own --------------------------------------------
  NextHopWaits& next_hops() { return next_hops_; }
  const NextHopWaits& next_hops() const { return next_hops_; }
  ModeratedCqs& moderated_cqs() { return moderated_cqs_; }
  Counters& counters() { return counters_; }
  // Of the QPs. To be published before the lock is let go; a round does it.
  queue::CompletionBurst& completions() { return completions_; }

  // One round: send what is ready, take what arrived, expire timers, send what that made ready. A thread that has
  // posted only sends, unless that was a lot: the rest belongs to who polls.
  Moved iterate(Caller caller, Time now);

  // After a round: what has waited for company, or for the next round, leaves now.
  void leave_nothing(Time now);

  // Work is left over that needs no outside event: packets ready, ACKs owed that wait for no answer.
  bool unfinished() const;
  // Packets from QPs of this process have arrived.
  bool looped() const { return !loop_->prepare_to_wait(); }
  // Packets for QPs of this process, of other shards perhaps, have not been received yet.
  bool sent_to_others() const { return loop_->sent_waits(); }
  Time next_deadline() const {
    return std::min({schedule_.next_deadline(), moderated_cqs_.next_deadline(), next_hops_.next_deadline()});
  }

  // --- QPs, under the progress lock
  void add(Qp& qp) { qps_.push_back(qp); }
  // Changes the QP as the verbs ask for. `path`: where its packets go from now on; none: where they went. 0 or an errno
  // value.
  int modify(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask, std::optional<Path> path, Time now);
  // After the QP was changed in another way.
  void reschedule(Qp& qp, Time now) { schedule_.reschedule(qp, now); }
  // Its number is still to be released.
  void remove(Qp& qp, Time now);
  template <class F>
  void for_each_qp(F&& f) {
    for (Qp& qp : qps_) f(qp);
  }

  // The process ends: ACKs that QPs owe leave, as far as the packet I/O has room and nothing has to precede them.
  void settle_acks(Time now) { tx_.settle_acks(now); }

  // --- packets that have not left, under the progress lock
  // Sends what waits for company.
  void flush() { tx_.queues().flush(); }
  // Packets wait for room in the packet I/O, or in it for the kernel.
  bool backpressured() const { return tx_.queues().backpressured(); }
  // Those that point to it are lost, as on a wire: it is about to go away.
  void forget_waiting_packets(const Qp& qp) { tx_.queues().forget(qp); }
  void forget_waiting_packets(const memory::MemoryRegion& region) { tx_.queues().forget(region); }
  void forget_waiting_packets(const AddressHandle& handle) { tx_.queues().forget(handle); }
  void forget_waiting_packets() { tx_.queues().forget_all(); }

 private:
  static constexpr size_t kDoorbellLimit = 256;                             // per round
  static constexpr size_t kTimerLimit = 256;                                // likewise
  static constexpr size_t kReceiveLimit = 2 * TxScheduler::kTransmitLimit;  // arrivals wanted before the next packets

  void attach_loop(std::unique_ptr<io::PacketIo> loop);
  void answer_doorbells(size_t limit, Time now);
  size_t transmit(Caller caller, Time now);
  Moved receive(Time now);
  size_t receive_burst(io::PacketIo& io, Time now);
  void share_runs(Qp& qp, const Path& path) const;
  static void purge_completions(Qp& qp);

  const Tables& tables_;
  Counters counters_;
  queue::CompletionBurst completions_;
  ModeratedCqs moderated_cqs_;
  Doorbells doorbells_;
  Schedule schedule_;
  NextHopWaits next_hops_;
  TxScheduler tx_;
  RxDemux rx_;
  QpList qps_;
  std::unique_ptr<io::PacketIo> wire_;  // null before it is attached
  std::unique_ptr<io::PacketIo> loop_;  // QPs of this process connected to each other
  Time now_{};                          // of the last round
  size_t sent_since_receive_ = 0;
};

}  // namespace uroce::engine
