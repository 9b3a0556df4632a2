// SPDX-License-Identifier: BSD-2-Clause
// Asynchronous events from the engine to ibv_get_async_event.
#pragma once

#include "abi/verbs/objects.h"

namespace uroce::verbs {

// Called by the engine, under its progress lock. Ignores QPs, CQs and SRQs of other contexts.
// EventSubject::srq_context is the Srq.
void queue_event(Context& context, const engine::EventSubject& event);

// Before a CQ, QP or SRQ is destroyed: drops its pending events and waits until those handed out are acknowledged.
void drain_events(Cq& cq);
void drain_events(Qp& qp);
void drain_events(Srq& srq);

}  // namespace uroce::verbs
