// SPDX-License-Identifier: BSD-2-Clause
// What a simulation consists of: virtual time, one source of chance, hosts and what joins them. One seed decides
// everything. Every frame at every host is judged by the oracle and kept for a capture file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/simulator/event_queue.h"
#include "tests/simulator/host.h"
#include "tests/simulator/judge.h"
#include "tests/simulator/link.h"
#include "tests/simulator/switch.h"

namespace uroce::simulator {

class Network {
 public:
  explicit Network(uint64_t seed_of_all) : seed(seed_of_all), random(seed), judge(events) {}
  ~Network() {
    if (at_end) at_end(*this);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Two hosts and a cable.
  void join_pair(const LinkConfig& forward, const LinkConfig& backward);
  // `hosts` hosts at a switch: `uplink` from each host, `downlink` to each, whose queue is the switch's.
  void join_star(int hosts, const LinkConfig& uplink, const LinkConfig& downlink);

  // Connects two QPs, new ones on these hosts. `psn_a`: the first PSN of a's requests; `psn_b`: of b's.
  struct Connection {
    SimQp& a;
    SimQp& b;
  };
  Connection connect(Host& host_a, Host& host_b, const transport::QpAttributes& attributes, uint32_t psn_a,
                     uint32_t psn_b, const QpConfig& config_a = {}, const QpConfig& config_b = {});

  static transport::QpAttributes default_attributes();

  // Called with every network at its end, if set: see capture_on_failure.cc.
  static inline std::function<void(const Network&)> at_end;

  const uint64_t seed;
  congestion::Algorithm algorithm = congestion::Algorithm::kAuto;  // of the hosts that are joined after it is set
  EventQueue events;
  std::mt19937_64 random;
  Judge judge;
  std::vector<std::unique_ptr<Link>> links;  // pair: forward, backward; star: the uplinks
  std::unique_ptr<Switch> fabric;
  std::vector<std::unique_ptr<Host>> hosts;

 protected:
  void connect_one(Host& host, SimQp& qp, Host& peer_host, SimQp& peer, transport::QpAttributes attributes,
                   uint32_t sq_psn, uint32_t rq_psn);

 private:
  Link& add_link(const LinkConfig& config);
};

// The smallest network: two hosts, one connection.
struct Pair : Network {
  explicit Pair(uint64_t seed_of_all, const LinkConfig& link = {}, const QpConfig& config = {});
  // Call before anything else; `psn_a`: the first PSN of a's requests.
  void connect(const transport::QpAttributes& attributes = default_attributes(), uint32_t psn_a = 0x111111,
               uint32_t psn_b = 0x222222);

  Host& host_a;
  Host& host_b;
  Link& forward;   // a to b
  Link& backward;  // b to a
  SimQp& a;
  SimQp& b;
};

}  // namespace uroce::simulator
