// SPDX-License-Identifier: BSD-2-Clause
// The asynchronous events that an object can report: one source for each type of event.
#pragma once

#include <array>
#include <cstddef>
#include <infiniband/verbs.h>

#include "abi/verbs/event_queue.h"

namespace uroce::verbs {

struct AsyncSource : EventSource {
  ibv_async_event event{};  // does not change any more
};

template <ibv_event_type... kTypes>
class AsyncSources {
 public:
  explicit AsyncSources(decltype(ibv_async_event::element) element) {
    size_t i = 0;
    ((sources_[i].event = {element, kTypes}, ++i), ...);
  }

  // Null: the object has no such events.
  AsyncSource* find(ibv_event_type type) {
    for (AsyncSource& source : sources_) {
      if (source.event.event_type == type) return &source;
    }
    return nullptr;
  }

  void leave(EventQueue& queue) {
    for (AsyncSource& source : sources_) queue.purge(source);
  }

 private:
  std::array<AsyncSource, sizeof...(kTypes)> sources_;
};

using DeviceSources =
    AsyncSources<IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE>;
using QpSources = AsyncSources<IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
                               IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED>;
using CqSources = AsyncSources<IBV_EVENT_CQ_ERR>;
using SrqSources = AsyncSources<IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED>;

}  // namespace uroce::verbs
