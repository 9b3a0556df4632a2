// SPDX-License-Identifier: BSD-2-Clause
// Which packets leave next, and where they go. QPs that have packets take turns, a quantum each, until the budget of
// the transmission is spent or the packet I/O has no room; ACKs leave ahead of these and behind them (ack_scheduler.h).
// Owned by Datapath; under the progress lock.
#pragma once

#include <cstddef>
#include <optional>

#include "base/counters.h"
#include "engine/datapath/next_hop_waits.h"
#include "engine/datapath/schedule.h"
#include "engine/datapath/tx_queues.h"
#include "engine/objects/qp.h"
#include "engine/objects/tables.h"

namespace uroce::engine {

class TxScheduler {
 public:
  // Packets after which no QP gets another turn in a transmission; ACKs are not counted.
  static constexpr int kTransmitLimit = 4 * 32;

  TxScheduler(Tables& tables, uint32_t shard, Counters& counters, Schedule& schedule, NextHopWaits& next_hops);

  TxQueues& queues() { return queues_; }
  const TxQueues& queues() const { return queues_; }
  // Puts what is to be sent into the queues, and returns how many packets that are; flushing them is left to the
  // caller.
  size_t transmit(Time now) {
    now_ = now;
    return schedule_.next_is_empty() ? 0 : transmit_what_is_due();
  }
  // The QP is about to stop answering: the ACK that it owes, if any, leaves at once.
  void settle_ack(Qp& qp, Time now);
  // All QPs are: the process ends.
  void settle_acks(Time now);

 private:
  using Reach = NextHopWaits::Reach;
  static constexpr size_t kQuantum = 16;  // packets of one QP before the next one's turn; at least a run

  size_t transmit_what_is_due();
  bool transmit_quantum(Qp& qp, int& budget);
  void begin_run(Destination& to);
  size_t transmit_acks(AckList& qps);
  bool pull(Qp& qp, io::TxPacket& packet);
  std::span<io::TxPacket> pull_middle_packets(Qp& qp, const io::TxPacket& previous, size_t most, TxBurst& queue);
  void keep_alone(io::TxPacket& packet, const Path& path) const;
  Path* next_path(Qp& qp);
  bool stays_here(const Qp& qp, const Path& path) const;
  uint32_t long_payload(const Qp& qp);
  static std::optional<Counter> obstacle(const io::TxPacket& packet, const Qp& qp, const Path* path, Reach reach);
  void copy_to_own_group(const io::TxPacket& packet);
  void on_done(const io::TxPacket& packet);

  Tables& tables_;
  const QpnSpace& qpns_;  // the shard's
  Counters& counters_;
  Schedule& schedule_;
  NextHopWaits& next_hops_;
  TxQueues queues_;
  Time now_{};  // of the transmission in progress
};

}  // namespace uroce::engine
