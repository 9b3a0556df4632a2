// SPDX-License-Identifier: BSD-2-Clause
// What the parts of one QP share: its identity, its queues, its attributes, the time of the call in progress. The parts
// report; the QP decides about the state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/counters.h"
#include "base/time.h"
#include "engine/congestion/controller.h"
#include "engine/memory/mr_table.h"
#include "engine/queue/completion_burst.h"
#include "engine/queue/work_queue.h"
#include "engine/transport/common/qp_state.h"
#include "engine/transport/common/run_trial.h"
#include "engine/transport/reliable/probe_budget.h"
#include "wire/psn.h"

namespace uroce::transport {

// Told about asynchronous events; implemented by the engine and by tests. Rare, so virtual calls do not matter.
class QpEvents {
 public:
  virtual void on_event(AsyncEvent event) = 0;
  virtual void on_cq_overrun(queue::CompletionQueue& cq) = 0;
  // Fewer receive requests are left in a shared receive queue than the limit that was armed; told once per arming.
  virtual void on_srq_limit(queue::ReceiveQueue& srq) = 0;

 protected:
  ~QpEvents() = default;
};

// Where messages of the peer find receive requests, and what memory they may touch. XRC: of the shared receive queue
// that the request names.
struct ReceiveTarget {
  queue::ReceiveQueue* rq;
  queue::CompletionQueue* cq;
  uint32_t pd;     // of what the peer names by rkey
  uint32_t rq_pd;  // of what receive requests name by lkey: a shared receive queue has its own (IBTA 10.2.9)
};

// The shared receive queues of XRC domains, kept by the engine.
class XrcSrqs {
 public:
  // Null: none of this number in the domain.
  virtual const ReceiveTarget* find(uint32_t xrcd, uint32_t srqn) const = 0;

 protected:
  ~XrcSrqs() = default;
};

// The surroundings of a QP; all of it outlives the QP.
struct QpConfig {
  QpType type = QpType::kRc;
  wire::Qpn qpn;
  uint32_t pd = 0;
  bool signal_all = false;                       // every send WQE completes with a CQE (sq_sig_all)
  bool rq_shared = false;                        // `rq` is a shared receive queue (SRQ)
  std::optional<uint32_t> rq_pd = std::nullopt;  // of a shared receive queue; else `pd`
  Duration patience{};                           // a peer that is away is waited for so long at least
  memory::MrTable& mrs;
  queue::SendQueue& sq;
  queue::ReceiveQueue& rq;
  queue::CompletionQueue& send_cq;
  queue::CompletionQueue& recv_cq;
  queue::CompletionBurst* completions = nullptr;  // whose owner publishes them; null: each is published at once
  QpEvents& events;
  Counters& counters;
  // Room for the SGEs of one receive request, of any that its receive queue may hold. XRC targets: kMaxSge.
  std::span<queue::Sge> receive_sges{};
  const XrcSrqs* xrc_srqs = nullptr;  // XRC targets
  uint32_t xrcd = 0;                  // their domain
};

// What a call means for the QP.
enum class [[nodiscard]] Outcome : uint8_t{
    kGoesOn,
    kFailed,  // it moves to the error state
};

struct QpContext {
  explicit QpContext(const QpConfig& c)
      : type(c.type),
        signal_all(c.signal_all),
        rq_shared(c.rq_shared || c.type == QpType::kXrcTarget),
        qpn(c.qpn),
        pd(c.pd),
        mrs(c.mrs),
        sq(c.sq),
        counters(c.counters),
        send_cq(c.send_cq),
        completions(c.completions),
        patience(c.patience),
        receive{&c.rq, &c.recv_cq, c.pd, c.rq_pd.value_or(c.pd)},
        receive_sges(c.receive_sges),
        events(c.events),
        xrc_srqs(c.xrc_srqs),
        xrcd(c.xrcd) {}

  // The order is that of cache lines. What every packet needs:
  const QpType type;
  const bool signal_all;
  const bool rq_shared;
  bool lost_completion = false;  // a CQ was full
  bool through_memory = false;   // packets go to a process of this host, and none is lost while it reads
  const wire::Qpn qpn;
  const uint32_t pd;
  uint32_t window = congestion::Controller::kWindow;  // packets that may be in flight
  Time now{};                                         // of the call in progress; set at every entry
  memory::MrTable& mrs;
  queue::SendQueue& sq;
  Counters& counters;
  queue::CompletionQueue& send_cq;

  // What sending needs. Of the destination, shared with other QPs; null: no bound.
  congestion::Controller* congestion = nullptr;
  ProbeBudget* probe_budget = nullptr;
  RunTrial* run_trial = nullptr;
  uint32_t run = 1;        // packets of full size in one
  uint32_t most_psns = 1;  // of a packet (long_packet.h)
  congestion::Turn turn;   // with the controller
  queue::CompletionBurst* const completions;
  const Duration patience;
  // Of this QP, for CompletionQueue::purge(). Where both are one queue, the first; XRC: of any shared receive queue.
  std::optional<queue::CompletionQueue::Mark> last_in_send_cq;

  // What receiving needs.
  ReceiveTarget receive;                     // changes with every request of an XRC target only
  const std::span<queue::Sge> receive_sges;  // of the receive request in use
  QpAttributes attr{};
  std::optional<queue::CompletionQueue::Mark> last_in_receive_cq;

  QpEvents& events;
  const XrcSrqs* const xrc_srqs;
  const uint32_t xrcd;

  // kFailed: there was no room.
  Outcome push(queue::CompletionQueue& cq, queue::Cqe cqe) {
    cqe.qpn = qpn.value();
    cqe.timestamp = static_cast<uint64_t>(now.time_since_epoch().count());
    queue::CompletionQueue::Mark last{};
    const bool pushed = completions != nullptr ? completions->append(cq, cqe, last) : cq.push_shared(cqe, last);
    if (pushed) {
      (&cq == &send_cq ? last_in_send_cq : last_in_receive_cq) = last;
      return Outcome::kGoesOn;
    }
    counters.add(Counter::kCqOverruns);
    // Each is told once: the queue has an error, and so has every QP that lost a completion (IBTA 11.6.3.1).
    if (cq.tell_overrun()) events.on_cq_overrun(cq);
    if (!lost_completion) events.on_event(AsyncEvent::kQpFatal);
    lost_completion = true;
    return Outcome::kFailed;
  }
};

// Number of packets of a message of `length` bytes: at least one (IBTA 9.7.2).
inline uint32_t packet_count(uint32_t length, uint32_t path_mtu) {
  return length == 0 ? 1 : static_cast<uint32_t>((uint64_t{length} + path_mtu - 1) / path_mtu);
}

}  // namespace uroce::transport
