// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/slow_closer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "broker/server/bounds.h"

namespace uroce::broker {
namespace {

// The child's table of descriptors need not be longer than that, where few wait.
constexpr size_t kEnoughNumbers = 65536;

// Nothing but system calls: libraries may not be usable where others of the broker's process run threads (tests). The
// end of a process closes descriptors in the order of their numbers, so those that may be slow get the last ones, and
// all others are closed before: it keeps nothing else open, however long they take. `has` tells that, so it is closed
// behind them.
[[noreturn]] void end_with(const std::vector<int>& slow, int closed, int has, long top) {
  char end;
  while (syscall(SYS_read, closed, &end, 1) < 0 && errno == EINTR) continue;
  const auto tells = static_cast<int>(syscall(SYS_fcntl, has, F_DUPFD_CLOEXEC, top));
  for (const int descriptor : slow) {
    if (syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, top) >= 0) syscall(SYS_close, descriptor);
  }
  syscall(SYS_close_range, 0u, static_cast<unsigned>(top - 1), 0u);  // Linux 5.9; else the end does that, too
  syscall(SYS_close, tells);
  while (true) syscall(SYS_exit_group, 0);
}

}  // namespace

// Those that wait get one process more; if there can be none, they are left to the end of this one. Who comes after
// this broker finds its addresses and ports free: the processes have had copies of everything when they began.
SlowCloser::~SlowCloser() {
  if (size_ > 0) close_all_of(std::nullopt);
  for (auto& [user, descriptors] : waiting_) {
    for (UniqueFd& each : descriptors) each.release();
  }
  const auto last = std::chrono::steady_clock::now() + kLetGo;
  for (const Process& each : processes_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(last - std::chrono::steady_clock::now());
    pollfd wait{each.has_ours.get(), 0, 0};
    poll(&wait, 1, std::max(static_cast<int>(left.count()), 0));
  }
}

void SlowCloser::add(UniqueFd descriptor, uid_t user) {
  if (!descriptor) return;
  waiting_[user].push_back(std::move(descriptor));
  ++size_;
}

size_t SlowCloser::of(uid_t user) const {
  const auto found = waiting_.find(user);
  return found == waiting_.end() ? 0 : found->second.size();
}

size_t SlowCloser::processes_of(uid_t user) const {
  return static_cast<size_t>(
      std::count_if(processes_.begin(), processes_.end(), [user](const Process& each) { return each.user == user; }));
}

std::optional<uid_t> SlowCloser::work(const HasTime& has_time) {
  std::erase_if(processes_, [](const Process& each) { return waitpid(each.pid, nullptr, WNOHANG) != 0; });
  if (is_starting()) return std::nullopt;
  const auto user = next_user(has_time);
  if (user) close_all_of(user);
  if (user) last_ = user;
  return user;
}

// The last one has what others than its user have passed on, too, until it has closed that, which does not take long:
// as long as this process has it, it is not the last to have it.
bool SlowCloser::is_starting() const {
  if (processes_.empty()) return false;
  pollfd has_ours{processes_.back().has_ours.get(), 0, 0};
  return poll(&has_ours, 1, 0) == 0;
}

// Whose descriptors are to be closed now: users take turns.
std::optional<uid_t> SlowCloser::next_user(const HasTime& has_time) const {
  if (size_ >= enough_) {
    const auto has_less = [](const auto& one, const auto& other) { return one.second.size() < other.second.size(); };
    return std::max_element(waiting_.begin(), waiting_.end(), has_less)->first;
  }
  if (processes_.size() >= kMostProcesses) return std::nullopt;
  const auto may_have_one = [&](const auto& each) {
    return processes_of(each.first) < kMostOfUser && has_time(each.first);
  };
  const auto behind = last_ ? waiting_.upper_bound(*last_) : waiting_.begin();
  auto next = std::find_if(behind, waiting_.end(), may_have_one);
  if (next != waiting_.end()) return next->first;
  next = std::find_if(waiting_.begin(), behind, may_have_one);
  return next == behind ? std::nullopt : std::optional(next->first);
}

// The process has the last copies as soon as they are closed here, which the end of the pipe tells it. If there can be
// none now, they wait.
void SlowCloser::close_all_of(std::optional<uid_t> user) {
  int here[2], there[2];  // tells that all are closed here; that all but the slow ones are closed there
  if (pipe2(here, O_CLOEXEC) != 0) return;
  const UniqueFd waits(here[0]), closed(here[1]);
  if (pipe2(there, O_CLOEXEC) != 0) return;
  UniqueFd has_ours(there[0]);
  const UniqueFd has(there[1]);
  std::vector<int> slow;
  slow.reserve(size_);
  for (const auto& [owner, descriptors] : waiting_) {
    if (user && owner != *user) continue;
    for (const UniqueFd& each : descriptors) slow.push_back(each.get());
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto numbers = std::min<size_t>(files.rlim_cur, std::max(kEnoughNumbers, 4 * slow.size()));
  const auto top = static_cast<long>(numbers - slow.size() - 1);
  const auto process = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (process < 0) return;
  if (process == 0) {
    syscall(SYS_close, closed.get());
    end_with(slow, waits.get(), has.get(), top);
  }
  processes_.push_back({process, user.value_or(0), std::move(has_ours)});
  if (user) {
    size_ -= of(*user);
    waiting_.erase(*user);
  } else {
    size_ = 0;
    waiting_.clear();
  }
}

}  // namespace uroce::broker
