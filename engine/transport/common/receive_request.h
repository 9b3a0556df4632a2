// SPDX-License-Identifier: BSD-2-Clause
// The receive request that an arriving message has taken: where its payload goes, and the completion in the end. For
// responders of all transports.
#pragma once

#include <cstdint>
#include <span>

#include "engine/transport/common/qp_context.h"
#include "wire/packet.h"

namespace uroce::transport {

class ReceiveRequest {
 public:
  explicit ReceiveRequest(QpContext& qp) : qp_(qp) {}

  explicit operator bool() const { return taken_; }
  uint32_t length() const { return wqe_.length; }  // bytes it has room for

  // Takes the next one of qp.receive. False: there is none. Tells of a shared queue's limit.
  bool take();
  // Forgets it without completion (QP to RESET).
  void drop() { taken_ = false; }
  // The same, if it is of this queue, which is about to go.
  void drop_if_of(const queue::ReceiveQueue& rq) { taken_ = taken_ && from_.rq != &rq; }

  // Copies `data` to message offset `offset`, within length(). False: an SGE does not allow it, which is a local
  // protection error.
  bool place(uint32_t offset, std::span<const uint8_t> data);
  bool place_pieces(uint32_t offset, std::span<const uint8_t* const> pieces, size_t size);  // as scatter_pieces()

  // Ends it with an error.
  Outcome fail(queue::WcStatus status);
  // The message is complete with `packet`; `length` bytes count for the application.
  Outcome complete(const wire::Packet& packet, uint32_t length);
  // Completes it and all others with a flush error, in order; of a shared queue only the one in use.
  void flush();

 private:
  Outcome push(queue::Cqe cqe);

  QpContext& qp_;
  bool taken_ = false;
  ReceiveTarget from_{};
  queue::ReceiveWqe wqe_;
};

}  // namespace uroce::transport
