// SPDX-License-Identifier: BSD-2-Clause
#include "base/spare_cpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <fcntl.h>
#include <new>
#include <sched.h>
#include <string>
#include <system_error>
#include <unistd.h>

#include "base/caller_state.h"
#include "base/unique_fd.h"

namespace uroce {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(5);
constexpr Duration kQuotaInterval = std::chrono::seconds(1);

using Text = std::array<char, 512>;

// Empty: it cannot be read.
std::string_view read_file(const char* path, Text& text) {
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  return {text.data(), size > 0 ? static_cast<size_t>(size) : 0};
}

// Of this process's cgroup and of those above it. In a container the root is the container's, and has the quota.
bool has_quota() {
  Text text;
  std::string_view groups = read_file("/proc/self/cgroup", text);
  const size_t unified = groups.rfind("0::/");
  if (unified == std::string_view::npos) return false;
  groups.remove_prefix(unified + 3);
  std::string folder(groups.substr(0, groups.find('\n')));
  while (true) {
    Text limit;
    if (is_limited(read_file(("/sys/fs/cgroup" + folder + "/cpu.max").c_str(), limit))) return true;
    if (folder.size() <= 1) return false;
    folder.resize(std::max<size_t>(folder.rfind('/'), 1));
  }
}

bool look() {
  Text text;
  const std::optional<unsigned> running = runnable_threads(read_file("/proc/loadavg", text));
  cpu_set_t allowed;
  if (!running || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;  // more CPUs than it has room for
  return *running <= static_cast<unsigned>(CPU_COUNT(&allowed));
}

std::atomic<Time> looked_at{Time{}}, quota_looked_at{Time{}};
std::atomic<bool> limited{true};
// Others run for a moment all the time: of the last looks, those that found a CPU less those that did not.
constexpr int kMost = 3, kEnough = 2;
std::atomic<int> found{0};

// One thread at a time comes so far.
bool is_due(std::atomic<Time>& last, Time now, Duration interval) {
  Time before = last.load(std::memory_order_relaxed);
  return now - before >= interval && last.compare_exchange_strong(before, now, std::memory_order_relaxed);
}

}  // namespace

bool has_spare_cpu(Time now) {
  if (is_due(looked_at, now, kInterval)) {
    const CallerState kept;
    try {
      if (is_due(quota_looked_at, now, kQuotaInterval)) limited.store(has_quota(), std::memory_order_relaxed);
      const int change = !limited.load(std::memory_order_relaxed) && look() ? 1 : -1;
      found.store(std::clamp(found.load(std::memory_order_relaxed) + change, 0, kMost), std::memory_order_relaxed);
    } catch (const std::bad_alloc&) {
    }
  }
  return found.load(std::memory_order_relaxed) >= kEnough;
}

std::optional<unsigned> runnable_threads(std::string_view loadavg) {
  const size_t slash = loadavg.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const size_t begin = loadavg.rfind(' ', slash) + 1;
  unsigned count = 0;
  const auto [end, error] = std::from_chars(loadavg.data() + begin, loadavg.data() + slash, count);
  if (error != std::errc{} || end != loadavg.data() + slash) return std::nullopt;
  return count;
}

bool is_limited(std::string_view cpu_max) {
  return !cpu_max.empty() && !cpu_max.starts_with("max");
}

}  // namespace uroce
