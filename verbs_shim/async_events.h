// Asynchronous events from the engine to ibv_get_async_event.
#pragma once

#include "verbs_shim/objects.h"

namespace uroce::verbs {

// Called by the engine, under its progress lock. Ignores QPs and CQs of other contexts.
void queue_event(Context& context, const engine::EventSubject& event);

// Before a CQ, QP or SRQ is destroyed: drops its pending events and waits until those handed out are acknowledged.
void drain_events(Cq& cq);
void drain_events(Qp& qp);
void drain_events(Srq& srq);

}  // namespace uroce::verbs
