// What a device has once, however many datapaths serve its QPs: the tables in which packets and work requests find what
// they name. Owned by the engine. Datapaths read them under the progress lock; set-up calls change them under it. The
// one change that a round makes is to memory windows, which work requests bind and invalidate.
//
// Where a device has several datapaths, each with a lock of its own, the tables are read under any of the locks and
// changed under all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/limits.h"
#include "engine/memory/mr_table.h"
#include "engine/objects/address_handles.h"
#include "engine/objects/multicast_groups.h"
#include "engine/objects/qpn_space.h"
#include "engine/objects/srq.h"
#include "wire/envelope.h"

namespace uroce::engine {

struct Tables {
  // `random` gives 32 uniformly distributed bits: keys and QP numbers cannot be guessed.
  explicit Tables(const std::function<uint32_t()>& random)
      : regions(random), qpns(draw_first_qpn(random), Limits::kMaxQp, random) {}

  memory::MrTable regions;
  QpnSpace qpns;
  SrqTable srqs;
  AddressHandles address_handles;
  MulticastGroups groups;
  std::vector<wire::IpAddress> addresses;  // of the netdev: what datagrams are for

 private:
  // QPNs 0 and 1 and the multicast QPN stay out of the range wherever it lies.
  static uint32_t draw_first_qpn(const std::function<uint32_t()>& random) {
    const uint32_t ranges = (1u << 24) / Limits::kMaxQp;
    return (1 + random() % (ranges - 2)) * Limits::kMaxQp;
  }
};

}  // namespace uroce::engine
