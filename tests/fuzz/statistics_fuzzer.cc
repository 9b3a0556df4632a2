// SPDX-License-Identifier: BSD-2-Clause
// Any text as what a process says of itself to `uroce stat`.
//
// Checked: what is taken is within its bounds and means the same when it is written out and read again; nothing that is
// printed has a character that a terminal might obey, or ends a line of Prometheus early.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "broker/protocol/statistics.h"
#include "cli/stat_figures.h"
#include "cli/stat_formats.h"
#include "cli/stat_text.h"
#include "tests/fuzz/check.h"

namespace uroce::fuzz {
namespace {

void printed(const std::string& text) {
  check(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }),
        "what is printed is printable");
}

void shown(const broker::ProcessStatistics& statistics) {
  broker::Process process{.client = 1, .pid = 2, .uid = 0, .program = "program"};
  process.answer = broker::Process::Answer::kWhole;
  process.statistics = statistics;
  broker::Process before = process;
  before.statistics.time /= 2;
  cli::Figures figures{.broker = "uroced", .interval = 1, .processes = cli::figures_of({process}, {before})};
  printed(cli::stat_json(figures));
  printed(cli::stat_prometheus(figures));
  for (const std::string& line : cli::stat_rows(figures, "now")) printed(line);
  check(cli::stat_lines(figures, 24).size() <= 24, "it fits the screen");
  for (const std::string& line : cli::stat_lines(figures)) {
    printed(line);
    check(line.find('\n') == std::string::npos, "a line is one line");
  }
}

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace uroce;
  const auto statistics = broker::parse_statistics({reinterpret_cast<const char*>(data), size});
  if (!statistics) return 0;
  size_t qps = 0;
  for (const broker::DeviceStatistics& device : statistics->devices) qps += device.qps.size();
  fuzz::check(qps <= broker::kMostQps, "QPs are bounded");
  const auto again = broker::parse_statistics(broker::format_statistics(*statistics));
  fuzz::check(again.has_value(), "what is written can be read");
  fuzz::check(broker::format_statistics(*again) == broker::format_statistics(*statistics), "and is the same");
  fuzz::shown(*statistics);
  return 0;
}
