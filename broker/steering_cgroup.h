// SPDX-License-Identifier: BSD-2-Clause
// A directory of cgroup v2 in which sockets are made, so that its programs stay with them when it is gone.
#pragma once

#include <string>

namespace uroce::broker {

// Where this process may make one. Empty: no cgroup v2 is mounted, nor may this process mount it.
std::string own_cgroup();

// Removes what was left by brokers that ended while they made sockets.
void remove_left_cgroups(const std::string& parent);

// Made, and the calling process moved into it; leave() undoes both, which the destructor does if it was not called.
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
