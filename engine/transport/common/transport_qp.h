// SPDX-License-Identifier: BSD-2-Clause
// A QP without I/O (architecture.md, decision 3), of any transport. Engine, simulator and fuzzer drive it alike:
//
//   on_packet(packet, now)   a packet for this QP arrived, its envelope, P_Key and ICRC checked; a CNP too
//   on_middle_packets(previous, payloads, now)  others like it behind it
//   on_congestion_mark(now)  ... and its IP header said congestion experienced (CE); before on_packet()
//   pull(out, now)           the next packet to send, responses before requests; call until false
//                            or exhausted()
//   pull_ack(out, now)       an acknowledgement that is owed; the engine lets it wait for the next round,
//                            or for an answer (progress.md "Progress")
//   on_taken(packet, now)    the bytes of a packet given out with `completes` have been made
//   on_unreadable(packet, now)  the payload of a packet given out is not accessible any more
//   on_timer(now)            at or after the deadline of the agenda; long after it, on_pause(late, now) first
//   modify(attributes, mask, now)
//   on_posted(now)           WQEs were posted while the QP was in an error state
//
// Completions go to the CQs, asynchronous events to QpEvents. No allocation, clock, lock or system call inside. One
// thread at a time.
#pragma once

#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "engine/transport/reliable/replay_cache.h"
#include "wire/packet.h"

namespace uroce::transport {

// What a QP would do next, and when.
struct Agenda {
  bool send = false;  // pull() would probably give a packet now; may be wrong in the positive
  bool ack = false;   // an acknowledgement is owed; responses that must precede it may still be waiting
  bool ack_urgent = false;
  bool ack_of_lone_write = false;  // it is for one WRITE, of which only memory tells the application
  Time deadline = kNever;          // when on_timer() or pull() has something to do without outside cause
};

class TransportQp {
 public:
  TransportQp(const TransportQp&) = delete;
  TransportQp& operator=(const TransportQp&) = delete;

  QpState state() const { return qp_.attr.state; }
  wire::Qpn qpn() const { return qp_.qpn; }
  QpType type() const { return qp_.type; }
  const QpAttributes& attributes() const { return qp_.attr; }
  // Takes the QP's completions out of one of its queues. Under the progress lock.
  void purge(queue::CompletionQueue& cq) {
    const auto& last = &cq == &qp_.send_cq ? qp_.last_in_send_cq : qp_.last_in_receive_cq;
    if (last) cq.purge(qpn().value(), *last);
  }
  // That of the destination that the QP is connected to; lives until the QP ends or gets another one.
  void share_probes(ProbeBudget& budget) { qp_.probe_budget = &budget; }
  // Packets of full size leave in runs of `run`, if `trial` allows it. 1 and null: they do not.
  void share_runs(RunTrial* trial, uint32_t run) {
    qp_.run_trial = trial;
    qp_.run = run;
  }
  uint32_t run() const { return qp_.run; }
  // Packets may have so many bytes of payload from now on, if that is more than the path MTU (long_packet.h): they go
  // through memory to a process of this host. 0: by the network. Without effect where the transport has no such
  // packets.
  void allow_long(uint32_t payload) {
    qp_.through_memory = payload != 0;
    qp_.most_psns = payload > qp_.attr.path_mtu ? payload / qp_.attr.path_mtu : 1;
  }
  // Likewise; UD: of the next packet's destination, told before each pull(). Null: none.
  void obey(congestion::Controller* controller) {
    if (controller == qp_.congestion) return;
    qp_.congestion = controller;
    qp_.turn = {};
  }

  // READs and atomics of the peer that the QP can remember: its max_dest_rd_atomic goes no further. Transports without
  // these need no room.
  virtual uint32_t answers_remembered() const { return kMaxRdAtomic; }
  // From now on in `room`, which is larger than what it had so far, empty, and outlives the QP's use of it.
  virtual void remember_answers_in(std::span<ReplayEntry>) {}

  // 0 or an errno value: EINVAL for an illegal transition, mask or value, ENOMEM for more answers than can be
  // remembered. Takes the target state from attributes.state if the mask names it, else the current one.
  int modify(const QpAttributes& attributes, uint32_t mask, Time now);

  virtual void on_packet(const wire::Packet& packet, Time now) = 0;
  // Packets that arrived behind `previous`, which was the last one, and differ from it in payload and PSN only: each
  // has the next one, and as many bytes. The same as on_packet() for each of them, with less work where that is
  // possible: true then.
  virtual bool on_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads, Time now);
  virtual void on_congestion_mark(Time now) = 0;
  // What may have changed after each of these calls.
  virtual Agenda agenda(Time now) const = 0;
  virtual bool pull(io::TxPacket& out, Time now) = 0;
  // The next packets of a long message, with less work: those that differ from `previous`, which was pulled last, in
  // PSN and place only; nothing has happened to the QP in between but on_taken() and on_unreadable(). Fills `out` from
  // the front and returns how many there are; with fewer than there is room for, pull() tells whether there are more.
  virtual size_t pull_middle_packets([[maybe_unused]] const io::TxPacket& previous,
                                     [[maybe_unused]] std::span<io::TxPacket> out, [[maybe_unused]] Time now) {
    return 0;
  }
  // Nothing is left that pull() would give, nor would it do anything else that matters: for who need not ask it once
  // more. May be wrong in the negative.
  virtual bool exhausted() const = 0;
  // How far it has come, for who counts packets: all before `sent` is acknowledged (UC, UD: sent), all before
  // `received` has arrived in order (UD: nothing is in order).
  struct Position {
    wire::Psn sent, received;
  };
  virtual Position position() const = 0;
  // UD: the address handle that the next packet goes to.
  virtual uint32_t next_address_handle() { return 0; }
  // The QP that it goes to; after next_address_handle().
  virtual wire::Qpn next_remote() const { return qp_.attr.dest_qpn; }
  virtual bool pull_ack(io::TxPacket&, Time) { return false; }
  virtual void on_taken(const io::TxPacket&, Time) {}
  // The payload of a packet that pull() gave could not be read: the application took its memory away.
  virtual void on_unreadable(const io::TxPacket& packet, Time now) = 0;
  virtual void on_posted(Time now) = 0;
  // A shared receive queue of XRC is about to go, and the CQ of its completions may go with it.
  virtual void on_srq_destroyed(const queue::ReceiveQueue&) {}
  virtual void on_timer(Time now) = 0;
  // Before on_timer(), which comes `late` by so much that this host must have stood still.
  virtual void on_pause(Duration, Time) {}

  // For who asks one question only, about the time of the last call.
  bool wants_to_send(Time now) const { return agenda(now).send; }
  bool ack_owed() const { return agenda(qp_.now).ack; }
  bool ack_urgent() const { return agenda(qp_.now).ack_urgent; }
  Time deadline() const { return agenda(qp_.now).deadline; }

 protected:
  explicit TransportQp(const QpConfig& config) : qp_(config) {}
  ~TransportQp() = default;  // who holds a QP knows its type

  // The one place where the state changes: after qp_.attr has its new values. To RESET: back to the beginning.
  virtual void enter(QpState state) = 0;
  // After every call: what the parts returned becomes state.
  virtual void settle(Outcome outcome) = 0;
  // To RTS: numbers the packets from qp_.attr.sq_psn on.
  virtual void start_sending() = 0;

  // RTR, RTS, SQD and SQE take packets in.
  bool receiving() const {
    return state() == QpState::kRtr || state() == QpState::kRts || state() == QpState::kSqd || state() == QpState::kSqe;
  }
  bool sending() const { return state() == QpState::kRts || state() == QpState::kSqd; }
  // IBTA 11.6.3.2: to ERR, and nothing of a shared receive queue is with this QP any more.
  void report_last_wqe() {
    if (qp_.rq_shared && qp_.type != QpType::kXrcTarget) qp_.events.on_event(AsyncEvent::kQpLastWqeReached);
  }

  QpContext qp_;
};

}  // namespace uroce::transport
