// SPDX-License-Identifier: BSD-2-Clause
// How the work of a device is spread over its shards (datapath/shard.h).

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>
#include <utility>

#include "engine/device/device.h"
#include "engine/io/memory_link.h"

namespace uroce::engine {

// As many shards as packet I/Os have been opened. Caller holds `setup`.
void Device::attach(OpenedIo& opened) {
  const auto shards = static_cast<uint32_t>(opened.io.size());
  assert(std::has_single_bit(shards) && shards <= tables.qpns.size());
  if (opened.loops.empty()) {
    io::MemoryEnds loops = io::make_memory_loops(shards);
    opened.loops.assign(std::make_move_iterator(loops.begin()), std::make_move_iterator(loops.end()));
  }
  assert(opened.loops.size() == shards);
  Progress::Guard guard(progress);
  tables.addresses = netdev_.addresses;
  if (opened.qpns) tables.number_qps(*opened.qpns, shards);
  max_qp_.store(std::min(tables.qpn_range.count, Limits::kMaxQp));
  max_groups_.store(opened.max_groups);
  for (uint32_t i = 0; i < shards; ++i) {
    if (i > 0) {
      destinations_.emplace_back(options_.congestion);
      progress.add(std::make_unique<Datapath>(tables, i));
    }
    progress.shard(i).datapath().attach(
        std::move(opened.io[i]), [this] { progress.wake(); }, std::move(opened.loops[i]));
  }
  opened.io.clear();
  opened.loops.clear();
}

// Completion queues come to shards by turns, and QPs go with them: a program whose threads have queues of their own has
// its QPs on several shards, and others need no more than one.
uint32_t Device::choose_shard(queue::CompletionQueue& cq) {
  if (cq.shards() == 0) cq.add_shard(next_home_++ % progress.shard_count());
  return cq.home();
}

// All QPs of a shared receive queue are in one shard, which is its only consumer. Address handles and multicast groups
// are shard 0's, and so is XRC, whose requests name the shared receive queues of any QP.
uint32_t Device::choose_shard(const QpInit& init) {
  using transport::QpType;
  uint32_t shard = 0;
  if (init.type == QpType::kRc || init.type == QpType::kUc) {
    const bool with_others = init.srq != nullptr && init.srq->shard;
    shard = with_others ? *init.srq->shard : choose_shard(init.recv_cq != nullptr ? *init.recv_cq : *init.send_cq);
  }
  if (init.srq != nullptr) init.srq->shard = shard;
  for (queue::CompletionQueue* const cq : {init.send_cq, init.recv_cq}) {
    if (cq != nullptr) cq->add_shard(shard);
  }
  return shard;
}

CounterSums Device::counters() const {
  CounterSums sums;
  for (uint32_t i = 0; i < progress.shard_count(); ++i) sums.add(progress.shard(i).datapath().counters());
  return sums;
}

}  // namespace uroce::engine
