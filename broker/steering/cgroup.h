// SPDX-License-Identifier: BSD-2-Clause
// A directory of cgroup v2 in which sockets are made, so that its programs stay with them when it is gone.
#pragma once

#include <string>
#include <sys/types.h>

namespace uroce::broker {

// Where this process may make one: in its own cgroup. As root in the innermost one around it that nobody but root may
// change, as all around that: who may change one moves processes in and out of those below it, and freezes them,
// whoever they belong to. Empty: there is none, and `why` says why.
std::string own_cgroup(std::string* why = nullptr);

// Removes what was left by processes that have ended.
void remove_left_cgroups(const std::string& parent);

// Made, and the calling process moved into it; leave() undoes both, which the destructor does if it was not called.
// Where the parent takes no processes it undoes nothing: remove_left_cgroups().
class SocketCgroup {
 public:
  explicit SocketCgroup(std::string parent);
  ~SocketCgroup() { leave(); }
  SocketCgroup(const SocketCgroup&) = delete;
  SocketCgroup& operator=(const SocketCgroup&) = delete;

  int error() const { return error_; }  // errno value: not in it
  const std::string& path() const { return path_; }
  void leave();

 private:
  const std::string parent_;
  std::string path_;
  int error_ = 0;
};

}  // namespace uroce::broker
