// SPDX-License-Identifier: BSD-2-Clause
// Completion channels: descriptors that become readable when an armed CQ gets a completion.

#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <new>
#include <unistd.h>

#include "abi/verbs/objects.h"
#include "abi/verbs/orphan.h"

namespace uroce::verbs {

void Channel::on_completion(queue::CompletionQueue& cq) {
  events.push(static_cast<Cq&>(cq));
}

engine::Waited Channel::wait(engine::Engine& engine) {
  const auto look = [this](const std::function<void()>& rounds) {
    const EventQueue::Taker taker(events);
    rounds();
    return events.pending();
  };
  return engine.wait_for_event(look, fd);
}

namespace {

// What looks like an event and cannot be taken is looked at so often: the application may have made the descriptor
// another's, and before Linux 5.8 a token is taken by read() alone.
constexpr int kMostLooks = 16;

}  // namespace

}  // namespace uroce::verbs

using namespace uroce::verbs;
using uroce::engine::Engine;
using uroce::engine::Waited;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (orphaned(context)) return fail(EIO);
  Channel* channel = nullptr;
  const int error = without_exceptions([&] {
    auto created = std::make_unique<Channel>();
    created->context = context;
    if (const int failure = created->events.open(created->fd)) return failure;
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
  ::close(channel.fd);
  drop_user(from(channel.context));
  delete &channel;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* verbs, ibv_cq** cq, void** cq_context) {
  Channel& channel = from(verbs);
  // What the descriptor counts is the parent's to take.
  if (orphaned(channel.context)) return fail_minus_one(EIO);
  Engine& engine = *from(channel.context).engine;
  const auto hand_out = [&](EventSource& source) {
    Cq& taken = static_cast<Cq&>(source);
    ++taken.completion_events_taken;
    *cq = ibv_cq_ex_to_cq(&taken);
    *cq_context = taken.cq_context;
  };
  for (int looks = 0; looks < kMostLooks; ++looks) {
    if (channel.events.try_take(hand_out)) return 0;
    const int flags = ::fcntl(channel.fd, F_GETFL);
    if (flags < 0) return -1;
    if ((flags & O_NONBLOCK) != 0) break;
    switch (channel.wait(engine)) {
      case Waited::kLook:
        continue;
      case Waited::kInterrupted:
        return fail_minus_one(EINTR);
      case Waited::kUnable:
        looks = kMostLooks;
    }
  }
  engine.expect_sleep();
  return channel.events.take(channel.fd, hand_out) ? 0 : -1;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  if (orphaned(cq->context)) return;
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, nevents);
}

}  // extern "C"
