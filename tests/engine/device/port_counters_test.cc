// SPDX-License-Identifier: BSD-2-Clause
// The counters of a port by the names of sysfs.
#include "engine/device/port_counters.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace uroce::engine {
namespace {

std::map<std::string, uint64_t> named(const PortCounters& counters) {
  std::map<std::string, uint64_t> map;
  for (const auto& [name, value] : counters) EXPECT_TRUE(map.emplace(name, value).second) << name << " is there twice";
  return map;
}

TEST(PortCounters, TrafficInPacketsAndWords) {
  io::IoCounters io;
  io.rx_packets = 3, io.rx_bytes = 4000, io.tx_packets = 5, io.tx_bytes = 8000, io.tx_backpressure = 7;
  const auto counters = named(port_counters({}, io));
  EXPECT_EQ(counters.at("counters/port_rcv_packets"), 3u);
  EXPECT_EQ(counters.at("counters/port_rcv_data"), 1000u);
  EXPECT_EQ(counters.at("counters/port_xmit_packets"), 5u);
  EXPECT_EQ(counters.at("counters/port_xmit_data"), 2000u);
  EXPECT_EQ(counters.at("counters/port_xmit_wait"), 7u);
}

TEST(PortCounters, ErrorsOfPacketsAndOfTheTransport) {
  Counters engine;
  engine.add(Counter::kDropBadIcrc, 2);
  engine.add(Counter::kDropParse, 3);
  engine.add(Counter::kDropNoNeighbour, 3);
  engine.add(Counter::kDropPathMtu, 1);
  engine.add(Counter::kTxRnrNaks, 5);
  engine.add(Counter::kRxPsnNaks, 6);
  engine.add(Counter::kTimeouts, 7);
  io::IoCounters io;
  io.rx_malformed = 10, io.rx_too_long = 100, io.rx_no_buffer = 20, io.tx_errors = 30;
  CounterSums sums;
  sums.add(engine);
  const auto counters = named(port_counters(sums, io));
  EXPECT_EQ(counters.at("counters/port_rcv_errors"), 115u);
  EXPECT_EQ(counters.at("counters/port_xmit_discards"), 34u);
  EXPECT_EQ(counters.at("hw_counters/rx_icrc_encapsulated"), 2u);
  EXPECT_EQ(counters.at("hw_counters/out_of_buffer"), 25u);
  EXPECT_EQ(counters.at("hw_counters/packet_seq_err"), 6u);
  EXPECT_EQ(counters.at("hw_counters/local_ack_timeout_err"), 7u);
}

}  // namespace
}  // namespace uroce::engine
