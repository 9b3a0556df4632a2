// SPDX-License-Identifier: BSD-2-Clause
// Shared receive queues, and the table by which XRC requests find theirs. Under the progress lock, except posting.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "engine/objects/init.h"
#include "engine/transport/common/qp_context.h"

namespace uroce::engine {

class Srq final : public queue::ReceiveQueue {
 public:
  Srq(const SrqInit& settings, uint32_t number)
      : ReceiveQueue(settings.max_wr, settings.max_sge, settings.memory),
        init(settings),
        srqn(number),
        target{this, settings.cq, settings.pd, settings.pd} {}

  void report(transport::AsyncEvent event) {
    if (init.events != nullptr) (*init.events)({.event = event, .srq_context = init.context});
  }

  const SrqInit init;
  std::optional<uint32_t> shard;  // of the QPs that use it; none yet
  const uint32_t srqn;
  const transport::ReceiveTarget target;
};

class SrqTable final : public transport::XrcSrqs {
 public:
  // A number that no other has, 1 .. 2^24-1. 0: all are in use.
  uint32_t next_number() {
    for (uint32_t tries = 0; tries < wire::kMask24; ++tries) {
      last_ = last_ % wire::kMask24 + 1;
      if (!by_number_.contains(last_)) return last_;
    }
    return 0;
  }
  void add(Srq& srq) { by_number_.emplace(srq.srqn, &srq); }
  void remove(const Srq& srq) { by_number_.erase(srq.srqn); }

  const transport::ReceiveTarget* find(uint32_t xrcd, uint32_t srqn) const override {
    const auto it = by_number_.find(srqn);
    return it != by_number_.end() && it->second->init.xrcd == xrcd ? &it->second->target : nullptr;
  }

 private:
  std::unordered_map<uint32_t, Srq*> by_number_;
  uint32_t last_ = 0;
};

}  // namespace uroce::engine
