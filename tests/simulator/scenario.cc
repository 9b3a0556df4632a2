// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/scenario.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

namespace uroce::simulator {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::QpState;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed ^ 0x9e3779b97f4a7c15) {}
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + random_() % choices.size());
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  std::mt19937_64 random_;
};

LinkConfig random_link(Draw& draw) {
  LinkConfig link;
  link.bits_per_second = draw.one_of({1e9, 10e9, 25e9, 100e9});
  link.delay = draw.one_of<Duration>({microseconds(1), microseconds(10), microseconds(100), milliseconds(1)});
  link.queue_frames = draw.one_of({8u, 64u, 1024u});
  if (draw.chance(0.6)) link.drop = draw.one_of({0.001, 0.01, 0.05, 0.1, 0.2});
  if (draw.chance(0.3)) link.drop_burst = 3;
  if (draw.chance(0.4)) link.duplicate = draw.one_of({0.001, 0.01, 0.1});
  if (draw.chance(0.4)) link.reorder = draw.one_of({0.001, 0.01, 0.1});
  if (draw.chance(0.4)) link.corrupt = draw.one_of({0.001, 0.01, 0.05});
  link.reorder_delay = draw.one_of<Duration>({microseconds(5), microseconds(50), milliseconds(2)});
  return link;
}

}  // namespace

Scenario random_scenario(uint64_t seed) {
  Draw draw(seed);
  Scenario s;
  s.name = "random";
  s.link = random_link(draw);
  s.star = draw.chance(0.25);
  if (s.star) {
    s.downlink = random_link(draw);
    s.downlink.queue_frames = draw.one_of({32u, 256u});
    s.downlink.mark_from = 8;
    s.downlink.mark_all_from = 24;
  }
  s.connections = draw.one_of({1u, 1u, 1u, 2u, 4u});
  s.first_psn = draw.one_of({0u, 0x7fffc0u, 0x800000u, 0xffff80u, 0xfffffeu, draw.below(1u << 24)});
  transport::QpAttributes& a = s.attributes;
  a.path_mtu = draw.one_of({256u, 512u, 1024u, 2048u, 4096u});
  a.max_rd_atomic = a.max_dest_rd_atomic = static_cast<uint8_t>(draw.one_of({1, 2, 4, 16}));
  a.min_rnr_timer = static_cast<uint8_t>(draw.one_of({1, 5, 12, 20}));
  a.timeout = static_cast<uint8_t>(draw.one_of({8, 12, 14, 18}));  // 1 ms .. 1 s
  s.qp.depth = draw.one_of({32u, 64u});
  s.qp.signal_all = draw.chance(0.2);
  s.traffic.messages = 10 + static_cast<int>(draw.below(60));
  s.traffic.under_way = draw.one_of({1u, 4u, 16u, 32u});
  s.traffic.max_size = draw.one_of({64u, 3000u, 20000u, 70000u});
  s.traffic.all_signaled = draw.chance(0.3) || s.qp.signal_all;
  if (draw.chance(0.3)) s.traffic.receive_lag = draw.one_of<Duration>({microseconds(100), milliseconds(5)});
  s.traffic.errors_allowed = true;
  s.both_directions = draw.chance(0.7);
  return s;
}

uint64_t parse_seed(const char* text) {
  if (std::strcmp(text, "fresh") == 0) return std::random_device{}();
  return std::strtoull(text, nullptr, 0);
}

namespace {

class Run {
 public:
  Run(const Scenario& scenario, uint64_t seed) : scenario_(scenario), network_(seed) {
    if (scenario.star) {
      network_.join_star(static_cast<int>(scenario.connections) + 1, scenario.link, scenario.downlink);
    } else {
      network_.join_pair(scenario.link, scenario.link);
    }
    for (uint32_t i = 0; i < scenario.connections; ++i) add_connection(i);
  }

  Outcome go() {
    const Time start = network_.events.now();
    const bool done = network_.events.run_until([this] { return advance(); }, scenario_.limit);
    outcome_.duration = network_.events.now() - start;
    if (!done) fail("hang: " + progress());
    network_.events.run_for(std::chrono::seconds(1));  // what is late must not do harm
    end_all();
    for (const auto& traffic : traffics_) collect(*traffic);
    count();
    if (outcome_.error.empty()) outcome_.error = network_.judge.finish();
    return outcome_;
  }

  bool write_capture(const std::string& path) const { return network_.judge.write_capture(path); }

 private:
  void add_connection(uint32_t i) {
    Host& a = *network_.hosts[0];
    Host& b = *network_.hosts[scenario_.star ? i + 1 : 1];
    const auto c = network_.connect(a, b, scenario_.attributes, scenario_.first_psn + i,
                                    (scenario_.first_psn ^ 0x800000) - i, scenario_.qp, scenario_.qp);
    const uint32_t mtu = scenario_.attributes.path_mtu;
    traffics_.push_back(std::make_unique<Traffic>(a, c.a, b, c.b, network_.random, scenario_.traffic, mtu));
    if (!scenario_.both_directions) return;
    traffics_.push_back(std::make_unique<Traffic>(b, c.b, a, c.a, network_.random, scenario_.traffic, mtu));
  }

  bool advance() {
    bool done = true;
    for (const auto& traffic : traffics_) {
      traffic->step();
      if (traffic->failed()) return true;
      done = done && traffic->done();
    }
    return done;
  }

  // Whatever is still posted comes back with a flush error, once.
  void end_all() {
    for (const auto& host : network_.hosts) {
      for (const auto& qp : host->qps()) qp->modify(QpState::kErr);
    }
    for (const auto& traffic : traffics_) traffic->finish();
  }

  void collect(const Traffic& traffic) {
    if (traffic.failed()) fail(traffic.error());
    outcome_.bytes += traffic.bytes();
    outcome_.completed += traffic.completed();
    outcome_.ended_by_error |= traffic.ended_by_error();
  }

  void count() {
    for (const auto& link : network_.links) {
      outcome_.frames += link->counters.sent;
      outcome_.frames_lost += link->counters.dropped + link->counters.overflowed;
    }
    for (const auto& host : network_.hosts) {
      outcome_.retransmissions += host->counters.get(Counter::kTxRetransmissions);
      outcome_.timeouts += host->counters.get(Counter::kTimeouts);
      outcome_.probes += host->counters.get(Counter::kProbes);
      outcome_.naks += host->counters.get(Counter::kTxNaks);
      outcome_.rnr_naks += host->counters.get(Counter::kTxRnrNaks);
    }
  }

  void fail(const std::string& what) {
    if (outcome_.error.empty()) outcome_.error = what;
  }

  std::string progress() const {
    std::string text;
    for (const auto& traffic : traffics_) {
      text += std::to_string(traffic->completed()) + "/" + std::to_string(scenario_.traffic.messages) + " ";
    }
    return text + "completed";
  }

  const Scenario scenario_;
  Network network_;
  std::vector<std::unique_ptr<Traffic>> traffics_;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Scenario& scenario, uint64_t seed, const std::string& capture) {
  Run simulation(scenario, seed);
  Outcome outcome = simulation.go();
  if (!outcome.error.empty() && !capture.empty()) {
    outcome.error += simulation.write_capture(capture) ? "; capture in " + capture : "; cannot write " + capture;
  }
  return outcome;
}

}  // namespace uroce::simulator
