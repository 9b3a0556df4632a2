// SPDX-License-Identifier: BSD-2-Clause
// Another process of this host and what there is between it and this one: memory that each side writes to, with a ring
// (ring.h), and a bell that wakes the other side and tells of its end (base/bell.h). The broker makes it and
// passes it on. Neither has to trust the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/bell.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "engine/io/same_host/peer_memory.h"
#include "engine/io/same_host/ring.h"

namespace uroce::io {

struct PeerEnd {
  std::unique_ptr<PeerMemory> own;  // what this side writes to
  UniqueFd memory;                  // what the other side writes to
  UniqueFd bell;
  bool of_stranger = false;  // the other side is of a user whom this one need not trust
};

class Peer {
 public:
  // The bell is one that children do not keep (ForkGuard). Null: the memory is not such as it has to be, or cannot be
  // mapped; then the bell is the caller's to close, which takes as long as the other side likes.
  static std::unique_ptr<Peer> open(uint32_t range, PeerEnd&& end);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const uint32_t range;  // of its QP numbers
  RingWriter out;
  RingReader in;
  std::optional<Time> waited_since;  // for room in `out`
  uint64_t read_then = 0;            // out.known_read()
  std::optional<Time> stands_since;  // out.read()
  uint64_t stands_at = 0;            // likewise
  bool taken_up = false;             // `in`: what came by the network before has been received
  Peer* next = nullptr;              // in a list of PeerExchange
  uint32_t late_long = 0;            // long packets that may still come since it was told that none are taken any more

  int bell() const { return bell_.get(); }
  bool is_of_stranger() const { return of_stranger_; }
  // After out.publish() has asked for it. A ring costs what the other side makes it cost, by those that wait at its end
  // (bell.h).
  void wake() { ring_bell(bell_.get()); }
  // Looks whether the other side is there. Any number of times: no ring is taken.
  void look() { ended_ = ended_ || bell_has_ended(bell_.get()); }
  // The other process has gone, or let go of this one: nothing new comes, and nobody reads what is sent.
  bool ended() const { return ended_; }
  // Its rings cost too much.
  void leave() { ended_ = was_left_ = true; }
  bool was_left() const { return was_left_; }
  // The range is another process's now, or nobody's: what the peer has written is still received.
  void part() { ended_ = true; }

 private:
  using OwnMemory = std::unique_ptr<PeerMemory>;
  using TheirMemory = std::unique_ptr<const PeerMemory>;
  Peer(uint32_t its_range, OwnMemory own, TheirMemory theirs, UniqueFd bell, bool of_stranger);

  const OwnMemory own_;
  const TheirMemory theirs_;
  UniqueFd bell_;
  const bool of_stranger_;
  bool ended_ = false, was_left_ = false;
};

}  // namespace uroce::io
