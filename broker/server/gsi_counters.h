// SPDX-License-Identifier: BSD-2-Clause
// What became of datagrams to and from QP1, by name (architecture.md, decision 8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::broker {

// name, text for people
#define UROCE_GSI_COUNTERS(X)                                                                  \
  X(kReceived, "datagrams received for QP1")                                                   \
  X(kSent, "datagrams sent from QP1")                                                          \
  X(kWithinHost, "datagrams of them that stayed on this host")                                 \
  X(kDropNobody, "drop: a QP number that nobody has")                                          \
  X(kDropMalformed, "drop: no datagram for QP1 (opcode, length, or a message that is longer)") \
  X(kDropPkey, "drop: P_Key")                                                                  \
  X(kDropQkey, "drop: Q_Key")                                                                  \
  X(kDropIcrc, "drop: ICRC")                                                                   \
  X(kDropNetdev, "drop: a netdev without device, or without the address that it was sent to")  \
  X(kDropForged, "drop: from the network, with an address of this host as its source")         \
  X(kDropNoRoom, "drop: too many datagrams within the host at a time")                         \
  X(kDropNotSent, "drop: the kernel did not take it")                                          \
  X(kFaultDropped, "lost on purpose (--faults)")                                               \
  X(kFaultDuplicated, "duplicated on purpose")                                                 \
  X(kFaultDelayed, "delayed on purpose, so that others overtake them")

enum class GsiCounter : uint8_t {
#define X(name, text) name,
  UROCE_GSI_COUNTERS(X)
#undef X
      kCount
};

class GsiCounters {
 public:
  void add(GsiCounter counter) { ++values_[static_cast<size_t>(counter)]; }
  uint64_t get(GsiCounter counter) const { return values_[static_cast<size_t>(counter)]; }

  static constexpr const char* text(GsiCounter counter) {
    constexpr const char* kTexts[] = {
#define X(name, text) text,
        UROCE_GSI_COUNTERS(X)
#undef X
    };
    return kTexts[static_cast<size_t>(counter)];
  }
  // As in the source: "kRequests".
  static constexpr const char* enumerator(GsiCounter counter) {
    constexpr const char* kEnumerators[] = {
#define X(name, text) #name,
        UROCE_GSI_COUNTERS(X)
#undef X
    };
    return kEnumerators[static_cast<size_t>(counter)];
  }

 private:
  std::array<uint64_t, static_cast<size_t>(GsiCounter::kCount)> values_{};
};

}  // namespace uroce::broker
