// SPDX-License-Identifier: BSD-2-Clause
// What a device has once, however many shards serve its QPs: the tables in which packets and work requests find what
// they name. Owned by the engine. Read under the lock of any shard, changed by set-up calls under the locks of all of
// them. The one change that a round makes is to memory windows, which work requests bind and invalidate
// (MrTable::use_windows).
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <vector>

#include "engine/memory/mr_table.h"
#include "engine/objects/address_handles.h"
#include "engine/objects/limits.h"
#include "engine/objects/multicast_groups.h"
#include "engine/objects/path.h"
#include "engine/objects/qpn_space.h"
#include "engine/objects/srq.h"
#include "wire/envelope.h"

namespace uroce::engine {

struct Tables {
  // For so many shards, a power of two. `random` gives 32 uniformly distributed bits: keys and QP numbers cannot be
  // guessed.
  explicit Tables(const std::function<uint32_t()>& random, uint32_t shards = 1) : regions(random), random_(random) {
    const uint32_t count = Limits::kMaxQp * shards;
    // QPNs 0 and 1 and the multicast QPN stay out of the range wherever it lies.
    qpn_range = {(1 + random() % ((1u << 24) / count - 2)) * count, count};
    for (uint32_t shard = 0; shard < shards; ++shard) qpns.push_back(space_of(shard, shards));
  }

  // These are the device's QP numbers, of which a broker knows; other processes have QPs at the same addresses. Before
  // the first QP, under the locks of all shards. `shards`: of which there are to be QPs, a power of two.
  void number_qps(const QpnRange& range, uint32_t shards) {
    assert(qp_count() == 0 && shards <= qpns.size());
    qpn_range = range;
    shares_addresses = true;
    for (uint32_t shard = 0; shard < shards; ++shard) qpns[shard] = space_of(shard, shards);
  }
  // Packets on this path to QP `remote` do not leave the process.
  bool stays_here(const Path& path, wire::Qpn remote) const {
    return path.loopback() && (!shares_addresses || qpn_range.contains(remote));
  }

  size_t qp_count() const {
    return std::accumulate(qpns.begin(), qpns.end(), size_t{0},
                           [](size_t sum, const QpnSpace& space) { return sum + space.used(); });
  }

  memory::MrTable regions;
  QpnRange qpn_range;
  bool shares_addresses = false;  // with other processes of this host
  std::deque<QpnSpace> qpns;      // of the shards
  SrqTable srqs;
  AddressHandles address_handles;
  MulticastGroups groups;
  std::vector<wire::IpAddress> addresses;  // of the netdev: what datagrams are for

 private:
  QpnSpace space_of(uint32_t shard, uint32_t shards) const {
    return {qpn_range.first + shard, qpn_range.count / shards, random_, shards};
  }

  const std::function<uint32_t()> random_;
};

}  // namespace uroce::engine
