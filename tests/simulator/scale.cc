// SPDX-License-Identifier: BSD-2-Clause
// A thousand hosts in a two-tier network: incast, permutation and hot spots, with and without ECN, as a table and as
// JSON (docs/congestion.md, "At scale").
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/simulator/scale_run.h"
#include "tests/simulator/scenario.h"

using namespace uroce::simulator;
using uroce::Duration;
using uroce::congestion::Algorithm;

namespace {

constexpr const char* kHelp =
    R"(1000 hosts in a two-tier network (leaf and spine, ECMP), each one the datapath that ships; RC QPs.

incast       64 hosts write to one as fast as they can
permutation  1000 hosts, each to another one
hotspot      the same, but a quarter of the messages goes to 8 hosts

All hosts have connections; --senders says how many of them send. A core simulates 0.2 to 0.3 million packets in a
second. So an incast of 10 virtual seconds at 10 Gb/s (3 million packets of 4 KiB) takes ten seconds; 1000 hosts at full
rate are 300 million packets in a virtual second, twenty minutes. Where 10 virtual seconds of all hosts are wanted,
offer less (--load 0.02 takes five minutes) or take fewer senders.)";

struct Scenarios {
  ScaleConfig config;
  std::vector<std::string> patterns = {"incast", "permutation", "hotspot"};
  std::string ecn = "both", cc, work = "write", json, seed = "1";
  double seconds = 10, warm_up = 0.02;
  uint32_t senders = 0;
};

const std::map<std::string, Pattern> kPatterns = {
    {"incast", Pattern::kIncast}, {"permutation", Pattern::kPermutation}, {"hotspot", Pattern::kHotSpot}};
const std::map<std::string, Work> kWorks = {
    {"write", Work::kWrite}, {"send", Work::kSend}, {"read", Work::kRead}, {"mix", Work::kMix}};
const std::map<std::string, Algorithm> kAlgorithms = {
    {"auto", Algorithm::kAuto}, {"dcqcn", Algorithm::kDcqcn}, {"delay", Algorithm::kDelay}, {"off", Algorithm::kOff}};
constexpr const char* kTierNames[] = {"NIC", "leaf to spine", "spine to leaf", "leaf to host"};

double microseconds_of(Duration time) {
  return static_cast<double>(time.count()) / 1000;
}

void show_progress(const std::string& name, double done, std::chrono::steady_clock::time_point start) {
  if (!isatty(STDERR_FILENO)) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  constexpr int kWidth = 40;
  const int bars = static_cast<int>(done * kWidth);
  std::fputs(fmt::format("\r{:<28} [{}{}] {:3.0f} %, {:.0f} s left ", name, std::string(bars, '#'),
                         std::string(kWidth - bars, '.'), 100 * done, seconds / done - seconds)
                 .c_str(),
             stderr);
  if (done >= 1) std::fputs("\r\x1b[K", stderr);
}

void print_table(const std::string& name, const ScaleResult& r, double seconds) {
  std::puts(
      fmt::format("{}\n  goodput {:.2f} of {:.2f} Gb/s ({:.1f} %), Jain {:.4f}, {} messages: median {:.0f} us, 99 % "
                  "{:.0f}, 99.9 % {:.0f}, longest {:.0f}\n  CNPs {}, rate cuts {}, sent again {}, timeouts {}, "
                  "failed QPs {}; {} events in {:.1f} s ({:.2f} million a second)",
                  name, r.goodput, r.possible, 100 * r.used(), r.jain, r.message_times.size(),
                  microseconds_of(r.message_time(0.5)), microseconds_of(r.message_time(0.99)),
                  microseconds_of(r.message_time(0.999)), microseconds_of(r.message_time(1)), r.cnps, r.rate_cuts,
                  r.retransmissions, r.timeouts, r.failed_qps, r.events, seconds,
                  static_cast<double>(r.events) / seconds / 1e6)
          .c_str());
  std::puts("  queue            mean  99 %  longest       frames   dropped    marked");
  for (size_t tier = 0; tier < Fabric::kTiers; ++tier) {
    const ScaleResult::Queue& q = r.queues[tier];
    std::puts(fmt::format("  {:<14} {:6.1f} {:5} {:8} {:12} {:9} {:9}", kTierNames[tier], q.mean, q.p99, q.longest,
                          q.frames, q.dropped, q.marked)
                  .c_str());
  }
  std::fflush(stdout);
}

std::string as_json(const std::string& name, uint64_t seed, const ScaleResult& r) {
  std::string queues;
  for (size_t tier = 0; tier < Fabric::kTiers; ++tier) {
    const ScaleResult::Queue& q = r.queues[tier];
    queues += fmt::format(
        R"({}"{}": {{"mean": {:.2f}, "p99": {}, "longest": {}, "frames": {}, "dropped": {}, "marked": {}}})",
        tier == 0 ? "" : ", ", kTierNames[tier], q.mean, q.p99, q.longest, q.frames, q.dropped, q.marked);
  }
  return fmt::format(
      R"({{"scenario": "{}", "seed": {}, "goodput_gbps": {:.3f}, "possible_gbps": {:.3f}, "jain": {:.4f}, )"
      R"("messages": {}, "median_us": {:.1f}, "p99_us": {:.1f}, "p999_us": {:.1f}, "longest_us": {:.1f}, )"
      R"("cnps": {}, "rate_cuts": {}, "retransmissions": {}, "timeouts": {}, "failed_qps": {}, "events": {}, )"
      R"("queues": {{{}}}}})",
      name, seed, r.goodput, r.possible, r.jain, r.message_times.size(), microseconds_of(r.message_time(0.5)),
      microseconds_of(r.message_time(0.99)), microseconds_of(r.message_time(0.999)), microseconds_of(r.message_time(1)),
      r.cnps, r.rate_cuts, r.retransmissions, r.timeouts, r.failed_qps, r.events, queues);
}

void add_options(CLI::App& app, Scenarios& s) {
  ScaleConfig& c = s.config;
  app.option_defaults()->always_capture_default();
  app.add_option("patterns", s.patterns, "which")->check(CLI::IsMember({"incast", "permutation", "hotspot"}));
  app.add_option("--seconds", s.seconds, "of virtual time, measured")->check(CLI::PositiveNumber);
  app.add_option("--warm-up", s.warm_up, "seconds before, not measured");
  app.add_option("--seed", s.seed, "a number or 'fresh'");
  app.add_option("--hosts", c.hosts)->check(CLI::Range(2, 60000));
  app.add_option("--senders", s.senders, "0: 64 for incast, else all");
  app.add_option("--load", c.load, "share of its link that a sender offers, at random times; 0: all it can");
  app.add_option("--work", s.work)->check(CLI::IsMember({"write", "send", "read", "mix"}));
  app.add_option("--size", c.message_size, "bytes of a message")->check(CLI::Range(1, 1 << 30));
  app.add_option("--depth", c.depth, "messages of a sender under way")->check(CLI::Range(1, 1000));
  app.add_option("--hot-share", c.hot_share, "of all messages")->check(CLI::Range(0.0, 1.0));
  app.add_option("--hot-hosts", c.hot_hosts);
  app.add_option("--gigabits", c.gigabits, "of a host's link")->check(CLI::PositiveNumber);
  app.add_option("--trunk", c.trunk, "a link between switches, in links of hosts")->check(CLI::PositiveNumber);
  app.add_option("--path-mtu", c.path_mtu)->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--nic", c.nic_frames, "frames in a NIC's queue");
  app.add_option("--queue", c.queue_frames, "frames in a switch port's queue");
  app.add_option("--ecn", s.ecn, "whether switches mark")->check(CLI::IsMember({"yes", "no", "both"}));
  app.add_option("--kmin", c.mark_from, "frames from which on some are marked");
  app.add_option("--kmax", c.mark_all_from, "frames from which on all are");
  app.add_option("--pmax", c.mark_at_most, "probability of a mark below");
  app.add_option("--cc", s.cc, "as UROCE_CC; else auto with ECN and delay without")
      ->check(CLI::IsMember({"auto", "dcqcn", "delay", "off"}));
  app.add_option("--json", s.json, "a file to write results to");
}

ScaleConfig config_of(const Scenarios& s, const std::string& pattern, bool ecn, uint64_t seed) {
  ScaleConfig c = s.config;
  c.pattern = kPatterns.at(pattern);
  c.work = kWorks.at(s.work);
  c.ecn = ecn;
  c.algorithm = !s.cc.empty() ? kAlgorithms.at(s.cc) : ecn ? Algorithm::kAuto : Algorithm::kDelay;
  c.senders = s.senders != 0 ? s.senders : c.pattern == Pattern::kIncast ? 64 : c.hosts;
  c.duration = Duration(static_cast<int64_t>(s.seconds * 1e9));
  c.warm_up = Duration(static_cast<int64_t>(s.warm_up * 1e9));
  c.seed = seed;
  return c;
}

}  // namespace

int main(int argc, char** argv) {
  Scenarios s;
  CLI::App app(kHelp, "simulator_scale");
  add_options(app, s);
  CLI11_PARSE(app, argc, argv);
  const uint64_t seed = parse_seed(s.seed.c_str());
  std::string json;
  for (const std::string& pattern : s.patterns) {
    for (const bool ecn : {true, false}) {
      if (s.ecn == (ecn ? "no" : "yes")) continue;
      const ScaleConfig config = config_of(s, pattern, ecn, seed);
      const std::string name = fmt::format("{}, {}, seed {}", pattern, ecn ? "ECN" : "no ECN", seed);
      const auto start = std::chrono::steady_clock::now();
      const ScaleResult result = run(config, [&](Duration passed) {
        show_progress(name, static_cast<double>(passed.count()) / static_cast<double>(config.duration.count()), start);
      });
      print_table(name, result, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      json += (json.empty() ? "" : ",\n ") + as_json(name, seed, result);
    }
  }
  if (s.json.empty()) return 0;
  std::FILE* const file = std::fopen(s.json.c_str(), "w");
  if (file == nullptr) return std::perror(s.json.c_str()), 1;
  std::fputs(("[" + json + "]\n").c_str(), file);
  return std::fclose(file) == 0 ? 0 : 1;
}
