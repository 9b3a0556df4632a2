// Everything that happens to packets of one netdev between the packet I/O and the QPs: doorbells, scheduling of
// transmissions, demultiplexing of arrivals, timers, delayed ACKs. All of it under the progress lock, except ring().
// Owned by LocalEngine, as are the tables in which it looks things up; Progress decides who runs iterate() and when.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "engine/base/counters.h"
#include "engine/datapath/moderated_cqs.h"
#include "engine/datapath/tx_burst.h"
#include "engine/io/packet_io.h"
#include "engine/objects/qp.h"
#include "engine/objects/tables.h"
#include "wire/packet.h"

namespace uroce::engine {

class Datapath {
 public:
  // Who runs a round: a thread that has posted, one that polls, or the background thread.
  enum class Caller : uint8_t { kPosting, kPolling, kBackground };
  struct Moved {  // packets
    size_t received = 0;
    size_t sent = 0;
    explicit operator bool() const { return received + sent > 0; }
    // What takes so long to send that arrivals are not left for the next poll.
    bool many() const { return received + sent >= 32; }
    Moved& operator+=(const Moved& other) {
      received += other.received;
      sent += other.sent;
      return *this;
    }
  };

  // `tables` outlive it.
  explicit Datapath(Tables& tables);
  ~Datapath();

  // `wire` moves packets from now on. `ask` is called, with the lock held, when the kernel is to be asked for next
  // hops: take_wanted_next_hops(). `loop`: what moves packets between QPs of this process; null: what does so far.
  // Returns what moved them until now: its end may take long.
  std::unique_ptr<io::PacketIo> attach(std::unique_ptr<io::PacketIo> wire, std::function<void()> ask,
                                       std::unique_ptr<io::PacketIo> loop = nullptr);
  io::PacketIo* wire() const { return wire_.get(); }

  // --- any thread -------------------------------------------------------------------------------------------------
  // The QP has new work.
  void ring(Qp& qp);
  bool rung() const { return rung_.load(std::memory_order_seq_cst) != nullptr; }
  const Counters& counters() const { return counters_; }
  // A next hop that QPs wait for may have been found or not.
  void next_hops_changed() { next_hops_changed_.store(true, std::memory_order_seq_cst); }
  bool wants_next_hops() const { return wants_next_hops_.load(std::memory_order_relaxed); }
  bool waits_for_next_hops() const { return waits_for_next_hops_.load(std::memory_order_relaxed); }

  // --- under the progress lock --------------------------------------------------------------------------------------
  ModeratedCqs& moderated_cqs() { return moderated_cqs_; }
  Counters& counters() { return counters_; }
  // Of the QPs. To be published before the lock is let go; a round does it.
  queue::CompletionBurst& completions() { return completions_; }

  // One round: send what is ready, take what arrived, expire timers, send what that made ready. A thread that has
  // posted only sends: the rest belongs to who polls. ACKs owed before the round leave with it; those that it makes
  // wait for the next one, so that the application's answer goes first. In the background nobody answers, and they
  // leave at once. When an event tells of the message, its ACK leaves ahead of an answer: perftest has one channel for
  // both queues and takes the next event for that of its own send.
  Moved iterate(Caller caller, Time now);

  // Work is left over that needs no outside event: packets ready, ACKs owed.
  bool unfinished() const;
  Time next_deadline() const {
    return std::min({timers_.next_deadline(), moderated_cqs_.next_deadline(), waiting_ends_});
  }

  // Changes the QP as the verbs ask for. `path`: where its packets go from now on; none: where they went. 0 or an errno
  // value.
  int modify(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask, std::optional<Path> path, Time now);
  // The QP may have become ready to send, or owe an ACK, or have another deadline or state.
  void reschedule(Qp& qp, Time now);
  // Its number is still to be released.
  void remove(Qp& qp, Time now);
  // Takes the QP's completions out of its queues (destroy, reset).
  static void purge_completions(Qp& qp);
  // Sends what waits for company.
  void flush();
  // Packets wait for room in the packet I/O, if there is one yet, or in it for the kernel.
  bool backpressured() const { return (wire_burst_ && wire_burst_->backpressured()) || loop_burst_->backpressured(); }
  // Sends the ACK that the QP owes, if any, at once.
  void settle_acks(Qp& qp, Time now);
  // Something that packets under backpressure point to is about to go away. Lost, as on a wire, are those of the QP
  // (with its inline data and its path), those with payload in the region, those on the way to the address handle; the
  // packets of others stay.
  void forget_waiting_packets(const Qp& qp);
  void forget_waiting_packets(const memory::MemoryRegion& region);
  void forget_waiting_packets(const AddressHandle& handle);
  // All of them.
  void forget_waiting_packets();
  template <class F>
  void for_each_qp(F&& f) {
    for (Qp& qp : qps_) f(qp);
  }
  void add(Qp& qp) { qps_.push_back(qp); }
  // Next hops that there are packets for and the kernel is to find or confirm. `into` is empty and has room.
  using NextHopList = std::vector<std::shared_ptr<net::NextHop>>;
  static constexpr size_t kMostWanted = 256;
  void take_wanted_next_hops(NextHopList& into) {
    wanted_.swap(into);
    wants_next_hops_.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kReceiveBurst = 64;
  static constexpr size_t kDoorbellLimit = 256;                // per round
  static constexpr size_t kTimerLimit = 256;                   // likewise
  static constexpr int kQuantum = 16;                          // packets of one QP before the next one's turn
  static constexpr int kTransmitLimit = 4 * 32;                // packets sent before arrivals are looked at again
  static constexpr size_t kReceiveLimit = 2 * kTransmitLimit;  // arrivals wanted before the next packets are sent

  template <class Gone>
  void forget_waiting_if(Gone&& gone) {
    if (wire_burst_) wire_burst_->drop_if(gone);
    loop_burst_->drop_if(gone);
  }
  void attach_loop(std::unique_ptr<io::PacketIo> loop);
  void collect_doorbells(Time now, size_t limit);
  size_t transmit(Caller caller, Time now);
  bool transmit_quantum(Qp& qp, Time now, int& budget);
  Path* next_path(Qp& qp);
  static bool fits_route(const io::TxPacket& packet, const Path& path);
  void copy_to_own_group(const io::TxPacket& packet);
  static const wire::Envelope* envelope_for(const io::TxPacket& packet, Qp& qp, const Path& path);
  size_t transmit_acks(AckList& qps);
  enum class Reach : uint8_t { kNow, kLater, kNot };
  Reach reach(Path& path, const Qp& qp, Time now);
  void want(const std::shared_ptr<net::NextHop>& hop, Time now);
  void wait_for_next_hop(Destination& to, Qp& qp);
  void stop_waiting_for(Destination& to);
  void look_after_waiting(Time now);
  void on_done(const io::TxPacket& packet);
  void publish_state(Qp& qp, Time now);
  size_t receive_wire(Time now);
  size_t receive(io::PacketIo& io, Time now);
  void deliver(const io::RxPacket& rx, bool looped, Time now);
  void deliver_watched(io::PacketIo& io, size_t count, bool looped, Time now);
  void deliver_to_group(const io::RxPacket& rx, bool looped, const wire::Packet& packet, Time now);
  static uint32_t events_told(const Qp& qp);
  void send_ack_first(Qp& qp);
  std::optional<Counter> refuse_by_headers(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                           const Qp& qp) const;
  std::optional<Counter> refuse(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const;
  bool is_own(const wire::IpAddress& address) const;
  bool belongs_here(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const;
  void expire_timers(Time now);
  TxBurst& burst(const Path& path) { return path.loopback() ? *loop_burst_ : *wire_burst_; }

  Tables& tables_;
  Counters counters_;
  std::unique_ptr<io::PacketIo> wire_;
  bool kernel_routes_ = false;          // it needs no next hops
  std::unique_ptr<io::PacketIo> loop_;  // QPs of this process connected to each other
  std::unique_ptr<TxBurst> wire_burst_;
  std::unique_ptr<TxBurst> loop_burst_;
  std::function<void()> ask_;
  std::array<io::RxPacket, kReceiveBurst> arrived_;
  Time now_{};            // of the last round
  Time transmit_time_{};  // of the transmission in progress
  size_t sent_since_receive_ = 0;

  alignas(64) std::atomic<Qp*> rung_{nullptr};  // written by posting threads; a cache line of its own
  alignas(64) Qp* first_rung_ = nullptr;        // QPs whose doorbell has been taken from there and not been looked at
  Qp* last_rung_ = nullptr;
  std::atomic<bool> next_hops_changed_{false};
  std::atomic<bool> wants_next_hops_{false};
  std::atomic<bool> waits_for_next_hops_{false};
  NextHopList wanted_;          // never more than kMostWanted
  WaitedFor waited_for_;        // destinations that have waiters
  Time waiting_ends_ = kNever;  // the first of these gives up
  queue::CompletionBurst completions_;

  QpList qps_;
  ReadyList ready_;
  // QPs that owe an ACK.
  AckList owed_;    // may wait for the application's answer
  AckList waited_;  // have done so, and leave behind this round's data
  AckList urgent_;  // leave ahead of it
  TimerWheel timers_;
  ModeratedCqs moderated_cqs_;
};

}  // namespace uroce::engine
