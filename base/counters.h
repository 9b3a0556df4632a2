// SPDX-License-Identifier: BSD-2-Clause
// Named counters of a shard. One writer at a time (the holder of its lock), any number of readers.
// Every reason for which a packet is dropped has its own name here (architecture.md, decision 8).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uroce {

// name, text for people
#define UROCE_COUNTERS(X)                                                             \
  X(kDropParse, "drop: truncated or malformed headers")                               \
  X(kDropUnknownOpcode, "drop: unknown opcode")                                       \
  X(kDropUnknownQp, "drop: no such QP")                                               \
  X(kDropQpState, "drop: QP state does not receive")                                  \
  X(kDropWrongTransport, "drop: opcode of another transport than the QP's")           \
  X(kDropWrongAddress, "drop: source or destination address is not the connection's") \
  X(kDropWrongPkey, "drop: P_Key mismatch")                                           \
  X(kDropBadIcrc, "drop: ICRC mismatch")                                              \
  X(kDropDuplicateUnknown, "drop: duplicate READ or atomic no longer remembered")     \
  X(kDropAfterNak, "drop: behind a gap that a NAK has reported")                      \
  X(kDropStaleResponse, "drop: acknowledgement or response of the past")              \
  X(kDropUnsentPsn, "drop: acknowledgement of a PSN that was not sent")               \
  X(kDropReservedSyndrome, "drop: reserved AETH syndrome")                            \
  X(kDropUnsolicitedResponse, "drop: READ or atomic response nobody waits for")       \
  X(kDropWrongQkey, "drop: Q_Key mismatch")                                           \
  X(kDropNoReceive, "drop: unreliable message without a receive request")             \
  X(kDropNoAccess, "drop: unreliable WRITE that may not write there")                 \
  X(kDropMessage, "drop: unreliable message with a gap or a wrong length")            \
  X(kDropNoGroup, "drop: nobody here is in the multicast group")                      \
  X(kDropNoAddressHandle, "drop: address handle destroyed before the send")           \
  X(kDropNoNeighbour, "drop: next hop not resolved")                                  \
  X(kDropPathMtu, "drop: datagram longer than its route's MTU")                       \
  X(kRxRequests, "requests received")                                                 \
  X(kRxDuplicates, "duplicate requests received")                                     \
  X(kRxOutOfSequence, "requests ahead of the expected PSN")                           \
  X(kRxAcks, "ACKs received")                                                         \
  X(kRxPsnNaks, "PSN sequence error NAKs received")                                   \
  X(kRxRnrNaks, "RNR NAKs received")                                                  \
  X(kRxFatalNaks, "NAKs received that end the QP")                                    \
  X(kRxImpliedNaks, "implied NAKs: a response was lost")                              \
  X(kTxRequests, "request packets sent")                                              \
  X(kTxRetransmissions, "request packets sent again")                                 \
  X(kTxReadResponses, "READ response packets sent")                                   \
  X(kTxAcks, "ACKs sent")                                                             \
  X(kTxNaks, "NAKs sent")                                                             \
  X(kTxRnrNaks, "RNR NAKs sent")                                                      \
  X(kTimeouts, "transport timer expiries")                                            \
  X(kOwnPauses, "timers of QPs found late: this process or machine had stood still")  \
  X(kProbes, "early retransmissions, before the transport timer")                     \
  X(kRunsPaused, "runs of packets given up for a while: a peer did not get them")     \
  X(kProbesPutOff, "early retransmissions put off: too many to this destination")     \
  X(kRxCongestionMarks, "packets received with congestion marks (CE)")                \
  X(kTxCnps, "CNPs sent")                                                             \
  X(kRxCnps, "CNPs received")                                                         \
  X(kPaced, "packets that waited for the rate of their destination")                  \
  X(kRateCuts, "congestion: rates cut for round-trip times or losses")                \
  X(kCqOverruns, "completion queue overruns")                                         \
  X(kMemoryFaults, "registered memory found unmapped or protected")

enum class Counter : uint8_t {
#define X(name, text) name,
  UROCE_COUNTERS(X)
#undef X
      kCount
};

class Counters {
 public:
  void add(Counter counter, uint64_t n = 1) {
    auto& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t get(Counter counter) const { return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed); }

  // What moved between two points in time: what became of a packet, for who looks on. Bit n is counter n.
  using Snapshot = std::array<uint64_t, static_cast<size_t>(Counter::kCount)>;
  static_assert(static_cast<size_t>(Counter::kCount) <= 64);
  void snapshot(Snapshot& out) const {
    for (size_t i = 0; i < out.size(); ++i) out[i] = values_[i].load(std::memory_order_relaxed);
  }
  uint64_t moved_since(const Snapshot& before) const {
    uint64_t moved = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      moved |= uint64_t{values_[i].load(std::memory_order_relaxed) != before[i]} << i;
    }
    return moved;
  }

  static constexpr const char* text(Counter counter) {
    constexpr const char* kTexts[] = {
#define X(name, text) text,
        UROCE_COUNTERS(X)
#undef X
    };
    return kTexts[static_cast<size_t>(counter)];
  }
  // As the code calls it: "kDropParse".
  static constexpr const char* name(Counter counter) {
    constexpr const char* kNames[] = {
#define X(name, text) #name,
        UROCE_COUNTERS(X)
#undef X
    };
    return kNames[static_cast<size_t>(counter)];
  }

 private:
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Counter::kCount)> values_{};
};

// Of several together.
class CounterSums {
 public:
  void add(const Counters& counters) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += counters.get(static_cast<Counter>(i));
  }
  uint64_t get(Counter counter) const { return sums_[static_cast<size_t>(counter)]; }

 private:
  Counters::Snapshot sums_{};
};

}  // namespace uroce
