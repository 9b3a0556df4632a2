// SPDX-License-Identifier: BSD-2-Clause
// Sockets for clients, made in advance: members of the port's groups that a client of another user cannot misuse. Used
// by MapSteering.
//
// A socket is held by the programs of the cgroup in which it was made (bpf/socket_lock.bpf.c). So a child process makes
// a batch of them in a cgroup of its own, attaches the programs, sends the sockets here, removes the cgroup's directory
// and ends; the sockets keep the cgroup, and nothing is left of it when the last of them is closed. A broker that dies
// meanwhile does not stop the child.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <variant>

#include "base/error.h"
#include "base/unique_fd.h"
#include "broker/protocol/port_sockets.h"

struct socket_lock;  // the programs

namespace uroce::broker {

class SocketPool {
 public:
  // `v6`: the host has IPv6.
  explicit SocketPool(bool v6);
  ~SocketPool();
  SocketPool(const SocketPool&) = delete;
  SocketPool& operator=(const SocketPool&) = delete;

  // Why sockets are not held. Empty: they are.
  const std::string& obstacle() const { return obstacle_; }

  // Waits for sockets only if there are none.
  std::variant<PortSockets, io::IoError> take();

  // Has sockets made if there are few, unless that failed the last time. Then descriptor() is readable when receive()
  // has something to do.
  void refill();
  int descriptor() const { return maker_.get(); }
  void receive();
  // The process that makes sockets may have copies of all that is open here.
  bool has_starting_child() const { return maker_ && !has_begun_; }

 private:
  struct Unload {
    void operator()(socket_lock* programs) const;
  };

  void load_programs();
  bool start_maker();
  void end_maker();
  void stop_holding(std::string why);

  const bool v6_;
  std::string obstacle_;
  std::string parent_;  // of the cgroups
  std::unique_ptr<socket_lock, Unload> programs_;
  UniqueFd maker_;  // from where the child's sockets come; empty: none is at work
  pid_t maker_process_ = -1;
  bool has_begun_ = false;  // it has closed all that is not for it
  bool is_late_ = false;    // it was waited for in vain
  std::deque<PortSockets> sockets_;
  PortSockets newest_;                  // of the last batch, for nobody
  std::optional<io::IoError> failure_;  // of the last attempt to make sockets
};

}  // namespace uroce::broker
