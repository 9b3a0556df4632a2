// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture_targets.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "capture/nameless_socket.h"
#include "capture/protocol.h"

namespace uroce::cli {
namespace protocol = io::capture_protocol;

namespace {

constexpr int kAnswerTimeout = 1000;                      // ms
constexpr Duration kAllAnswer = std::chrono::seconds(2);  // all together; children begin late, too
constexpr std::string_view kBroker = "uroced";

std::optional<int> process_id(const std::string& text) {
  if (text.empty() || text.size() > 9 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoi(text);
}

// Its real user, which su does not change before it knows the password (sudo does). None: the process is not there.
std::optional<uid_t> user_of(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    unsigned user = 0;
    if (std::sscanf(line.c_str(), "Uid: %u", &user) == 1) return user;
  }
  return std::nullopt;
}

bool is_trusted(uid_t user) {
  return user == 0 || user == geteuid();
}

// Those that are trusted first; then users take turns, however many processes each has. Some are left out if it takes
// so long.
std::deque<int> in_order(const std::vector<int>& pids, Time latest) {
  std::map<uid_t, size_t> counts;
  std::multimap<size_t, int> by_turn;
  for (const int pid : pids) {
    if (monotonic_now() >= latest) break;
    if (const auto user = user_of(pid)) by_turn.emplace(is_trusted(*user) ? 0 : ++counts[*user], pid);
  }
  std::deque<int> order;
  for (const auto& [turn, pid] : by_turn) order.push_back(pid);
  return order;
}

// Whose the process behind the socket is, and what it says of itself: lines, the program second. None: nobody is there,
// or somebody who only seems to be trusted.
std::optional<std::string> ask(int pid) {
  uid_t user = 0;
  const UniqueFd socket(io::connect_to_nameless_socket(pid, &user));
  const std::optional<uid_t> seems = user_of(pid);
  if (seems && is_trusted(*seems) && !is_trusted(user)) return std::nullopt;
  protocol::Message message;
  message.kind = protocol::Kind::kDescribe;
  if (!socket || protocol::send(socket.get(), message) != 0 ||
      protocol::receive(socket.get(), message, nullptr, kAnswerTimeout) != 0 ||
      message.kind != protocol::Kind::kDescription)
    return std::nullopt;
  return fmt::format("{}\n{}", user, protocol::get_text(message.text));
}

std::vector<int> all_processes() {
  std::vector<int> pids;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    if (const auto pid = process_id(entry->path().filename())) pids.push_back(*pid);
  }
  return pids;
}

// Asks one in a child: whoever answers may pass on what takes as long to close as he likes, even for a process that
// ends. Nobody waits for such a child.
class Question {
 public:
  explicit Question(int pid) {
    target_.pid = pid;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    answer_.reset(ends[0]);
    const UniqueFd says(ends[1]);
    child_ = fork();
    if (child_ < 0) answer_.reset();
    if (child_ != 0) return;
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);  // whoever reads what is printed does not wait either
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, standard);
    if (const auto text = ask(pid)) {
      const std::string line = kAnswered + *text;
      if (write(says.get(), line.data(), line.size()) < 0) _exit(1);
    }
    _exit(0);
  }
  ~Question() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, WNOHANG);
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  pollfd wait() const { return {answer_.get(), POLLIN, 0}; }
  bool is_over() const { return !answer_; }
  void read() {
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(answer_.get(), bytes.data(), bytes.size());
    if (size > 0) text_.append(bytes.data(), static_cast<size_t>(size));
    if (size <= 0 || text_.size() > kMostOfAnswer) answer_.reset();
  }
  // None: nobody is there, or he has not answered in time.
  std::optional<CaptureTarget> target() const {
    if (!text_.starts_with(kAnswered)) return std::nullopt;
    CaptureTarget target = target_;
    std::istringstream lines(text_.substr(1));
    if (!(lines >> target.user)) return std::nullopt;
    lines.ignore();
    std::getline(lines, target.program);
    for (std::string line; std::getline(lines, line);) target.devices.push_back(line);
    return target;
  }

 private:
  static constexpr char kAnswered = '+';
  static constexpr size_t kMostOfAnswer = size_t{64} << 10;
  CaptureTarget target_;
  UniqueFd answer_;
  pid_t child_ = -1;
  std::string text_;
};

std::string why_no_process(int pid) {
  const std::optional<uid_t> user = user_of(pid);
  if (!user) return fmt::format("no process {}; see uroce capture --list", pid);
  if (geteuid() != 0 && *user != geteuid()) {
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

// Many at a time, and not for long: those that do not answer would keep the others waiting.
std::vector<CaptureTarget> find_capture_targets(const std::string& wanted) {
  constexpr size_t kMostAtATime = 64;
  const auto only = process_id(wanted);
  const Time end = monotonic_now() + kAllAnswer;
  std::deque<int> pids = in_order(only ? std::vector{*only} : all_processes(), end - kAllAnswer / 2);
  std::vector<CaptureTarget> targets;
  std::list<Question> asked;
  while (!pids.empty() || !asked.empty()) {
    bool is_late = false;
    while (!(is_late = monotonic_now() >= end) && !pids.empty() && asked.size() < kMostAtATime) {
      if (io::has_nameless_socket(pids.front())) asked.emplace_back(pids.front());
      pids.pop_front();
    }
    if (is_late) pids.clear();
    std::vector<pollfd> waits;
    for (const Question& question : asked) waits.push_back(question.wait());
    constexpr int kLookAgain = 50;  // ms
    poll(waits.data(), waits.size(), kLookAgain);
    auto wait = waits.begin();
    for (auto question = asked.begin(); question != asked.end(); ++wait) {
      if (wait->revents != 0) question->read();
      const bool is_over = is_late || question->is_over();
      auto target = is_over ? question->target() : std::nullopt;
      if (target) targets.push_back(std::move(*target));
      question = is_over ? asked.erase(question) : std::next(question);
    }
  }
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
    const auto is_trusted_one = [](const CaptureTarget& target) { return is_trusted(target.user); };
    const bool any = std::any_of(fitting.begin(), fitting.end(), is_trusted_one);  // systemd's is of a user of its own
    if (any) std::erase_if(fitting, std::not_fn(is_trusted_one));
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
