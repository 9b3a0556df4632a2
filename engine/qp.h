// A QP as the engine keeps it: the transport, its queues and path, and its place in the engine's lists.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "engine/engine.h"
#include "engine/path.h"
#include "engine/transport/rc_qp.h"

namespace uroce::engine {

namespace intrusive = boost::intrusive;
using ListHook = intrusive::list_member_hook<intrusive::link_mode<intrusive::auto_unlink>>;
using SetHook = intrusive::set_member_hook<intrusive::link_mode<intrusive::auto_unlink>>;

class Qp final : public transport::QpEvents {
 public:
  // `qpn` is assigned before construction.
  Qp(const QpInit& settings, wire::Qpn qpn, memory::MrTable& mrs, Counters& counters)
      : init(settings),
        sq(init.max_send_wr, init.max_send_sge, init.max_inline),
        rq(init.max_recv_wr, init.max_recv_sge),
        rc({.qpn = qpn,
            .pd = init.pd,
            .signal_all = init.signal_all,
            .mrs = mrs,
            .sq = sq,
            .rq = rq,
            .send_cq = *init.send_cq,
            .recv_cq = *init.recv_cq,
            .events = *this,
            .counters = counters}) {}
  virtual ~Qp() = default;

  void on_event(transport::AsyncEvent event) override { report(event, nullptr); }
  void on_cq_overrun(queue::CompletionQueue& cq) override { report(transport::AsyncEvent::kCqError, &cq); }

  void on_srq_limit(queue::ReceiveQueue&) override {}  // no shared receive queues yet (issue 4)

  const QpInit init;
  queue::SendQueue sq;
  queue::ReceiveQueue rq;
  transport::RcQp rc;
  Path path;
  wire::Envelope cnp_envelope;                                                // of the last CNP, see Datapath
  std::atomic<transport::QpState> visible_state{transport::QpState::kReset};  // for threads without the progress lock

  // Doorbells: a stack that posting threads push to and the progress holder empties.
  std::atomic<bool> rung{false};
  Qp* next_rung = nullptr;

  ListHook all_hook;
  ListHook ready_hook;  // has packets to send
  ListHook ack_hook;    // owes an ACK that may wait
  SetHook timer_hook;   // waits for `timer_at`
  Time timer_at = kNever;

 private:
  void report(transport::AsyncEvent event, queue::CompletionQueue* cq) const {
    if (init.events != nullptr) (*init.events)({event, init.context, cq});
  }
};

using QpList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::all_hook>, intrusive::constant_time_size<false>>;
using ReadyList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::ready_hook>, intrusive::constant_time_size<false>>;
using AckList =
    intrusive::list<Qp, intrusive::member_hook<Qp, ListHook, &Qp::ack_hook>, intrusive::constant_time_size<false>>;

struct ByDeadline {
  bool operator()(const Qp& a, const Qp& b) const { return a.timer_at < b.timer_at; }
};
using TimerQueue = intrusive::multiset<Qp, intrusive::member_hook<Qp, SetHook, &Qp::timer_hook>,
                                       intrusive::compare<ByDeadline>, intrusive::constant_time_size<false>>;

}  // namespace uroce::engine
