// SPDX-License-Identifier: BSD-2-Clause
// Closes what a client has passed on, whatever that is, and what it has been given: it can have closed its own copy by
// now. The last close() of a descriptor can take as long as who has had it likes: a TCP socket that lingers, a file of
// his own file system (FUSE), anything in an epoll set that he keeps locked. So it is done by processes that end, for
// whom nobody waits.
//
// A user has few of them. What waits meanwhile is bounded: the kernel counts descriptors that are on their way for who
// has sent them, up to his RLIMIT_NOFILE, until a process closes them; who has too much of both here is not served
// (kMostKeptOfUser in bounds.h). When too much waits in all, whoever has the most of it gets one process more, which
// takes all of it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <sys/types.h>
#include <vector>

#include "base/unique_fd.h"

namespace uroce::broker {

class SlowCloser {
 public:
  // Processes at a time, unless too much waits. One closes all that waits for it of its user.
  static constexpr size_t kMostProcesses = 32, kMostOfUser = 2;

  // `enough`: descriptors that may wait.
  explicit SlowCloser(size_t enough) : enough_(enough) {}
  ~SlowCloser();
  SlowCloser(const SlowCloser&) = delete;
  SlowCloser& operator=(const SlowCloser&) = delete;

  // It may be one copy of several.
  void add(UniqueFd descriptor, uid_t user);
  // Starts a process, if there is something to close and there may be one; sees which have ended. Does not wait. Those
  // of users who have no time are collected until too much waits. Returns whose descriptors were to be closed.
  using HasTime = std::function<bool(uid_t user)>;
  std::optional<uid_t> work(const HasTime& has_time);
  // work() can go on in a moment.
  bool is_starting() const;
  // work() has something to do again soon.
  bool is_busy() const { return size_ > 0 || !processes_.empty(); }
  // Descriptors that wait to be closed.
  size_t size() const { return size_; }
  size_t of(uid_t user) const;
  // Nothing is to be added before work() has been called again.
  bool is_full() const { return size_ >= 2 * enough_; }

 private:
  struct Process {
    pid_t pid;
    uid_t user;
    UniqueFd has_ours;  // ends when the process has nothing open but what it is there for
  };
  size_t processes_of(uid_t user) const;
  std::optional<uid_t> next_user(const HasTime& has_time) const;
  // Those of one user, or all.
  void close_all_of(std::optional<uid_t> user);

  const size_t enough_;
  std::map<uid_t, std::vector<UniqueFd>> waiting_;  // no user without
  size_t size_ = 0;
  std::optional<uid_t> last_;  // whose turn it was
  std::vector<Process> processes_;
};

}  // namespace uroce::broker
