// SPDX-License-Identifier: BSD-2-Clause
// Follows new requests in PSN order through their messages: may this packet come next, has it the size it must have
// (IBTA 9.7.3.2, 9.7.3.3, 9.7.4.1). The requester judge finds violations with it, the responder judge what the endpoint
// must refuse. A small value: copied to go back to an earlier state.
#pragma once

#include <cstdint>
#include <optional>

#include "oracle/context.h"

namespace uroce::oracle {

class MessageSequence {
 public:
  // `beginning`: the next packet begins a message. Else it may be anywhere in one (a capture that begins in the
  // middle).
  explicit MessageSequence(bool beginning = true) : known_(beginning) {}

  // Takes the next packet, and tells the first thing that is wrong with it. Learns the path MTU.
  std::optional<Packet::Finding> next(const Request& request, Context& context);

  // After next() of a message's last packet: bytes of the whole message; nothing if its beginning was not seen.
  std::optional<uint64_t> message_size() const { return size_known_ ? std::optional(bytes_) : std::nullopt; }

 private:
  std::optional<Packet::Finding> judge_place(const Request& request) const;
  std::optional<Packet::Finding> judge_size(const Request& request, Context& context) const;

  bool known_;               // whether a message is under way
  bool inside_ = false;      // a message is
  bool size_known_ = false;  // its first packet was seen
  wire::Operation operation_ = wire::Operation::kNone;
  uint64_t bytes_ = 0;      // of it so far
  uint64_t announced_ = 0;  // its RETH length, if it is a WRITE
};

}  // namespace uroce::oracle
