// SPDX-License-Identifier: GPL-2.0-or-later
// What the IPv4 IDs of a flow tell. Senders that count them up (Linux per destination, uroce, most NICs) give every
// packet its own: the same ID again is the same packet again, and a smaller one was sent before what was seen already.
// No use with constant or random IDs and with IPv6; then times and NAKs have to do. One per flow.
#pragma once

#include <cstdint>

#include "dissector/analysis/datagram.h"

namespace uroce::dissector {

class IpIds {
 public:
  // Every packet, after it has been judged.
  void note(const Datagram& datagram) {
    if (!datagram.has_ip_id) return;
    ++noted_;
    const int16_t step = started_ ? step_to(datagram.ip_id) : int16_t{0};
    up_ += step > 0;
    down_ += step < 0;
    if (step > 0 || !started_) newest_ = datagram.ip_id;
    started_ = true;
  }
  // Whether two packets with the same ID are one.
  bool tell_packets(const Datagram& datagram) const { return datagram.has_ip_id && count_up(); }
  // Too few packets to know.
  bool begins() const { return up_ == 0 && noted_ < kFew; }
  bool tell_order(const Datagram& datagram) const { return datagram.has_ip_id && count_up() && down_ * 4 <= up_ + 4; }
  // Sent before another packet that was captured before it.
  bool late(const Datagram& datagram) const { return tell_order(datagram) && step_to(datagram.ip_id) < 0; }

 private:
  // Not constant but for a few that were damaged or come from a middlebox.
  bool count_up() const { return up_ > 0 && 4 * up_ + 1 >= noted_; }
  int16_t step_to(uint16_t id) const { return static_cast<int16_t>(id - newest_); }

  bool started_ = false;
  uint16_t newest_ = 0;
  static constexpr uint64_t kFew = 4;
  uint64_t up_ = 0, down_ = 0, noted_ = 0;
};

}  // namespace uroce::dissector
