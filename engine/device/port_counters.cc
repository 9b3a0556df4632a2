// SPDX-License-Identifier: BSD-2-Clause
#include "engine/device/port_counters.h"

namespace uroce::engine {

PortCounters port_counters(const CounterSums& engine, const io::IoCounters& io) {
  using C = Counter;
  const auto sum = [&](auto... counters) { return (engine.get(counters) + ...); };
  return {{
      // IBTA 16.1.3.5; data in words of four bytes.
      {"counters/port_rcv_data", io.rx_bytes / 4},
      {"counters/port_rcv_packets", io.rx_packets},
      {"counters/port_xmit_data", io.tx_bytes / 4},
      {"counters/port_xmit_packets", io.tx_packets},
      {"counters/port_xmit_wait", io.tx_backpressure},
      {"counters/port_rcv_errors",
       io.rx_malformed + io.rx_too_long + sum(C::kDropParse, C::kDropUnknownOpcode, C::kDropBadIcrc)},
      {"counters/port_xmit_discards", io.tx_errors + sum(C::kDropNoNeighbour, C::kDropPathMtu)},
      // What there is on InfiniBand links only.
      {"counters/excessive_buffer_overrun_errors", 0},
      {"counters/link_downed", 0},
      {"counters/link_error_recovery", 0},
      {"counters/local_link_integrity_errors", 0},
      {"counters/port_rcv_remote_physical_errors", 0},
      {"counters/symbol_error", 0},
      {"hw_counters/duplicate_request", sum(C::kRxDuplicates)},
      {"hw_counters/implied_nak_seq_err", sum(C::kRxImpliedNaks)},
      {"hw_counters/local_ack_timeout_err", sum(C::kTimeouts)},
      {"hw_counters/np_cnp_sent", sum(C::kTxCnps)},
      {"hw_counters/np_ecn_marked_roce_packets", sum(C::kRxCongestionMarks)},
      {"hw_counters/out_of_buffer", io.rx_no_buffer + sum(C::kTxRnrNaks, C::kDropNoReceive)},
      {"hw_counters/out_of_sequence", sum(C::kRxOutOfSequence)},
      {"hw_counters/packet_seq_err", sum(C::kRxPsnNaks)},
      {"hw_counters/rnr_nak_retry_err", sum(C::kRxRnrNaks)},
      {"hw_counters/rp_cnp_handled", sum(C::kRxCnps)},
      {"hw_counters/rx_icrc_encapsulated", sum(C::kDropBadIcrc)},
  }};
}

}  // namespace uroce::engine
