// Where a WRITE of several packets goes. For responders of connected transports.
#pragma once

#include <cstdint>
#include <span>

#include "engine/memory/memory_access.h"
#include "engine/transport/common/qp_context.h"
#include "wire/packet.h"

namespace uroce::transport {

class WriteTarget {
 public:
  enum class Result : uint8_t { kOk, kNoAccess, kMemoryLost };

  explicit WriteTarget(QpContext& qp) : qp_(qp) {}

  // Takes the next packet's length into account; false: it does not go with the message's.
  bool fits(const wire::Packet& packet) {
    if (packet.info->first) {
      if (packet.reth.length > uint64_t{1} << 31) return false;  // IBTA 9.7.4.1.5
      reth_ = packet.reth;
      received_ = 0;
    }
    const uint64_t end = received_ + packet.payload.size();
    return packet.info->last ? end == reth_.length : end < reth_.length;
  }

  // Writes the payload of a packet that fits. The whole range is checked with the first packet, so that a bad WRITE
  // touches nothing, and every packet's own part again, because the region may be gone by then. Zero bytes check
  // nothing (IBTA C9-88).
  Result place(const wire::Packet& packet) {
    const auto size = static_cast<uint32_t>(packet.payload.size());
    if (reth_.length != 0) {
      const memory::Translation t =
          qp_.mrs.translate_remote(reth_.rkey, qp_.receive.pd, qp_.qpn.value(), reth_.va + received_,
                                   packet.info->first ? reth_.length : size, memory::kRemoteWrite);
      const bool allowed = (qp_.attr.access & memory::kRemoteWrite) != 0;
      if (!allowed || t.result != memory::AccessResult::kOk) return Result::kNoAccess;
      if (!memory::copy(t.address, packet.payload.data(), size)) return Result::kMemoryLost;
    }
    received_ += size;
    return Result::kOk;
  }

  uint32_t received() const { return received_; }  // bytes of the message so far

 private:
  QpContext& qp_;
  wire::Reth reth_{};
  uint32_t received_ = 0;
};

}  // namespace uroce::transport
