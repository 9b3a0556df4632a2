// SPDX-License-Identifier: BSD-2-Clause
// What became of datagrams, by name (architecture.md, decision 8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::cm {

// name, text for people
#define UROCE_CM_COUNTERS(X)                                                \
  X(kDropMalformed, "drop: no MAD of the connection manager")               \
  X(kDropSource, "drop: not from QP1, or a source that cannot be answered") \
  X(kDropUnknownId, "drop: no such communication id")                       \
  X(kDropWrongPeer, "drop: not from the host that the connection is with")  \
  X(kDropState, "drop: not expected in this state of the connection")       \
  X(kDropDuplicate, "drop: REQ or SIDR_REQ again, the answer is under way") \
  X(kDropWrongQpn, "drop: DREQ for another QP")                             \
  X(kDropBacklog, "drop: the backlog of the listener is full")              \
  X(kDropLimit, "drop: too many ids")                                       \
  X(kAnsweredAgain, "duplicates answered again")                            \
  X(kNoListener, "requests to a service id that nobody has")                \
  X(kNotReached, "requests from where the netdev does not lead")            \
  X(kStale, "requests of a QP that was still connected")                    \
  X(kRetransmissions, "messages sent again")                                \
  X(kTimeouts, "messages given up: no answer")                              \
  X(kRequests, "connections that others asked for")                         \
  X(kConnects, "connections asked for")                                     \
  X(kEstablished, "connections established")                                \
  X(kRejected, "REJs received that ended a connection")                     \
  X(kEvicted, "ended connections forgotten early, as there were too many")  \
  X(kGaveWay, "requests ended early: too many were half open")

enum class Counter : uint8_t {
#define X(name, text) name,
  UROCE_CM_COUNTERS(X)
#undef X
      kCount
};

class Counters {
 public:
  void add(Counter counter) { ++values_[static_cast<size_t>(counter)]; }
  uint64_t get(Counter counter) const { return values_[static_cast<size_t>(counter)]; }

  static constexpr const char* text(Counter counter) {
    constexpr const char* kTexts[] = {
#define X(name, text) text,
        UROCE_CM_COUNTERS(X)
#undef X
    };
    return kTexts[static_cast<size_t>(counter)];
  }
  // As in the source: "kRequests".
  static constexpr const char* enumerator(Counter counter) {
    constexpr const char* kEnumerators[] = {
#define X(name, text) #name,
        UROCE_CM_COUNTERS(X)
#undef X
    };
    return kEnumerators[static_cast<size_t>(counter)];
  }

 private:
  std::array<uint64_t, static_cast<size_t>(Counter::kCount)> values_{};
};

}  // namespace uroce::cm
