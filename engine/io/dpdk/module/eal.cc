// SPDX-License-Identifier: BSD-2-Clause
// DPDK's environment abstraction layer (EAL) as a guest in somebody's process: one main lcore that is a thread of ours,
// no files that others see, no signals, no terminal.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <mutex>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "engine/io/dpdk/module/module.h"

namespace uroce::io::dpdk {
namespace {

// In MiB. Without hugepages it is reserved at once, and taken as it is used.
constexpr const char* kMemory = "256";
constexpr unsigned long kMemoryInHugepages = 256 / 2;  // of 2 MiB

std::mutex log_lock;
std::string log_line;                // the one that is being written
std::string log_error, log_warning;  // the first whole ones
// What it warns of because of how it was started: no signals (process_calls.cc), no second process.
constexpr const char* kOurDoing[] = {"signal", "mp action callback"};

void note_line(const std::string& line, bool error) {
  std::string& first = error ? log_error : log_warning;
  const auto is_in_line = [&](const char* words) { return line.find(words) != std::string::npos; };
  if (!first.empty() || line.empty() || std::any_of(std::begin(kOurDoing), std::end(kOurDoing), is_in_line)) return;
  first = line;
}

ssize_t take_log(void*, const char* text, size_t size) {
  const std::lock_guard guard(log_lock);
  const int level = rte_log_cur_msg_loglevel();
  for (const char c : std::string(text, size)) {
    if (c != '\n') {
      if (log_line.size() < 250) log_line += c;
    } else {
      note_line(log_line, level <= static_cast<int>(RTE_LOG_ERR));
      log_line.clear();
    }
  }
  return static_cast<ssize_t>(size);
}

void take_over_log() {
  FILE* const stream =
      fopencookie(nullptr, "w", {.read = nullptr, .write = take_log, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return;
  setvbuf(stream, nullptr, _IOLBF, 512);
  rte_openlog_stream(stream);
}

// CPUs that this thread may run on, as "0-1,3".
std::string allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "0";
  std::string list;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  }
  return list;
}

// Looks whether there are enough hugepages, and if so lets no other process of uroce's look until it ends: two that
// start at the same time would both see those that are enough for one, and DPDK cannot start without them after it has
// failed with them. The lock is on a file of /proc, since of /sys each network namespace has its own. (Where /proc is
// another mount, as in containers, nobody waits for anybody.)
class HugepageClaim {
 public:
  HugepageClaim() : lock_(open("/proc/sys/vm/nr_hugepages", O_RDONLY | O_CLOEXEC)) {
    enough_ = locked() && enough_are_free();
    if (!enough_) release();
  }
  ~HugepageClaim() { release(); }
  HugepageClaim(const HugepageClaim&) = delete;
  HugepageClaim& operator=(const HugepageClaim&) = delete;

  bool enough() const { return enough_; }

 private:
  static bool enough_are_free() {
    FILE* const file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
    if (file == nullptr) return false;
    unsigned long free_pages = 0;
    const bool read = fscanf(file, "%lu", &free_pages) == 1;
    fclose(file);
    return read && free_pages >= kMemoryInHugepages;
  }
  // False: somebody holds the lock for long, which anybody may; then it is without hugepages. Where nothing can be
  // locked it is as if there were no others.
  bool locked() const {
    for (int wait = 0; wait < 200; ++wait) {
      if (flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  void release() {
    if (lock_ < 0) return;
    flock(lock_, LOCK_UN);  // a child that was forked meanwhile has it as well
    close(std::exchange(lock_, -1));
  }

  int lock_;
  bool enough_ = false;
};

// "0000:01:00.0" or "01:00.0", with arguments behind it or without.
bool is_pci(const std::string& device) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return std::sscanf(device.c_str(), "%x:%x:%x.%x", &a, &b, &c, &d) == 4 ||
         std::sscanf(device.c_str(), "%x:%x.%x", &a, &b, &c) == 3;
}

struct Eal {
  std::mutex lock;
  pid_t started_in = 0;
  bool failed = false;
  bool pci = false;
  bool hugepages = false;
};
Eal eal;

}  // namespace

void begin_complaints() {
  const std::lock_guard guard(log_lock);
  log_line.clear();
  log_error.clear();
  log_warning.clear();
}

std::string first_complaint() {
  const std::lock_guard guard(log_lock);
  return log_warning.empty() || log_error.empty() ? log_warning + log_error : log_warning + "; " + log_error;
}

bool has_hugepages() {
  return eal.hugepages;
}

std::string start_eal(const std::string& device) {
  const std::lock_guard guard(eal.lock);
  if (eal.started_in != 0 && eal.started_in != getpid()) {
    return "DPDK runs in the process that this one was forked from, and cannot start again";
  }
  if (eal.failed) return "DPDK has not started, and does not start twice in a process";
  if (eal.started_in != 0) {
    return is_pci(device) && !eal.pci ? "DPDK was started in this process for a port without PCI device" : "";
  }
  take_over_log();
  eal.started_in = getpid();
  eal.pci = is_pci(device);
  const HugepageClaim hugepages;  // until DPDK has them
  eal.hugepages = hugepages.enough();
  const std::string lcores = "0@(" + allowed_cpus() + ")";
  std::vector<std::string> words = {"uroce", "--lcores", lcores,          "--no-telemetry",
                                    "-m",    kMemory,    "--log-level=5", "--log-level=pmd*:5"};
  if (eal.hugepages) {
    words.emplace_back("--in-memory");
  } else {
    for (const char* word : {"--no-huge", "--no-shconf", "--iova-mode=va"}) words.emplace_back(word);
  }
  if (eal.pci) {
    words.emplace_back("-a");
    words.push_back(device);
  } else {
    words.emplace_back("--no-pci");
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (rte_eal_init(static_cast<int>(words.size()), arguments.data()) >= 0) return "";
  eal.failed = true;
  const std::string complaint = first_complaint();
  return "DPDK does not start: " + (complaint.empty() ? std::string(rte_strerror(rte_errno)) : complaint);
}

}  // namespace uroce::io::dpdk
