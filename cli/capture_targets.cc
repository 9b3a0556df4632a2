// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture_targets.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fmt/format.h>
#include <mutex>
#include <sstream>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "capture/nameless_socket.h"
#include "capture/protocol.h"

namespace uroce::cli {
namespace protocol = io::capture_protocol;

namespace {

constexpr int kAnswerTimeout = 1000;  // ms
constexpr std::string_view kBroker = "uroced";

std::optional<int> process_id(const std::string& text) {
  if (text.empty() || text.size() > 9 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoi(text);
}

// Asks the process behind the socket. False: nobody is there.
bool ask(CaptureTarget& target) {
  const int fd = io::connect_to_nameless_socket(target.pid);
  if (fd < 0) return false;
  protocol::Message message;
  message.kind = protocol::Kind::kDescribe;
  const bool answered = protocol::send(fd, message) == 0 &&
                        protocol::receive(fd, message, nullptr, kAnswerTimeout) == 0 &&
                        message.kind == protocol::Kind::kDescription;
  close(fd);
  if (!answered) return false;
  std::istringstream lines(protocol::get_text(message.text));
  std::getline(lines, target.program);
  for (std::string line; std::getline(lines, line);) target.devices.push_back(line);
  return true;
}

std::string why_no_process(int pid) {
  struct stat status {};
  const std::string directory = fmt::format("/proc/{}", pid);
  if (stat(directory.c_str(), &status) != 0) return fmt::format("no process {}; see uroce capture --list", pid);
  if (geteuid() != 0 && status.st_uid != geteuid()) {
    return fmt::format("process {}: it is another user's; try as root", pid);
  }
  if (io::may_not_look_into(pid)) {
    return fmt::format("process {}: it has capabilities that you do not have{}", pid,
                       geteuid() == 0 ? "" : "; try as root");
  }
  return fmt::format("process {}: it has no RDMA device of uroce open; it opens one with its first queue pair", pid);
}

constexpr const char* kNoneThere =
    "no process has an RDMA device of uroce open; start one, or start it with uroce run --capture FILE";

}  // namespace

bool CaptureTarget::has_device(std::string_view device_or_netdev) const {
  return std::any_of(devices.begin(), devices.end(), [&](const std::string& line) {
    return line.starts_with(fmt::format("{} (", device_or_netdev)) ||
           line.find(fmt::format(" ({}): ", device_or_netdev)) != std::string::npos;
  });
}

// Many at a time: those that do not answer would keep the others waiting.
std::vector<CaptureTarget> find_capture_targets(const std::string& wanted) {
  constexpr size_t kMostAtATime = 64;
  std::vector<int> pids = io::processes_with_nameless_socket();
  if (const auto only = process_id(wanted)) std::erase_if(pids, [&](int pid) { return pid != *only; });
  std::vector<CaptureTarget> targets;
  std::mutex lock;
  std::atomic<size_t> next{0};
  const auto ask_some = [&] {
    for (size_t i = next++; i < pids.size(); i = next++) {
      CaptureTarget target;
      target.pid = pids[i];
      if (!ask(target)) continue;
      const std::lock_guard guard(lock);
      targets.push_back(std::move(target));
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(pids.size(), kMostAtATime); ++i) threads.emplace_back(ask_some);
  } catch (const std::system_error&) {  // fewer, then
  }
  ask_some();
  for (std::thread& thread : threads) thread.join();
  std::sort(targets.begin(), targets.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return targets;
}

std::string format_capture_targets(const std::vector<CaptureTarget>& targets) {
  std::string text;
  for (const CaptureTarget& target : targets) {
    text += fmt::format("{:>8}  {:<16}", target.pid, target.program);
    for (size_t i = 0; i < target.devices.size(); ++i) text += (i == 0 ? "  " : ", ") + target.devices[i];
    text += "\n";
  }
  return text;
}

ChosenTarget choose_capture_target(const std::vector<CaptureTarget>& targets, const std::string& wanted) {
  ChosenTarget chosen;
  std::vector<CaptureTarget> fitting = targets;
  // The broker has all netdevs, and is meant only when it is named.
  if (const bool broker = wanted == kBroker; broker || !process_id(wanted)) {
    std::erase_if(fitting, [&](const auto& target) { return (target.program == kBroker) != broker; });
  }
  if (wanted == kBroker) {
    if (fitting.empty()) chosen.problem = "no broker runs that you may look into; see uroce capture --list";
  } else if (const auto pid = process_id(wanted)) {
    std::erase_if(fitting, [&](const auto& target) { return target.pid != *pid; });
    if (fitting.empty()) chosen.problem = why_no_process(*pid);
  } else if (!wanted.empty()) {
    std::erase_if(fitting, [&](const auto& target) { return !target.has_device(wanted); });
    chosen.device = wanted;
    if (fitting.empty()) chosen.problem = fmt::format("no process has '{}' open; see uroce capture --list", wanted);
  } else if (fitting.empty()) {
    chosen.problem = kNoneThere;
  }
  if (fitting.size() == 1) chosen.target = fitting.front();
  if (fitting.size() > 1) {
    chosen.problem = fmt::format("several processes could be meant; say which, e.g. uroce capture {} -w FILE\n{}",
                                 fitting.front().pid, format_capture_targets(fitting));
    chosen.problem.pop_back();
  }
  return chosen;
}

}  // namespace uroce::cli
