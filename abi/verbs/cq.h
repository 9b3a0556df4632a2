// SPDX-License-Identifier: BSD-2-Clause
// What ibv_create_cq and ibv_create_cq_ex share.
#pragma once

#include "abi/verbs/objects.h"

namespace uroce::verbs {

struct CqRequest {
  uint32_t entries = 0;
  void* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  uint32_t vector = 0;
  queue::CompletionQueue::Overrun overrun = queue::CompletionQueue::Overrun::kFail;
  queue::CompletionQueue::Consumers consumers = queue::CompletionQueue::Consumers::kMany;
  Pd* parent_domain = nullptr;
};

// Null with errno set on failure.
Cq* create_cq(ibv_context* context, const CqRequest& request);

}  // namespace uroce::verbs
