// SPDX-License-Identifier: GPL-2.0-or-later
// What the IPv4 IDs of a flow tell. Senders that count them up (Linux per destination, uroce, most NICs) give every
// packet its own: the same ID again is the same packet again, and a smaller one was sent before what was seen already.
// So the last packets of the flow are kept in the order in which they were sent. No use with constant IDs and with
// IPv6; then times and NAKs have to do. Random IDs identify packets, but tell no order. One per flow.
//
// 16 bytes for each of the last kKept packets, none if the IDs tell nothing. An ID counts for the packets within 32767
// of the newest one; after a pause of kPause it is taken for a new one, as others may use the same counter.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>

#include "dissector/analysis/datagram.h"

namespace uroce::dissector {

class IpIds {
 public:
  static constexpr size_t kKept = 16384;
  static constexpr int32_t kNoPsn = std::numeric_limits<int32_t>::min();

  struct Packet {
    uint32_t id = 0;        // counted on beyond 16 bits
    uint32_t what = 0;      // PSN and opcode
    int32_t most = kNoPsn;  // the highest PSN of the requests up to this packet in the order of sending
    uint32_t frame = 0;
  };
  static uint32_t what(const wire::Bth& bth) { return bth.psn.value() << 8 | static_cast<uint8_t>(bth.opcode); }

  // Every packet, after it has been judged. relative_psn: of a request, else kNoPsn.
  void note(const Datagram& datagram, const wire::Bth& bth, int32_t relative_psn);
  // Whether two packets with the same ID are one.
  bool tell_packets(const Datagram& datagram) const { return datagram.has_ip_id && count_up(); }
  bool tell_order(const Datagram& datagram) const;
  // Too few packets to know, but it comes so soon after the first one that the same ID probably is the same packet.
  bool begins(const Datagram& datagram, int64_t within) const {
    return up_ == 0 && noted_ < kFew && datagram.time - first_time_ < within;
  }
  // Sent before another packet that was captured before it.
  bool late(const Datagram& datagram) const { return tell_order(datagram) && step_to(datagram) < 0; }
  // The same PSN and opcode with the same ID, among the last ones; or null.
  const Packet* same(const Datagram& datagram, const wire::Bth& bth) const;
  // Whether the sender had already sent a request with this PSN or a later one when it sent this packet.
  bool sent_behind(const Datagram& datagram, int64_t relative_psn) const;
  // Counted on beyond 16 bits.
  uint32_t extend(const Datagram& datagram) const {
    return started_ ? newest_ + static_cast<uint32_t>(step_to(datagram)) : 0x10000u | datagram.ip_id;
  }
  static bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

 private:
  static constexpr uint64_t kFew = 4;
  static constexpr int32_t kNear = 16;
  static constexpr int32_t kFar = 8192;           // most steps of random IDs are larger
  static constexpr int64_t kPause = 100'000'000;  // ns
  static constexpr uint32_t kRandomTurns = 16;

  // Not constant but for a few that were damaged or come from a middlebox.
  bool count_up() const { return up_ > 0 && 4 * up_ + 1 >= noted_; }
  int32_t step_to(const Datagram& datagram) const;
  std::deque<Packet>::const_iterator first_not_before(uint32_t id) const;
  void keep(const Packet& packet);

  bool started_ = false;
  uint32_t newest_ = 0;
  uint64_t up_ = 0, far_ = 0, noted_ = 0;
  int64_t first_time_ = 0, last_time_ = 0;
  std::deque<Packet> packets_;    // by ID
  int32_t most_before_ = kNoPsn;  // of those that are not kept any more
};

}  // namespace uroce::dissector
