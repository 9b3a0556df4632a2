// SPDX-License-Identifier: BSD-2-Clause
// Two processes of one host for tests of SameHost.
#pragma once

#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/io/memory_link.h"
#include "engine/io/same_host/same_host.h"
#include "tests/engine/io/same_host/peer_pair.h"
#include "tests/engine/io/test_packet.h"
#include "wire/bytes.h"

namespace uroce::io::test {

inline constexpr uint32_t kRangeBits = 14;
inline constexpr uint32_t kOurs = 5, kTheirs = 6;

// Stands still unless a test moves it.
inline Time test_time;

// One of the processes. Its network is a link to the other one, where a test sees what did not go by memory.
struct Process {
  explicit Process(std::unique_ptr<MemoryEnd> end) : network(*end) {
    io = std::make_unique<SameHost>(std::move(end),
                                    SameHost::Config{.range_bits = kRangeBits,
                                                     .meet = [this](uint32_t range) { asked.push_back(range); },
                                                     .bury = [] {},
                                                     .peers = peers,
                                                     .now = [] { return test_time; }});
  }
  std::vector<RxPacket> receive(PacketIo& from) {
    const size_t count = from.receive(received);
    return {received.begin(), received.begin() + static_cast<ptrdiff_t>(count)};
  }
  std::vector<RxPacket> receive() { return receive(*io); }
  // Until one call brings something. The network gets a look now and then only.
  std::vector<RxPacket> receive_some() {
    std::vector<RxPacket> packets;
    for (int i = 0; i < 100 && packets.empty(); ++i, test_time += std::chrono::microseconds(1)) packets = receive();
    return packets;
  }
  bool would_wake() const {
    const std::span<const pollfd> descriptors = io->wait_descriptors();
    std::vector<pollfd> waits(descriptors.begin(), descriptors.end());
    return poll(waits.data(), waits.size(), 0) > 0;
  }

  MemoryEnd& network;
  std::vector<uint32_t> asked;
  std::shared_ptr<PeerExchange> peers = std::make_shared<PeerExchange>();
  std::unique_ptr<SameHost> io;
  std::array<RxPacket, 64> received;
};

class SameHostTest : public testing::Test {
 protected:
  SameHostTest() : SameHostTest(make_memory_link()) {}
  explicit SameHostTest(std::pair<std::unique_ptr<MemoryEnd>, std::unique_ptr<MemoryEnd>> link)
      : ours(std::move(link.first)), theirs(std::move(link.second)) {}

  void meet() {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    ASSERT_TRUE(theirs.peers->add(kOurs, std::move(other)));
  }
  static void add(TestBurst& burst, uint32_t psn, size_t size, uint32_t range = kTheirs) {
    burst.add(envelope_v4(), psn, size);
    wire::store_be24(&burst.packets().back().header[5], range << kRangeBits | 77);
    burst.packets().back().to_this_host = true;
  }
  static TestBurst burst_of(uint32_t count, size_t size = 100) {
    TestBurst burst;
    for (uint32_t psn = 0; psn < count; ++psn) add(burst, psn, size);
    return burst;
  }
  size_t sent_by_network() const { return ours.network.counters().tx_packets; }

  Process ours, theirs;
};

}  // namespace uroce::io::test
