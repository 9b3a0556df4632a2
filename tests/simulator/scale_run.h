// SPDX-License-Identifier: BSD-2-Clause
// Many hosts in a two-tier network, and what congestion makes of their messages: who gets how much of the links, how
// long messages take, how long queues become. Used by the program (scale.cc) and by its short form (scale_test.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/congestion/controller.h"
#include "tests/simulator/fabric.h"

namespace uroce::simulator {

enum class Pattern : uint8_t {
  kIncast,       // `senders` hosts to one
  kPermutation,  // `senders` hosts, each to another one, no two to the same
  kHotSpot,      // the same, but a share of their messages goes to a few hosts
};
enum class Work : uint8_t { kWrite, kSend, kRead, kMix };

struct ScaleConfig {
  Pattern pattern = Pattern::kIncast;
  uint32_t senders = 64;  // READ: those whose memory is read
  Work work = Work::kWrite;
  uint32_t message_size = 65536;
  uint32_t depth = 4;  // messages of a sender under way, at most
  // The share of its link that a sender offers, with messages at random times (Poisson); 0: as much as it can.
  double load = 0;
  double hot_share = 0.25;
  uint32_t hot_hosts = 8;

  uint32_t hosts = 1000;
  double gigabits = 10;  // of a host's link
  double trunk = 4;      // links between switches, in links of hosts
  Duration hop_delay = std::chrono::microseconds(1);
  uint32_t nic_frames = 64;
  uint32_t queue_frames = 256;  // of each port of a switch
  // DCQCN's Kmin, Kmax and Pmax, at a host's port in frames; trunks have as many times more as they are faster.
  bool ecn = true;
  uint32_t mark_from = 5, mark_all_from = 50;
  double mark_at_most = 0.01;
  uint32_t path_mtu = 4096;
  uint8_t timeout = 14;  // 67 ms, seven retries
  congestion::Algorithm algorithm = congestion::Algorithm::kAuto;

  Duration warm_up = std::chrono::milliseconds(20);  // not measured
  Duration duration = std::chrono::seconds(10);
  uint64_t seed = 1;
};

struct ScaleResult {
  double goodput = 0;                   // payload, Gb/s
  double possible = 0;                  // as much as the links of hosts could carry of it
  double jain = 0;                      // of the senders' bytes: 1 if all had the same
  std::vector<Duration> message_times;  // sorted
  uint64_t failed_qps = 0, retransmissions = 0, timeouts = 0, cnps = 0, rate_cuts = 0;
  struct Queue {
    double mean = 0;
    uint32_t p99 = 0, longest = 0;
    uint64_t frames = 0, dropped = 0, marked = 0;
  };
  Queue queues[Fabric::kTiers];
  uint64_t events = 0;

  double used() const { return possible == 0 ? 0 : goodput / possible; }
  Duration message_time(double share) const {
    if (message_times.empty()) return {};
    return message_times[static_cast<size_t>(share * static_cast<double>(message_times.size() - 1))];
  }
};

// `on_progress` hears of the virtual time that has passed, a few hundred times.
ScaleResult run(const ScaleConfig& config, const std::function<void(Duration)>& on_progress = {});

}  // namespace uroce::simulator
