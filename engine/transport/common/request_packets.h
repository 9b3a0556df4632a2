// SPDX-License-Identifier: BSD-2-Clause
// Request packets from WQEs: headers, and the gather list of the payload. A packet is a function of its WQE, its place
// in the message and its PSN alone, so sending again needs no copies. For requesters of all transports.
#pragma once

#include <cstdint>

#include "engine/io/tx_packet.h"
#include "engine/transport/common/qp_context.h"
#include "wire/opcode.h"

namespace uroce::transport {

class RequestPackets {
 public:
  explicit RequestPackets(QpContext& qp) : qp_(qp) {}

  // The request packet at PSN `psn` of a WQE that was begun. SENDs and WRITEs ask for an acknowledgement if
  // `ack_request`, all others bring an answer anyway. `psns`: of a SEND or WRITE, those that it takes. False: an SGE
  // does not pass its checks.
  bool request(const queue::SendQueue::Entry& entry, wire::Psn psn, uint32_t psns, bool ack_request, io::TxPacket& out);
  // Packet `n` of the `count` that a SEND or WRITE has, and as one with it those up to `n` + `psns`.
  bool message(const queue::SendQueue::Entry& entry, uint32_t n, uint32_t psns, uint32_t count, wire::Psn psn,
               bool ack_request, io::TxPacket& out);
  // How many packets behind `out`, which is packet `n` of a SEND or WRITE, differ from it in PSN and place only.
  uint32_t repeatable_behind(const queue::SendQueue::Entry& entry, uint32_t n, const io::TxPacket& out) const;
  // Packets from PSN `first` on that differ from the one before them in PSN and place only. They ask for no
  // acknowledgement. The same for READ responses.
  static void repeat(const io::TxPacket& previous, wire::Psn first, std::span<io::TxPacket> out);

 private:
  void read(const queue::SendQueue::Entry& entry, uint32_t n, wire::Psn psn, io::TxPacket& out);
  void atomic(const queue::SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out);
  bool atomic_write(const queue::SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out);
  void flush(const queue::SendQueue::Entry& entry, wire::Psn psn, io::TxPacket& out);
  bool gather(const queue::SendQueue::Entry& entry, uint32_t offset, uint32_t size, io::TxPacket& out);
  struct Flags {
    bool solicited = false;
    bool ack_request = true;
  };
  // BTH, and what every request of the transport has behind it: DETH, XRCETH. `operation`: an RC opcode.
  void begin(const queue::SendWqe& wqe, wire::Opcode operation, wire::Psn psn, Flags flags, io::TxPacket& out);

  QpContext& qp_;
};

// What an endpoint sends of its own: BTH with the fields that native HCAs set, for opcode `operation` of the QP's
// transport (an RC opcode).
void emit_bth(const QpContext& qp, wire::Opcode operation, wire::Psn psn, io::TxPacket& out);

}  // namespace uroce::transport
