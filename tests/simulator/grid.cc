// SPDX-License-Identifier: BSD-2-Clause
// The network grid (faults.md, 33): goodput under loss x reordering, duplication, corruption, bursts x kind of work x
// path MTU x queue depth, as a table. Virtual time makes it exact, so a regression shows as a difference.
//
//   simulator_grid [--seed N|fresh] [--delay US] [--only TEXT] [--check FILE]
//
// --delay: us each way (10). --only: rows whose name has this in it. --check: also compares with a table that was
// printed before (tests/simulator/grid.txt), and with what is promised.
// Exit code 0: every byte right, nothing worse than before.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/simulator/scenario.h"

using namespace uroce::simulator;
using uroce::queue::WrOpcode;

namespace {

constexpr double kLosses[] = {0, 0.001, 0.01, 0.05, 0.10, 0.20};

struct Work {
  const char* name;
  std::vector<WrOpcode> kinds;
  uint32_t size;
  bool fixed;
  int seeds;  // the mean of as many runs: where messages are drawn by lot, one run tells little of the next
};

const Work kWorks[] = {
    {"write64k", {WrOpcode::kRdmaWrite}, 65536, true, 1},
    {"read64k", {WrOpcode::kRdmaRead}, 65536, true, 1},
    {"send4k", {WrOpcode::kSend}, 4096, true, 1},
    {"mixed", TrafficConfig{}.kinds, 40000, false, 8},
};

struct Weather {
  const char* name;
  double duplicate, reorder, corrupt;
  uint32_t burst;
};

constexpr Weather kWeathers[] = {
    {"loss", 0, 0, 0, 1},         {"burst3", 0, 0, 0, 3},       {"dup1%", 0.01, 0, 0, 1},
    {"reorder1%", 0, 0.01, 0, 1}, {"corrupt1%", 0, 0, 0.01, 1}, {"all", 0.01, 0.01, 0.01, 3},
};

// `nic`: frames that the sender's NIC takes ahead of the wire. AF_XDP in generic mode and veth send at once; a deep
// ring of a real NIC is a queue that a NAK cannot overtake.
struct Shape {
  uint32_t path_mtu, depth, nic;
};

constexpr Shape kShapes[] = {{1024, 16, 8}, {1024, 16, 1024}, {1024, 1, 8},
                             {256, 16, 8},  {4096, 16, 8},    {4096, 16, 1024}};

// 10 Gb/s, `delay` each way.
Scenario cell(const Work& work, const Weather& weather, const Shape& shape, double loss, int64_t delay) {
  Scenario s;
  s.link.bits_per_second = 10e9;
  s.link.delay = std::chrono::microseconds(delay);
  s.link.queue_frames = shape.nic;
  s.link.drop = loss / weather.burst;  // the share of lost frames stays the same
  s.link.drop_burst = weather.burst;
  s.link.duplicate = weather.duplicate;
  s.link.reorder = weather.reorder;
  s.link.corrupt = weather.corrupt;
  s.attributes.path_mtu = shape.path_mtu;
  s.traffic.kinds = work.kinds;
  s.traffic.max_size = work.size;
  s.traffic.fixed_size = work.fixed;
  s.traffic.under_way = shape.depth;
  s.traffic.all_signaled = work.fixed;
  s.traffic.messages = work.size > 10000 ? (shape.depth == 1 ? 60 : 200) : 800;
  s.traffic.errors_allowed = loss >= 0.2;
  s.both_directions = !work.fixed;
  return s;
}

std::string row_name(const Work& work, const Weather& weather, const Shape& shape) {
  char text[80];
  std::snprintf(text, sizeof text, "%-9s mtu %-4u depth %-2u nic %-4u %-9s", work.name, shape.path_mtu, shape.depth,
                shape.nic, weather.name);
  return text;
}

// Gb/s. -1: the retries were exhausted, in each of the runs. NaN: something went wrong, and was printed.
double mean_goodput(const Work& work, const Scenario& scenario, uint64_t first_seed, const std::string& name) {
  double sum = 0;
  int ended = 0;
  for (int i = 0; i < work.seeds; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    const Outcome outcome = run(scenario, seed, "simulator-grid-failure.pcapng");
    if (!outcome.error.empty()) {
      std::printf("%s at loss %.3f: %s\nrepeat: simulator_grid --seed %" PRIu64 "\n", name.c_str(), scenario.link.drop,
                  outcome.error.c_str(), seed);
      return std::nan("");
    }
    outcome.ended_by_error ? ++ended : sum += outcome.gigabits_per_second();
  }
  return ended == work.seeds ? -1 : sum / work.seeds;
}

// What a row holds: Gb/s without loss of frames, then percent of that for each loss. -1: the retries were exhausted.
using Row = std::vector<double>;
using Table = std::map<std::string, Row>;

Table read_table(const std::string& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t bar = line.find('|');
    if (bar == std::string::npos || line.empty() || line[0] == '#') continue;
    std::istringstream cells(line.substr(bar + 1));
    Row row;
    for (std::string value; cells >> value;) row.push_back(value == "ended" ? -1 : std::atof(value.c_str()));
    table[line.substr(0, bar)] = row;
  }
  return table;
}

bool print_row(const std::string& name, const Row& row) {
  std::printf("%s|%7.2f", name.c_str(), row[0]);
  for (size_t i = 1; i < row.size(); ++i) {
    row[i] < 0 ? std::printf("%7s", "ended") : std::printf("%7.1f", row[i]);
  }
  std::printf("\n");
  std::fflush(stdout);
  return true;
}

// Exact virtual time moves a little with every change of the transport; a tenth is a regression.
bool worse(double now, double before) {
  return before > 0 && now < 0.9 * before - 1;
}

bool compare(const std::string& name, const Row& row, const Table& reference) {
  const auto found = reference.find(name);
  if (found == reference.end() || found->second.size() != row.size()) {
    std::printf("not in the reference: %s\n", name.c_str());
    return false;
  }
  bool good = true;
  for (size_t i = 0; i < row.size(); ++i) {
    if (!worse(row[i], found->second[i])) continue;
    std::printf("regression: %s column %zu: %.2f, was %.2f\n", name.c_str(), i, row[i], found->second[i]);
    good = false;
  }
  return good;
}

// What must hold: WRITEs of 64 KiB at depth 16, path MTU 1024, the NIC's queue short and long.
bool keeps_promise(const std::string& name, const Row& row) {
  const auto is = [&name](const Shape& shape) { return name == row_name(kWorks[0], kWeathers[0], shape); };
  if (!is(kShapes[0]) && !is(kShapes[1])) return true;
  const bool good = row[1] >= 96 && row[2] >= 72;
  if (!good) std::printf("promise broken: at 0.1 %% loss at least 96 %%, at 1 %% at least 72 %%\n");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1;
  int64_t delay = 10;
  std::string check, only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seed") seed = parse_seed(argv[i + 1]);
    if (name == "--delay") delay = std::atoll(argv[i + 1]);
    if (name == "--only") only = argv[i + 1];
    if (name == "--check") check = argv[i + 1];
  }
  if (argc % 2 == 0)
    return std::puts("usage: simulator_grid [--seed N|fresh] [--delay US] [--only TEXT] [--check FILE]"), 2;
  const Table reference = check.empty() ? Table{} : read_table(check);
  if (!check.empty() && reference.empty()) return std::printf("no table in %s\n", check.c_str()), 2;

  std::printf("# seed %" PRIu64 ", 10 Gb/s, %" PRId64 " us each way; percent of the row's goodput without loss\n", seed,
              delay);
  std::printf("# %-44s|   Gb/s   0.1%%     1%%     5%%    10%%    20%%\n", "work, path MTU, depth, network");
  bool good = true;
  for (const Work& work : kWorks) {
    for (const Shape& shape : kShapes) {
      for (const Weather& weather : kWeathers) {
        // All of the weather for the first shape, the extremes of it for the others.
        const bool extreme = &weather == std::begin(kWeathers) || &weather == std::end(kWeathers) - 1;
        if (&shape != std::begin(kShapes) && !extreme) continue;
        const std::string name = row_name(work, weather, shape);
        if (name.find(only) == std::string::npos) continue;
        Row row;
        for (const double loss : kLosses) {
          const double goodput = mean_goodput(work, cell(work, weather, shape, loss, delay), seed, name);
          if (std::isnan(goodput)) return 1;
          row.push_back(goodput < 0 || row.empty() ? goodput : 100 * goodput / row[0]);
        }
        print_row(name, row);
        if (!check.empty()) good = compare(name, row, reference) && keeps_promise(name, row) && good;
      }
    }
  }
  return good ? 0 : 1;
}
