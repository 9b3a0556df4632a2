// SPDX-License-Identifier: BSD-2-Clause
// ARP (RFC 826) and neighbour discovery (RFC 4861) for a port that the kernel does not see: answers for its own
// addresses, finds the MAC addresses of others and confirms them. Without I/O and clock: frames and time are handed in,
// frames and deadlines come out. Used by PortView.
//
// What bounds what: an entry is made only for an address that this process wants (want()), kMostNeighbours of them; no
// frame makes one. Frames to send are kMostFrames, those beyond are not made, and the peer asks again. A frame is read
// within its size, and options of neighbour discovery within the packet. What it says is believed as every host on such
// a network believes it: whoever is on the link can claim to be somebody else there, as with the kernel's ARP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "base/time.h"
#include "engine/net/next_hop.h"
#include "wire/envelope.h"

namespace uroce::net {

class Resolution {
 public:
  static constexpr size_t kMostNeighbours = 1024, kMostFrames = 64;
  static constexpr size_t kLongestFrame = 128;

  Resolution(const wire::MacAddress& mac, std::vector<wire::IpAddress> own) : mac_(mac), own_(std::move(own)) {}

  // Any frame. True: a neighbour has changed, see take_changed().
  bool take(std::span<const uint8_t> frame, Time now);
  // There are packets for this address, which is on the link: it is looked for, or confirmed, unless that has been
  // begun within a second.
  void want(const wire::IpAddress& address, Time now);
  // The port has its link, perhaps at another place than before (a virtual machine has moved): everybody is told of its
  // addresses, three times (on_time()), by gratuitous ARP (RFC 5227 2.3) and unsolicited advertisements (RFC
  // 4861 7.2.6).
  void announce(Time now);
  // Asks again, gives up, or announces again, where it is time. True: a neighbour has changed.
  bool on_time(Time now);
  Time due() const;

  Neighbour neighbour(const wire::IpAddress& address) const;
  // Those whose neighbour() has changed since the last call.
  std::vector<wire::IpAddress> take_changed();

  bool has_frames() const { return !frames_.empty(); }
  // The next frame to send, into `out` of kLongestFrame bytes; its size, 0: none.
  size_t next_frame(std::span<uint8_t> out);

 private:
  using Key = std::array<uint8_t, 16>;
  struct Entry {
    Neighbour now;
    int tries = 0;      // since it was confirmed
    Time asked{};       // last
    Time due = kNever;  // to ask again, to give up, or to become stale
  };

  bool is_own(const wire::IpAddress& address) const;
  bool take_arp(std::span<const uint8_t> packet, Time now);
  bool take_discovery(std::span<const uint8_t> packet, const wire::MacAddress& from, Time now);
  bool learn(const wire::IpAddress& address, const wire::MacAddress& mac, bool confirmed, Time now);
  void ask(const wire::IpAddress& address, Entry& entry, Time now);
  void set(const Key& key, Entry& entry, const Neighbour& neighbour);
  void make_room();
  void send_arp(uint16_t operation, const wire::MacAddress& to, const wire::IpAddress& source,
                const wire::IpAddress& target);
  void send_solicitation(const wire::IpAddress& target, const Neighbour& known);
  void send_advertisement(const wire::IpAddress& own, const wire::IpAddress& to, const wire::MacAddress& to_mac);
  void send_announcement(const wire::IpAddress& own);
  void send(std::vector<uint8_t> frame);
  const wire::IpAddress* own_like(const wire::IpAddress& other) const;

  const wire::MacAddress mac_;
  const std::vector<wire::IpAddress> own_;
  std::map<Key, Entry> entries_;
  std::vector<wire::IpAddress> changed_;
  std::deque<std::vector<uint8_t>> frames_;
  int announcements_ = 0;  // still to be made
  Time announce_at_ = kNever;
};

}  // namespace uroce::net
