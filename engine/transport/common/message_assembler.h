// SPDX-License-Identifier: BSD-2-Clause
// The message of SENDs or WRITEs that is arriving: whether the next packet continues it, and its bytes on their way
// into a receive request or into memory. What to tell the peer of a packet that does not fit is the caller's matter:
// the responder's of an RC QP, or a UC QP.
#pragma once

#include <cstdint>
#include <span>

#include "engine/transport/common/receive_request.h"
#include "wire/packet.h"

namespace uroce::transport {

// What became of a packet. All but the first two leave the message where it was.
enum class Arrival : uint8_t {
  kTaken,
  kCompletionLost,  // taken as well, but the completion queue was full
  kNoReceive,       // it needs a receive request, and there is none
  kTooLong,         // for the receive request
  kReceiveMemory,   // an SGE of the receive request does not allow it
  kNotInvalidated,  // the key that it names is none that the peer may invalidate
  kWriteLength,     // not what its RETH announced
  kNoAccess,        // for the peer to that memory
  kMemoryLost,      // the application unmapped or protected it
};

class MessageAssembler {
 public:
  MessageAssembler(QpContext& qp, ReceiveRequest& receive) : qp_(qp), receive_(receive) {}

  bool under_way() const { return kind_ != Kind::kNone; }
  void abandon() { kind_ = Kind::kNone; }

  // IBTA 9.7.4.1.2: begins a message where none is under way, or continues the one that is.
  bool in_sequence(const wire::Packet& packet) const {
    return kind_ == (packet.info->first ? Kind::kNone : kind_of(packet));
  }
  // Of a SEND or WRITE. IBTA 9.7.4.1.6: First and Middle are full and unpadded, Last is not empty, nothing is longer
  // than the path MTU.
  bool length_valid(const wire::Packet& packet) const;

  // The next packet of a SEND or WRITE: in sequence and of a valid length.
  Arrival take(const wire::Packet& packet);
  // Packets behind a middle one, as TransportQp::on_middle_packets() has them, at once. False: they are to be taken one
  // by one; some of their bytes may be in memory already.
  bool take_middle_packets(const wire::Packet& previous, std::span<const uint8_t* const> payloads);

 private:
  enum class Kind : uint8_t { kNone, kSend, kWrite };
  static Kind kind_of(const wire::Packet& packet) {
    return packet.info->operation == wire::Operation::kSend ? Kind::kSend : Kind::kWrite;
  }

  bool has_receive() { return receive_ || receive_.take(); }
  Arrival send(const wire::Packet& packet);
  Arrival write(const wire::Packet& packet);
  bool fits_write(const wire::Packet& packet);
  bool write_middle_packets(std::span<const uint8_t* const> payloads, size_t size) const;
  Arrival complete(const wire::Packet& packet);

  QpContext& qp_;
  ReceiveRequest& receive_;
  wire::Reth reth_{};      // of the WRITE
  uint32_t received_ = 0;  // bytes of the message so far
  Kind kind_ = Kind::kNone;
};

}  // namespace uroce::transport
