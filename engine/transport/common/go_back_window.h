// SPDX-License-Identifier: BSD-2-Clause
// How many packets a QP should have in flight where packets are lost. Go-back-N sends all of them again for each lost
// one, and where they wait in the NIC's own queue that is far more than the network holds: 128 packets, of which a
// round trip of 10 us at 10 Gb/s has a dozen.
//
// The bound is the bandwidth-delay product as BBR measures it: the highest recent rate of delivery times the shortest
// round trip. Some packets more are allowed, because acknowledgements come for several at once, and so that a rise of
// either is noticed. Nothing is bounded before a packet was lost; while no more are lost the bound rises until it is
// none. Owned by CongestionEndpoint.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "engine/congestion/controller.h"

namespace uroce::transport {

class GoBackWindow {
 public:
  // Packets.
  uint32_t window() const {
    if (look_ == Look::kNow) return kFew;
    return static_cast<uint32_t>(std::min<uint64_t>(std::max(needed_ * 5 / 4 + kQueued, kLeast) + beyond_, kLargest));
  }

  // A packet that was sent once has been acknowledged after `rtt`; `in_flight` when it was sent, itself included.
  void on_round_trip(Duration rtt, uint32_t in_flight) {
    rtt = std::max(rtt, Duration{1});
    if (look_ == Look::kNow) {
      if (in_flight > kFew) return;
      look_ = Look::kNone;
      shortest_ = rtt;
    }
    if (shortest_ == Duration{} || rtt < shortest_) shortest_ = rtt;
    // While there is a queue, others may have taken a part of the rate. A single packet may also just be late.
    if (4 * rtt > 5 * shortest_) highest_.rtt += highest_.rtt / 8;
    if (in_flight * highest_.rtt >= highest_.in_flight * rtt) highest_ = {in_flight, rtt};
    needed_ = static_cast<uint64_t>(highest_.in_flight * shortest_ / highest_.rtt);
  }
  // The peer lacks a packet. Where no round trips were measured (as of READs) there is no bound.
  void on_lost() {
    if (highest_.in_flight == 0) return;
    beyond_ = 0;
    if (++losses_ % kLossesForALook == 0 || look_ == Look::kNow) look_ = Look::kDue;
  }
  // A packet leaves for the first time: all that was lost has been sent again.
  void on_new_packet() {
    if (look_ == Look::kDue) look_ = Look::kNow;
  }
  // A READ or an atomic leaves: its responses count in flight, and what is behind it waits for them. No bound for such
  // traffic, until more is lost of other packets.
  void on_read() {
    beyond_ = kLargest;
    look_ = Look::kNone;
  }
  void on_acknowledged(uint64_t packets) {
    if (beyond_ == kLargest) return;
    acknowledged_ += static_cast<uint32_t>(packets);
    beyond_ = std::min(beyond_ + acknowledged_ / kRise, kLargest);
    acknowledged_ %= kRise;
  }

 private:
  static constexpr uint32_t kLargest = congestion::Controller::kWindow;
  static constexpr uint64_t kQueued = 4;
  static constexpr uint64_t kLeast = 16;  // not much is lost with them, and who has sent little so far may go on
  static constexpr uint32_t kRise = 256;  // packets that are acknowledged for one more in flight
  static constexpr uint32_t kFew = 4;
  static constexpr uint8_t kLossesForALook = 64;

  // The round trip of an empty network is looked for anew now and then, with few packets in flight (BBR's ProbeRTT):
  // the route may have become longer, or the peer slower.
  enum class Look : uint8_t { kNone, kDue, kNow };
  struct Rate {
    uint32_t in_flight;  // packets, in each
    Duration rtt;
  };

  Rate highest_{0, Duration{1}};
  Duration shortest_{};         // 0: not known
  uint64_t needed_ = kLargest;  // the product, packets: asked for before every packet, and it takes a division
  uint32_t beyond_ = kLargest;  // more than what is needed; kLargest: no bound
  uint32_t acknowledged_ = 0;   // since it rose
  uint8_t losses_ = 0;
  Look look_ = Look::kNone;
};

}  // namespace uroce::transport
