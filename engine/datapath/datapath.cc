// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datapath/datapath.h"

#include <cstdint>
#include <utility>

#include "engine/io/memory_link.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::engine {

Datapath::Datapath(Tables& tables, uint32_t shard)
    : tables_(tables), tx_(tables, shard, counters_, schedule_, next_hops_), rx_(tables, shard, counters_, schedule_) {
  attach_loop(io::make_memory_loop());
}

void Datapath::attach_loop(std::unique_ptr<io::PacketIo> loop) {
  tx_.queues().attach_loop(*loop);
  loop_ = std::move(loop);
}

std::unique_ptr<io::PacketIo> Datapath::attach(std::unique_ptr<io::PacketIo> wire, std::function<void()> ask,
                                               std::unique_ptr<io::PacketIo> loop) {
  if (loop) attach_loop(std::move(loop));
  tx_.queues().attach_wire(*wire);
  next_hops_.attach(wire->kernel_routes(), std::move(ask));
  wire_.swap(wire);
  return wire;
}

// --- the round ------------------------------------------------------------------------------------------------------

Datapath::Moved Datapath::iterate(Caller caller, Time now) {
  now = now_ = std::max(now_, now);  // never backwards, whoever tells it
  const queue::CompletionBurst::Publisher published(completions_);
  Moved moved;
  answer_doorbells(kDoorbellLimit, now);
  schedule_.acks().begin_round(now);
  if (caller == Caller::kAttending || caller == Caller::kWaiting) schedule_.acks().expect_no_answer();
  if (caller != Caller::kPosting) next_hops_.look_after(now, schedule_);
  moved.sent += transmit(caller, now);
  if (caller == Caller::kPosting && !moved.many()) return moved;
  moved += receive(now);
  schedule_.expire_timers(now, kTimerLimit);
  moderated_cqs_.expire(now);
  if (caller >= Caller::kAttending) schedule_.acks().end_delay();  // nobody answers in this thread
  moved.sent += transmit(caller, now);
  moved.pressed = backpressured();
  return moved;
}

void Datapath::leave_nothing(Time now) {
  const queue::CompletionBurst::Publisher published(completions_);
  schedule_.acks().end_delay();
  transmit(Caller::kPolling, std::max(now_, now));
}

void Datapath::answer_doorbells(size_t limit, Time now) {
  doorbells_.answer(limit, [this, now](Qp& qp) {
    qp.transport->on_posted(now);
    schedule_.acks().on_posted(qp, now);
    schedule_.reschedule(qp, now);
  });
}

size_t Datapath::transmit(Caller caller, Time now) {
  const size_t sent = tx_.transmit(now);
  if (caller == Caller::kPosting) {
    tx_.queues().flush_post();
  } else {
    tx_.queues().flush();
  }
  sent_since_receive_ += sent;
  return sent;
}

// From the wire as many as were sent since, or all that are there: who sends a lot is answered a lot, and may be sent
// as much. What comes after the end was found is left to the next round. From QPs of this process all that are there.
Datapath::Moved Datapath::receive(Time now) {
  const size_t wanted = std::min(std::exchange(sent_since_receive_, 0), kReceiveLimit);
  Moved moved;
  do {
    const size_t count = receive_burst(*wire_, now);
    if (count == 0) break;
    moved.received += count;
    moved.more_to_come = rx_.more_to_come(count);
  } while (moved.received < wanted && !wire_->drained());
  if (looped()) {  // the last look, which finds nothing, gives the frames back
    while (const size_t count = receive_burst(*loop_, now)) moved.received += count;
  }
  return moved;
}

size_t Datapath::receive_burst(io::PacketIo& io, Time now) {
  const size_t count = rx_.receive(io, &io == loop_.get(), now);
  completions_.publish();
  return count;
}

bool Datapath::unfinished() const {
  return doorbells_.left_over() || !schedule_.idle() || tx_.queues().waiting() || next_hops_.changed() || looped() ||
         (wire_ != nullptr && wire_->left_over());
}

// --- QPs ------------------------------------------------------------------------------------------------------------

int Datapath::modify(Qp& qp, const transport::QpAttributes& attributes, uint32_t mask, std::optional<Path> path,
                     Time now) {
  if (mask & transport::kQpState) tx_.settle_ack(qp, now);
  const int error = qp.transport->modify(attributes, mask, now);
  if (error == 0 && path) {
    qp.stop_waiting();
    qp.transport->share_probes(path->to->probes);
    share_runs(qp, *path);
    qp.transport->obey(&path->to->congestion);
    qp.path = std::move(*path);
  }
  const transport::QpState state = qp.transport->state();
  // The application has its memory back, so what has not left must not leave any more.
  const bool ended = state == transport::QpState::kReset || state == transport::QpState::kErr;
  if (error == 0 && ended) forget_waiting_packets(qp);
  if (error == 0 && state == transport::QpState::kReset) {
    purge_completions(qp);
    qp.answer_habit = {};
  }
  schedule_.reschedule(qp, now);
  return error;
}

// UC and UD have no window that runs would make longer, and hear of no loss.
void Datapath::share_runs(Qp& qp, const Path& path) const {
  const transport::QpType type = qp.transport->type();
  const bool reliable = type != transport::QpType::kUc && type != transport::QpType::kUd;
  const uint32_t middle = wire::kUdpSize + wire::kBthSize + qp.transport->attributes().path_mtu + wire::kIcrcSize;
  const bool stays_here = tables_.stays_here(path, qp.transport->attributes().dest_qpn);
  const size_t run = reliable && !stays_here ? wire_->run(middle) : 1;
  qp.transport->share_runs(run > 1 ? &path.to->runs : nullptr, static_cast<uint32_t>(run));
}

void Datapath::remove(Qp& qp, Time now) {
  answer_doorbells(SIZE_MAX, now);
  tx_.settle_ack(qp, now);
  forget_waiting_packets(qp);
  qp.stop_waiting();
  schedule_.remove(qp);
  qp.all_hook.unlink();
  purge_completions(qp);
}

// Takes the QP's completions out of its queues.
void Datapath::purge_completions(Qp& qp) {
  queue::CompletionQueue *const send_cq = qp.send_cq, *const recv_cq = qp.recv_cq;
  if (send_cq != nullptr) qp.transport->purge(*send_cq);
  if (recv_cq != nullptr && recv_cq != send_cq) qp.transport->purge(*recv_cq);
}

}  // namespace uroce::engine
