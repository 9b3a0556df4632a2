// SPDX-License-Identifier: BSD-2-Clause
// What becomes of a packet that has arrived: it is checked, counted with the reason where it is dropped, and else given
// to its QP, or to all members of its multicast group. Owned by Datapath; under the progress lock.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "base/counters.h"
#include "engine/datapath/schedule.h"
#include "engine/io/packet_io.h"
#include "engine/objects/qp.h"
#include "engine/objects/tables.h"
#include "wire/packet.h"

namespace uroce::engine {

class RxDemux {
 public:
  RxDemux(const Tables& tables, uint32_t shard, Counters& counters, Schedule& schedule)
      : tables_(tables), qpns_(tables.qpns[shard]), counters_(counters), schedule_(schedule) {}

  // Takes a burst of packets. `looped`: from QPs of this process. Returns how many there were.
  size_t receive(io::PacketIo& io, bool looped, Time now);
  // The last of the burst was not the end of its message. `count`: as receive() has returned it.
  bool more_to_come(size_t count) const;

 private:
  static constexpr size_t kBurst = 64;

  using Arrivals = std::span<const io::RxPacket>;
  // Packets of one QP, one behind the other. What it does next is asked behind the last of them.
  struct Row {
    Qp* qp = nullptr;
    uint32_t raised_before = 0;  // events that arrivals had raised
  };

  void deliver_burst(size_t count, bool looped, Time now);
  wire::Qpn destination(size_t i) const;
  const Qp* coming(size_t i) const;
  // The first of them, and those behind it that can go with it. Returns how many that were.
  size_t deliver(Arrivals arrivals, bool looped, Row& row, Time now);
  size_t deliver_middle_packets(Arrivals arrivals, wire::Packet& packet, Qp& qp, Time now) const;
  void continue_row(Row& row, Qp& qp, Time now);
  void end_row(const Row& row, Time now);
  void deliver_watched(io::PacketIo& io, size_t count, bool looped, Time now);
  void deliver_to_group(const io::RxPacket& rx, bool looped, const wire::Packet& packet, Time now);
  std::optional<Counter> refuse(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const;
  std::optional<Counter> refuse_by_headers(const io::RxPacket& rx, bool looped, const wire::Packet& packet,
                                           const Qp& qp) const;
  bool belongs_here(const io::RxPacket& rx, bool looped, const wire::Packet& packet, const Qp& qp) const;
  bool is_own(const wire::IpAddress& address) const;

  const Tables& tables_;
  const QpnSpace& qpns_;  // the shard's
  Counters& counters_;
  Schedule& schedule_;
  std::array<io::RxPacket, kBurst> arrived_;
  wire::Qpn last_destination_{};  // of the burst before
};

}  // namespace uroce::engine
