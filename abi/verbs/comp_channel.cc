// SPDX-License-Identifier: BSD-2-Clause
// Completion channels: descriptors that become readable when an armed CQ gets a completion.

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <new>
#include <sys/epoll.h>
#include <unistd.h>

#include "abi/channel_mark.h"
#include "abi/verbs/cq.h"
#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"
#include "abi/verbs/return_habit.h"
#include "abi/verbs/single_wait.h"
#include "base/clock.h"

namespace uroce::verbs {

namespace {

[[gnu::tls_model("initial-exec")]] thread_local ReturnHabit return_habit;
[[gnu::tls_model("initial-exec")]] thread_local SingleWait single_wait;

}  // namespace

void Channel::on_completion(queue::CompletionQueue& cq) {
  events.push(static_cast<Cq&>(cq));
}

int Channel::open() {
  if (const int error = events.open(); error != 0) return error;
  UniqueFd made(::epoll_create1(EPOLL_CLOEXEC));
  if (!made) return errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kChannelMark;
  if (::epoll_ctl(made.get(), EPOLL_CTL_ADD, events.descriptor(), &event) != 0) return errno;
  set = std::make_shared<engine::PollSet>(fd, events.descriptor());
  fd = made.release();
  return 0;
}

bool Channel::look_for_event(const std::function<void()>& rounds) {
  const EventQueue::Taker taker(events);
  rounds();
  return events.pending();
}

engine::Waited Channel::wait(engine::Engine& engine) {
  const auto look = [this](const std::function<void()>& rounds) { return look_for_event(rounds); };
  return engine.wait_for_event(look, events.descriptor());
}

bool Channel::leave(engine::Engine& engine) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0) {
    block(engine);
    return false;
  }
  polled.store(true, std::memory_order_relaxed);
  if (!attends(engine)) return comes_back();
  if (!comes_back()) engine.leave(set, false);
  return true;
}

void Channel::attend(engine::Engine& engine) {
  polled.store(true, std::memory_order_relaxed);
  set->note_no_event();
  if (is_to_be_polled()) return;
  if (!attends(engine)) {
    if (!tell_early(engine) && !comes_back()) engine.expect_sleep();
    return;
  }
  const engine::LookForEvent look = [this](const std::function<void()>& rounds) { return look_for_event(rounds); };
  if (engine.serve_stream(look, true)) return;
  return_habit.has_not_come();
  const bool others = of_all.pending.load(std::memory_order_relaxed) > 0;
  if (single_wait.ends(this, of_all.taken(), monotonic_now())) engine.note_one_by_one();
  if ((!others && engine.linger(look, true)) || tell_early(engine)) return;
  single_wait.asked(this, of_all.pending.load(std::memory_order_relaxed), of_all.taken(), monotonic_now());
  engine.leave(set, true);
}

bool Channel::comes_back() {
  return of_all.pending.load(std::memory_order_relaxed) > 0 && return_habit.expects(monotonic_now());
}

bool Channel::tell_early(engine::Engine& engine) {
  if (!set->has_told_of_packets() || set->bears_no_event()) return false;
  const std::lock_guard lasting(queues_mutex);
  const auto found = std::find_if(queues.begin(), queues.end(), [](const Cq* cq) { return cq->armed(); });
  if (found == queues.end()) engine.release_packets(*set);  // until one is armed
  Cq* const armed = found == queues.end() ? nullptr : *found;
  return look_for_event([&engine, armed] { engine.report_early(armed); });  // std::function holds no more
}

bool Channel::is_to_be_polled() {
  if (taken_of.load(std::memory_order_relaxed) == nullptr || !set->bears_no_event()) return false;
  const std::lock_guard lasting(queues_mutex);
  const Cq* const cq = taken_of.exchange(nullptr, std::memory_order_relaxed);
  return cq != nullptr && !cq->empty();
}

void Channel::forget_taken(Cq& cq) {
  const std::lock_guard forgetting(queues_mutex);
  Cq* last = &cq;
  taken_of.compare_exchange_strong(last, nullptr, std::memory_order_relaxed);
}

void Channel::add(Cq& cq) {
  const std::lock_guard adding(queues_mutex);
  queues.push_back(&cq);
}

void Channel::remove(Cq& cq) {
  const std::lock_guard removing(queues_mutex);
  std::erase(queues, &cq);
}

// As hardware has it, a descriptor that blocks is readable only when there is an event.
void Channel::block(engine::Engine& engine) {
  if (polled.load(std::memory_order_relaxed) && polled.exchange(false)) engine.release_packets(*set);
}

}  // namespace uroce::verbs

using namespace uroce::verbs;
using uroce::engine::Engine;
using uroce::engine::Waited;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (refuses_orphan(context)) return fail(EIO);
  Channel* channel = nullptr;
  const int error = without_exceptions([&] {
    auto created = std::make_unique<Channel>();
    created->context = context;
    created->origin = from(context).engine;
    if (const int failure = created->open()) return failure;
    channel = created.release();
    return 0;
  });
  if (error != 0) return fail(error);
  ++from(context).users;
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* verbs) {
  const uroce::NoCancellation uncancelled;
  Channel& channel = from(verbs);
  if (orphaned(channel.context)) {
    ::close(channel.fd);
    return abandon(channel);
  }
  if (channel.users != 0) return answer(EBUSY);
  if (const auto engine = channel.origin.lock()) engine->release_packets(*channel.set);
  ::close(channel.fd);
  drop_user(from(channel.context));
  delete &channel;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* verbs, ibv_cq** cq, void** cq_context) {
  Channel& channel = from(verbs);
  // What the descriptor counts is the parent's to take.
  if (refuses_orphan(channel.context)) return fail_minus_one(EIO);
  Engine& engine = *from(channel.context).engine;
  Cq* taken = nullptr;
  const auto hand_out = [&](EventSource& source) {
    taken = static_cast<Cq*>(&source);
    ++taken->completion_events_taken;
    *cq = ibv_cq_ex_to_cq(taken);
    *cq_context = taken->cq_context;
  };
  while (!channel.events.try_take(hand_out)) {
    const int flags = ::fcntl(channel.fd, F_GETFL);
    if (flags < 0) return -1;
    if ((flags & O_NONBLOCK) != 0) {
      channel.attend(engine);
      if (!channel.events.try_take(hand_out)) return fail_minus_one(EAGAIN);
      break;
    }
    channel.block(engine);
    if (channel.wait(engine) == Waited::kInterrupted) return fail_minus_one(EINTR);
  }
  if (channel.polled.load(std::memory_order_relaxed)) {
    channel.set->note_event();
    channel.taken_of.store(taken, std::memory_order_relaxed);
    note_event_taken(*taken);
    const uroce::Time now = uroce::monotonic_now();
    return_habit.taken(now);
    if (single_wait.ends(&channel, Channel::of_all.taken() - 1, now)) engine.note_one_by_one();
    Engine::end_wait();
  }
  return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  if (orphaned(cq->context)) return;
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, nevents);
}

}  // extern "C"
