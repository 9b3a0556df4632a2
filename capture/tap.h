// SPDX-License-Identifier: BSD-2-Clause
// The point of one packet I/O where captures listen. Copies of the packets go into a ring for each listener; traffic
// never waits for one. Made beside the packet I/O and kept by Capture (capture/capture.h) and the process's
// CaptureHub.
//
// Listeners come and go in other threads, without a lock that the packet path would have to take.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "capture/ring.h"
#include "engine/io/packet_io.h"
#include "wire/ip_udp.h"

namespace uroce::io {

// What a packet I/O is called in captures.
struct TapInfo {
  std::string netdev;
  std::string device;
  std::string description;  // of the packet I/O
  wire::MacAddress mac{};
  std::vector<wire::IpAddress> addresses;
  bool kernel_routes = false;  // of the packet I/O, which then fills in headers that cannot be seen here
};

// Where a packet was seen. Each is an interface of its own in a capture.
enum class SeenAt : uint8_t {
  kWire,          // the packet I/O
  kNotDelivered,  // arrived, and a fault injector took it away before the engine saw it
  kLoop,          // between queue pairs of this process: it was sent and received here, and is shown once
};
inline constexpr size_t kSeenAtCount = 3;

// In front of a packet's bytes in a ring.
struct CapturedPacket {
  int64_t time = 0;       // ns since 1970
  uint64_t verdict = 0;   // received: counters that moved (Counters::moved_since)
  uint32_t captured = 0;  // bytes that follow: the frame, or its beginning
  uint32_t original = 0;  // bytes on the wire
  uint32_t missing = 0;   // packets in front of this one that found no room
  bool outbound = false;
  SeenAt seen_at = SeenAt::kWire;
  bool hidden_id = false;  // the IPv4 header was not seen: the identification is not known
  wire::FrameError malformed = wire::FrameError::kNone;  // why the packet I/O took it for no packet
  uint8_t faults = 0;                                    // bits of Fault
  io::SendReason reason = io::SendReason::kFirst;
};

// What one listener takes from one tap.
class CaptureChannel {
 public:
  struct Filter {
    uint32_t snap = 0;           // bytes of a frame that are kept; 0: all
    std::vector<uint32_t> qpns;  // either end of a packet; none: all packets
  };
  // `kick` is called when the ring fills up, from the packet path: it wakes the consumer and does nothing else.
  CaptureChannel(const TapInfo& tap, Filter filter, size_t ring_size, std::function<void()> kick)
      : info(tap), ring(ring_size), filter_(std::move(filter)), kick_(std::move(kick)) {}

  const TapInfo& info;
  CaptureRing ring;
  std::atomic<uint64_t> seen{0};     // packets that passed the filter
  std::atomic<uint64_t> dropped{0};  // of these, those that found no room

 private:
  friend class CaptureTap;
  bool wants_all() const { return filter_.qpns.empty(); }
  bool wants(uint32_t qpn, uint32_t other) const;
  uint8_t* open(CapturedPacket& packet);
  void close();

  const Filter filter_;
  const std::function<void()> kick_;
  uint32_t missing_ = 0;  // since the last one that found room
};

class CaptureTap {
 public:
  static constexpr size_t kMaxListeners = 8;

  explicit CaptureTap(TapInfo info) : info_(std::move(info)) {}
  CaptureTap(const CaptureTap&) = delete;

  const TapInfo& info() const { return info_; }

  // --- the packet path, under the progress lock ---------------------------------------------------------------------
  bool listening() const { return listeners_.load(std::memory_order_relaxed) != 0; }
  // The packets have been taken by the packet I/O. `time`: ns since 1970.
  void sent(std::span<const io::TxPacket> packets, int64_t time);
  void received(std::span<const RxPacket> packets, std::span<const uint64_t> verdicts, int64_t time) {
    arrived(packets, verdicts, SeenAt::kWire, time);
  }
  // They came from a queue pair of this process.
  void looped(std::span<const RxPacket> packets, std::span<const uint64_t> verdicts, int64_t time) {
    arrived(packets, verdicts, SeenAt::kLoop, time);
  }
  // It is no packet: the engine does not get to see it.
  void malformed(std::span<const uint8_t> frame, wire::FrameError error, int64_t time);
  // A fault injector took the packet away.
  void not_delivered(const RxPacket& packet, int64_t time);

  // --- any thread ---------------------------------------------------------------------------------------------------
  // One call at a time, with remove(); the caller sees to it. False: too many.
  bool add(CaptureChannel& channel);
  // Nothing is put into the channel any more.
  void remove(CaptureChannel& channel);
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  class Use;
  void record_sent(CaptureChannel& channel, const io::TxPacket& packet, int64_t time);
  void arrived(std::span<const RxPacket> packets, std::span<const uint64_t> verdicts, SeenAt seen_at, int64_t time);
  void record_arrived(CaptureChannel& channel, const RxPacket& packet, CapturedPacket entry);
  void record_rebuilt(CaptureChannel& channel, const RxPacket& packet, CapturedPacket entry);
  uint8_t* open(CaptureChannel& channel, CapturedPacket& entry);

  const TapInfo info_;
  std::atomic<uint32_t> listeners_{0};
  std::atomic<uint32_t> uses_{0};  // odd while the packet path uses the channels
  std::array<std::atomic<CaptureChannel*>, kMaxListeners> channels_{};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace uroce::io
