// SPDX-License-Identifier: BSD-2-Clause
// What QPs and SRQs are made of, and what they tell their owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/time.h"
#include "engine/queue/completion_queue.h"
#include "engine/transport/common/qp_state.h"

namespace uroce::engine {

// An asynchronous event and what it concerns.
struct EventSubject {
  transport::AsyncEvent event;
  void* qp_context = nullptr;  // QpInit::context, for QP events
  queue::CompletionQueue* cq = nullptr;
  void* srq_context = nullptr;  // SrqInit::context, for SRQ events
};
using EventHandler = std::function<void(const EventSubject&)>;

class Srq;

struct QpInit {
  transport::QpType type = transport::QpType::kRc;
  uint32_t pd = 0;    // none for XRC targets
  uint32_t xrcd = 0;  // XRC targets only: the XRC domain
  uint32_t max_send_wr = 1, max_recv_wr = 1, max_send_sge = 1, max_recv_sge = 1, max_inline = 0;
  bool signal_all = false;
  bool block_own_multicast = false;           // UD: takes no copies of what it sends to groups it is in
  bool gsi = false;                           // UD: QP1, to which management datagrams go (IBTA 13.5)
  queue::CompletionQueue* send_cq = nullptr;  // outlive the QP; null where the type has none (XRC)
  queue::CompletionQueue* recv_cq = nullptr;
  Duration patience{};  // a peer that is away is waited for so long at least, whatever timeout and retry count say
  Srq* srq = nullptr;   // instead of a receive queue of its own; outlives the QP
  std::byte *send_memory = nullptr, *receive_memory = nullptr;  // for the queues (queue/work_queue.h); outlive the QP
  EventHandler* events = nullptr;  // outlives the QP; called under a shard's lock: must not call the engine
  void* context = nullptr;
};

struct SrqInit {
  uint32_t pd = 0;
  uint32_t xrcd = 0;  // 0: not for XRC
  uint32_t max_wr = 1, max_sge = 1;
  std::byte* memory = nullptr;           // as QpInit::receive_memory
  queue::CompletionQueue* cq = nullptr;  // XRC: where its receives complete; outlives the SRQ
  EventHandler* events = nullptr;        // as QpInit::events
  void* context = nullptr;
};

}  // namespace uroce::engine
