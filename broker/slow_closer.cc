// SPDX-License-Identifier: BSD-2-Clause
#include "broker/slow_closer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace uroce::broker {
namespace {

// Nothing but system calls: libraries may not be usable where others of the broker's process run threads (tests). It
// keeps nothing else open, for as long as it may take: `keeps` is in order.
[[noreturn]] void end_with(const std::vector<unsigned>& keeps, int closed) {
  char end;
  while (syscall(SYS_read, closed, &end, 1) < 0 && errno == EINTR) continue;
  unsigned from = 0;
  for (const unsigned kept : keeps) {
    if (kept > from) syscall(SYS_close_range, from, kept - 1, 0);
    from = kept + 1;
  }
  syscall(SYS_close_range, from, ~0U, 0);
  while (true) syscall(SYS_exit_group, 0);
}

}  // namespace

// Those that wait are left to the end of this process, too.
SlowCloser::~SlowCloser() {
  for (Waiting& each : waiting_) each.descriptor.release();
}

void SlowCloser::add(UniqueFd descriptor, uid_t user) {
  if (descriptor) waiting_.push_back({std::move(descriptor), user});
}

size_t SlowCloser::of(uid_t user) const {
  return static_cast<size_t>(
      std::count_if(waiting_.begin(), waiting_.end(), [user](const Waiting& each) { return each.user == user; }));
}

size_t SlowCloser::processes_of(uid_t user) const {
  return static_cast<size_t>(
      std::count_if(processes_.begin(), processes_.end(), [user](const Process& each) { return each.user == user; }));
}

void SlowCloser::work() {
  std::erase_if(processes_, [](const Process& each) { return waitpid(each.pid, nullptr, WNOHANG) != 0; });
  if (processes_.size() >= kMostProcesses) return;
  const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                 [this](const Waiting& each) { return processes_of(each.user) < kMostOfUser; });
  if (next != waiting_.end()) close_all_of(next->user);
}

// The process has the last copies as soon as they are closed here, which the end of the pipe tells it.
bool SlowCloser::close_all_of(uid_t user) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const UniqueFd waits(ends[0]);
  UniqueFd closed(ends[1]);
  std::vector<unsigned> keeps;
  for (const Waiting& each : waiting_) {
    if (each.user == user) keeps.push_back(static_cast<unsigned>(each.descriptor.get()));
  }
  std::sort(keeps.begin(), keeps.end());
  const auto process = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (process < 0) return false;
  if (process == 0) {
    syscall(SYS_close, ends[1]);
    end_with(keeps, ends[0]);
  }
  processes_.push_back({process, user});
  std::erase_if(waiting_, [user](const Waiting& each) { return each.user == user; });
  return true;
}

}  // namespace uroce::broker
