// SPDX-License-Identifier: BSD-2-Clause
#include "cli/stat.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <optional>
#include <thread>

#include "cli/complaint.h"
#include "cli/exit_codes.h"
#include "cli/screen.h"
#include "cli/stat_formats.h"
#include "cli/stat_looks.h"
#include "cli/stat_server.h"
#include "cli/stat_text.h"

namespace uroce::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

int finish_output() {
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return good ? kExitOk : complain(kExitFailed, "cannot write to standard output");
}

int show_once(const StatOptions& options) {
  Looks looks(options);
  const double interval = options.prometheus ? 0 : options.interval;
  if (const auto error = looks.look()) return complain_about(*error, options);
  if (interval > 0) {
    std::this_thread::sleep_for(milliseconds(interval));
    if (const auto error = looks.look()) return complain_about(*error, options);
  }
  const Figures figures = looks.figures(interval);
  if (options.json) {
    print(stat_json(figures));
  } else if (options.prometheus) {
    print(stat_prometheus(figures));
  } else {
    for (const std::string& line : stat_lines(figures)) print(line + "\n");
  }
  return finish_output();
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 16> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%H:%M:%S", &local);
  return {text.data(), size};
}

// A line for each device at each look, for pipes and files.
int watch_in_lines(const StatOptions& options) {
  constexpr uint64_t kHeadingEvery = 20;
  Looks looks(options);
  if (const auto error = looks.look()) return complain_about(*error, options);
  for (uint64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    std::this_thread::sleep_for(milliseconds(options.interval));
    if (const auto error = looks.look()) return complain_about(*error, options);
    if (shown % kHeadingEvery == 0) print(stat_rows_heading() + "\n");
    for (const std::string& line : stat_rows(looks.figures(options.interval), time_of_day())) print(line + "\n");
    if (const int failed = finish_output(); failed != kExitOk) return failed;
  }
  return kExitOk;
}

// The summary, with the time at the right end if there is room.
std::vector<std::string> screen_lines(const Figures& figures, const std::optional<io::IoError>& error, size_t rows) {
  if (error) return {fmt::format("{}  {}", time_of_day(), error->text()), "", "q ends this"};
  std::vector<std::string> lines = stat_lines(figures, rows);
  lines.front() = fmt::format("{}  {}", time_of_day(), lines.front());
  return lines;
}

int watch_on_screen(const StatOptions& options) {
  Looks looks(options);
  std::optional<io::IoError> error = looks.look();
  if (error) return complain_about(*error, options);
  Screen screen;
  const auto draw = [&] {
    screen.draw(screen_lines(looks.figures(options.interval), error, screen.rows()), is_heading);
  };
  draw();
  Clock::time_point next = Clock::now() + milliseconds(options.interval);
  for (uint64_t shown = 0; options.count == 0 || shown < options.count;) {
    const Screen::Event event = screen.wait(std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()));
    if (event == Screen::Event::kQuit) return kExitOk;
    if (event == Screen::Event::kNone) {
      if (Clock::now() < next) continue;
      error = looks.look(screen.descriptor());
      if (error && error->code == EINTR) continue;  // a key: looked at first
      next = std::max(next + milliseconds(options.interval), Clock::now());
      ++shown;
    }
    draw();
  }
  return kExitOk;
}

}  // namespace

int stat(const StatOptions& options) {
  if (options.watch && options.interval < 0.1)
    return complain(kExitUsage, fmt::format("--interval {}: --watch needs 0.1 or more", options.interval));
  if (!options.serve.empty()) return serve_stat(options);
  if (!options.watch) return show_once(options);
  return Screen::is_there() ? watch_on_screen(options) : watch_in_lines(options);
}

}  // namespace uroce::cli
