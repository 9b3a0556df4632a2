// SPDX-License-Identifier: BSD-2-Clause
// Why a packet is sent: set by the transport for every packet, read by the capture stage, which writes it beside the
// packet. An enum on the packet path; the words are for whoever reads a capture.
#pragma once

#include <cstdint>

namespace uroce::io {

// name, text for people
#define UROCE_SEND_REASONS(X)                                                                  \
  X(kFirst, "")                                                                                \
  X(kTimeout, "retransmission: the transport timer expired")                                   \
  X(kProbe, "retransmission: early, before the transport timer (probe)")                       \
  X(kPsnNak, "retransmission: NAK, PSN sequence error")                                        \
  X(kImpliedNak, "retransmission: a response is missing (implied NAK)")                        \
  X(kRnrNak, "retransmission: the wait that an RNR NAK asked for is over")                     \
  X(kAnswerAgain, "response again: the request came again")                                    \
  X(kAckAgain, "ACK again: a request came again")                                              \
  X(kCnp, "CNP: packets came with a congestion mark")                                          \
  X(kNakGap, "NAK: a PSN is missing, this one is expected")                                    \
  X(kNakNoReceive, "RNR NAK: no receive request is posted")                                    \
  X(kNakOpcodeSequence, "NAK: the opcode does not continue the message")                       \
  X(kNakPacketLength, "NAK: the packet's length does not fit its opcode and the path MTU")     \
  X(kNakNoSrq, "NAK: no such shared receive queue in the XRC domain")                          \
  X(kNakOperation, "NAK: not an operation of this transport")                                  \
  X(kNakReceiveLength, "NAK: the message is longer than the receive request")                  \
  X(kNakReceiveMemory, "NAK: the receive request's memory cannot be written")                  \
  X(kNakInvalidate, "NAK: the key to invalidate cannot be invalidated")                        \
  X(kNakWriteLength, "NAK: the WRITE's data does not fit the length it announced")             \
  X(kNakAccess, "NAK: rkey, address range or access rights refuse the request")                \
  X(kNakMemoryLost, "NAK: registered memory is not mapped any more")                           \
  X(kNakDepth, "NAK: longer than a READ may be, or more at a time than max_dest_rd_atomic")    \
  X(kNakAtomic, "NAK: misaligned or wrongly sized, or more at a time than max_dest_rd_atomic") \
  X(kNakFlush, "NAK: not a kind of FLUSH, or more at a time than max_dest_rd_atomic")

enum class SendReason : uint8_t {
#define X(name, text) name,
  UROCE_SEND_REASONS(X)
#undef X
      kCount
};

constexpr const char* text(SendReason reason) {
  constexpr const char* kTexts[] = {
#define X(name, text) text,
      UROCE_SEND_REASONS(X)
#undef X
  };
  return reason < SendReason::kCount ? kTexts[static_cast<uint8_t>(reason)] : "";
}

}  // namespace uroce::io
