// SPDX-License-Identifier: BSD-2-Clause
// What tests of faults share: attributes and work requests in few words, and all the traffic of a network.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "tests/simulator/network.h"
#include "tests/simulator/traffic.h"

namespace uroce::simulator {

inline transport::QpAttributes patience(uint8_t timeout, uint8_t retry_count) {
  auto attributes = Network::default_attributes();
  attributes.timeout = timeout;
  attributes.retry_count = retry_count;
  return attributes;
}

inline queue::SendWqe work(queue::WrOpcode opcode, uint64_t wr_id, uint64_t address = 0, uint32_t rkey = 0) {
  queue::SendWqe wqe{};
  wqe.wr_id = wr_id;
  wqe.opcode = opcode;
  wqe.flags = queue::kSignaled;
  wqe.remote_address = address;
  wqe.rkey = rkey;
  return wqe;
}

// All traffics of a network, stepped after every event or now and then.
class Traffics {
 public:
  explicit Traffics(Network& network) : network_(network) {}

  Traffic& add(Host& from_host, SimQp& from, Host& to_host, SimQp& to, const TrafficConfig& config,
               uint32_t path_mtu = 1024) {
    return *all_.emplace_back(
        std::make_unique<Traffic>(from_host, from, to_host, to, network_.random, config, path_mtu));
  }
  void both_ways(Pair& pair, const TrafficConfig& config) {
    add(pair.host_a, pair.a, pair.host_b, pair.b, config);
    add(pair.host_b, pair.b, pair.host_a, pair.a, config);
  }

  bool step() {
    bool done = true;
    for (const auto& traffic : all_) {
      traffic->step();
      if (traffic->failed()) return true;
      done = done && traffic->done();
    }
    return done;
  }
  bool run(Duration limit) {
    return network_.events.run_until([this] { return step(); }, limit);
  }
  // Applications that look only this often: the work lasts, however fast the network is.
  bool run_slowly(Duration pace, Duration limit) {
    const Time end = network_.events.now() + limit;
    while (!step()) {
      if (network_.events.now() > end) return false;
      network_.events.run_for(pace);
    }
    return true;
  }

  // Late packets do no harm, whatever is left is flushed, and the oracles have nothing to say.
  void expect_exact() {
    network_.events.run_for(std::chrono::seconds(1));
    for (const auto& host : network_.hosts) {
      for (const auto& qp : host->qps()) qp->modify(transport::QpState::kErr);
    }
    for (const auto& traffic : all_) {
      traffic->finish();
      EXPECT_EQ(traffic->error(), "");
    }
    EXPECT_EQ(network_.judge.finish(), "");
  }

 private:
  Network& network_;
  std::vector<std::unique_ptr<Traffic>> all_;
};

}  // namespace uroce::simulator
