// What the parts of one connected QP share: its identity, its queues, its attributes, the time of the call in progress.
// Requester, completer and responder report; RcQp decides about the state.
#pragma once

#include <cstdint>

#include "engine/base/counters.h"
#include "engine/base/time.h"
#include "engine/memory/mr_table.h"
#include "engine/queue/completion_queue.h"
#include "engine/queue/work_queue.h"
#include "engine/transport/qp_state.h"
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

struct QpContext {
  wire::Qpn qpn;
  uint32_t pd;
  bool signal_all;  // every send WQE completes with a CQE (sq_sig_all)
  bool rq_shared;   // `rq` is a shared receive queue (SRQ)
  memory::MrTable& mrs;
  queue::SendQueue& sq;
  queue::ReceiveQueue& rq;
  queue::CompletionQueue& send_cq;
  queue::CompletionQueue& recv_cq;
  QpEvents& events;
  Counters& counters;

  QpAttributes attr{};
  Time now{};                    // of the call in progress; set by RcQp at every entry
  bool lost_completion = false;  // a CQ was full
  bool failed = false;           // a part met a fatal condition: RcQp moves the QP to the error state after the call

  void push(queue::CompletionQueue& cq, queue::Cqe cqe) {
    cqe.qpn = qpn.value();
    cqe.timestamp = static_cast<uint64_t>(now.time_since_epoch().count());
    const bool first = !cq.overrun();
    if (cq.push(cqe)) return;
    counters.add(Counter::kCqOverruns);
    failed = true;
    // Each is told once: the queue has an error, and so has every QP that lost a completion (IBTA 11.6.3.1).
    if (first) events.on_cq_overrun(cq);
    if (!lost_completion) events.on_event(AsyncEvent::kQpFatal);
    lost_completion = true;
  }
};

// Number of packets of a message of `length` bytes: at least one (IBTA 9.7.2).
inline uint32_t packet_count(uint32_t length, uint32_t path_mtu) {
  return length == 0 ? 1 : static_cast<uint32_t>((uint64_t{length} + path_mtu - 1) / path_mtu);
}

}  // namespace uroce::transport
