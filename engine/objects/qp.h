// SPDX-License-Identifier: BSD-2-Clause
// A QP as the engine keeps it: the transport, its queues and path, and its place in the engine's lists.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <variant>
#include <vector>

#include "base/timer_wheel.h"
#include "engine/objects/answer_habit.h"
#include "engine/objects/init.h"
#include "engine/objects/path.h"
#include "engine/objects/srq.h"
#include "engine/transport/reliable/rc_qp.h"
#include "engine/transport/unreliable/uc_qp.h"
#include "engine/transport/unreliable/ud_qp.h"

namespace uroce::engine {

namespace intrusive = boost::intrusive;
using ListHook = intrusive::list_member_hook<intrusive::link_mode<intrusive::auto_unlink>>;

// The order of its members is that of cache lines: first what packets need, with all that the transport keeps; then the
// line that posting threads write to; last what is rarely looked at.
class Qp final : public transport::QpEvents, public NextHopWaiter, public TimerWheel::Timer {
 public:
  // `qpn` is assigned before construction.
  Qp(const QpInit& init, wire::Qpn qpn, memory::MrTable& mrs, const transport::XrcSrqs& xrc_srqs,
     queue::CompletionBurst& completions, Counters& counters)
      : send_cq(init.send_cq),
        recv_cq(init.recv_cq),
        sq(init.max_send_wr, init.max_send_sge, init.max_inline, init.send_memory),
        rq(init.srq != nullptr ? 1 : init.max_recv_wr, init.max_recv_sge, init.receive_memory),
        receive_sges_(new queue::Sge[most_receive_sges(init)]),
        transport(make_transport({.type = init.type,
                                  .qpn = qpn,
                                  .pd = init.pd,
                                  .signal_all = init.signal_all,
                                  .rq_shared = init.srq != nullptr,
                                  .rq_pd = init.srq != nullptr ? std::optional(init.srq->init.pd) : std::nullopt,
                                  .patience = init.patience,
                                  .mrs = mrs,
                                  .sq = sq,
                                  .rq = init.srq != nullptr ? *init.srq : rq,
                                  .send_cq = send_cq != nullptr ? *send_cq : no_cq(),
                                  .recv_cq = recv_cq != nullptr ? *recv_cq : no_cq(),
                                  .completions = &completions,
                                  .events = *this,
                                  .counters = counters,
                                  .receive_sges = {receive_sges_.get(), most_receive_sges(init)},
                                  .xrc_srqs = &xrc_srqs,
                                  .xrcd = init.xrcd})),
        blocks_own_multicast(init.block_own_multicast),
        events_(init.events),
        context_(init.context) {}
  virtual ~Qp() = default;

  void on_event(transport::AsyncEvent event) override { report({.event = event, .qp_context = context_}); }
  void on_cq_overrun(queue::CompletionQueue& cq) override {
    report({.event = transport::AsyncEvent::kCqError, .qp_context = context_, .cq = &cq});
  }
  void on_srq_limit(queue::ReceiveQueue& srq) override {
    static_cast<Srq&>(srq).report(transport::AsyncEvent::kSrqLimitReached);
  }

  // Memory for the READs and atomics of the peer that the QP has to remember when it is modified so: to be allocated
  // without the progress lock. Throws std::bad_alloc.
  using Answers = std::vector<transport::ReplayEntry>;
  static Answers room_for_answers(const transport::QpAttributes& attributes, uint32_t mask) {
    const bool granted = (mask & transport::kQpMaxDestRdAtomic) != 0;
    return Answers(granted ? std::min<uint32_t>(attributes.max_dest_rd_atomic, transport::kMaxRdAtomic) : 0);
  }
  // From now on they lie in `room` if that is larger than what they lie in, which is in `room` then.
  void remember_answers_in(Answers& room) {
    if (room.size() <= transport->answers_remembered()) return;
    transport->remember_answers_in(room);
    answers_.swap(room);
  }

  bool is_ud() const { return transport->type() == transport::QpType::kUd; }

  // Somebody will work with it soon: the cache lines that a packet needs come at the same time and not one by one.
  void prefetch() const {
    constexpr size_t kCacheLine = 64;
    const auto* const last = reinterpret_cast<const std::byte*>(&rung);
    for (const auto* line = reinterpret_cast<const std::byte*>(this); line <= last; line += kCacheLine) {
      __builtin_prefetch(line);
    }
  }

  alignas(64) Path path;                  // of a connected QP
  ListHook ready_hook;                    // has packets to send
  ListHook ack_hook;                      // owes an ACK that may wait
  AnswerHabit answer_habit;               // whether it is worth waiting with
  queue::CompletionQueue* const send_cq;  // null where the type has none
  queue::CompletionQueue* const recv_cq;
  queue::SendQueue sq;
  queue::ReceiveQueue rq;

 private:
  // What the transport works in: it allocates nothing.
  const std::unique_ptr<queue::Sge[]> receive_sges_;
  // Before `transport`, which points into it.
  std::variant<std::monostate, transport::RcQp, transport::UcQp, transport::UdQp> transport_;

 public:
  transport::TransportQp* const transport;

  // Doorbells: a stack that posting threads push to and the progress holder empties.
  alignas(64) std::atomic<bool> rung{false};
  std::atomic<transport::QpState> visible_state{transport::QpState::kReset};  // for threads without the progress lock
  Qp* next_rung = nullptr;

  ListHook all_hook;
  wire::Envelope cnp_envelope;  // of the last CNP, see TxScheduler
  const bool blocks_own_multicast;

 private:
  transport::TransportQp* make_transport(const transport::QpConfig& config) {
    switch (config.type) {
      case transport::QpType::kUc:
        return &transport_.emplace<transport::UcQp>(config);
      case transport::QpType::kUd:
        return &transport_.emplace<transport::UdQp>(config);
      default:
        return &transport_.emplace<transport::RcQp>(config);
    }
  }
  uint32_t most_receive_sges(const QpInit& init) const {
    if (init.type == transport::QpType::kXrcInitiator) return 0;
    if (init.type == transport::QpType::kXrcTarget) return queue::kMaxSge;
    return init.srq != nullptr ? init.srq->max_sge() : rq.max_sge();
  }
  // Stands in where a type has no completion queue; nothing is ever put into it.
  static queue::CompletionQueue& no_cq() {
    static queue::CompletionQueue none(1, nullptr);
    return none;
  }
  void report(const EventSubject& subject) const {
    if (events_ != nullptr) (*events_)(subject);
  }

  EventHandler* const events_;
  void* const context_;
  Answers answers_;
};

using QpList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::all_hook>, intrusive::constant_time_size<false>>;
using ReadyList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::ready_hook>, intrusive::constant_time_size<false>>;
using AckList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::ack_hook>, intrusive::constant_time_size<false>>;

}  // namespace uroce::engine
