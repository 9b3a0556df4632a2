// SPDX-License-Identifier: BSD-2-Clause
// The requests that must fail, by name. Both sides have the same list and speak of a case by its index.
// Used by client.cc and server.cc, which make it happen, and expectation.cc, which says how it has to end.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <string>
#include <vector>

namespace uroce::errors {

// What is wrong.
enum class Fault : uint8_t {
  kUnknownKey,     // an rkey that was never given out
  kStaleKey,       // of a region that has been deregistered
  kForeignKey,     // of a region in another PD than the QP's
  kBefore,         // begins before the region
  kBehind,         // ends behind it
  kNoRight,        // the region lacks the right
  kMisaligned,     // an atomic at an address that is no multiple of 8
  kClosedWindow,   // a type 2 window that has been invalidated
  kTooLong,        // a SEND longer than the receive
  kNoReceive,      // a SEND, and no receive ever comes
  kLateReceive,    // a SEND, and the receive comes 300 ms later: succeeds, rnr_retry 7 is for ever
  kPeerError,      // the peer's QP is in ERR before the request is posted
  kPeerReset,      // in RESET
  kPeerDestroyed,  // destroyed
  kLocalKey,       // the requester's own SGE has an lkey that was never given out
  kLocalBounds,    // it ends behind its region
};

struct Case {
  std::string name;
  Fault fault;
  ibv_wr_opcode opcode;
  uint8_t rnr_retry;  // of the requester's QP
  bool many_packets;  // what is wrong is not in the first one

  uint32_t length() const;         // bytes of the request
  uint32_t first_receive() const;  // bytes of the responder's first receive
  // The peer's QP takes nothing at all, so nothing that is posted before the request could succeed.
  bool peer_is_dead() const;
  // It is the requester that fails, at its own memory.
  bool local() const { return fault == Fault::kLocalKey || fault == Fault::kLocalBounds; }
  // That a READ has nowhere to go shows when the answer comes; by then the peer may have executed what is behind it.
  bool next_may_run() const { return fault == Fault::kLateReceive || (local() && opcode == IBV_WR_RDMA_READ); }
  // Receives that the responder posts before the request comes.
  uint32_t receives() const;
};

const std::vector<Case>& all_cases();
// Of the names: the two sides must be of one version.
uint64_t cases_digest();

}  // namespace uroce::errors
