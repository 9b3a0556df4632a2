// SPDX-License-Identifier: BSD-2-Clause
// A netlink socket: requests answered by the kernel, or a subscription to its notifications. A thin owner of
// libnl's socket that turns its callbacks into one function per message. Used by NetView, whose tests change what it
// answers; not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <linux/netlink.h>
#include <memory>
#include <netlink/msg.h>
#include <netlink/socket.h>
#include <span>

#include "base/fork.h"

namespace uroce::net {

struct NlMessageDeleter {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
using NlMessage = std::unique_ptr<nl_msg, NlMessageDeleter>;

class NetlinkSocket {
 public:
  using Handler = std::function<void(const nlmsghdr&)>;
  enum class Drained { kNothing, kMessages, kOverrun };
  // The kernel answers while the request is sent; only an answer that was lost takes longer.
  static constexpr std::chrono::seconds kAnswerTime{1};

  // Connects in the calling thread's network namespace. Throws std::system_error.
  explicit NetlinkSocket(int protocol = NETLINK_ROUTE);
  virtual ~NetlinkSocket() = default;
  NetlinkSocket(const NetlinkSocket&) = delete;
  NetlinkSocket& operator=(const NetlinkSocket&) = delete;

  // Makes this socket a non-blocking one that drain() reads. `groups` are RTNLGRP_*. Throws std::system_error.
  void subscribe(std::span<const int> groups);

  // Sends a request and reads the answer to its end, at most kAnswerTime. The request must be one that is answered and
  // may be repeated: a get, a dump, or anything idempotent with NLM_F_ACK. False: the kernel refused, or a dump was cut
  // short because the table changed under it. After any other failure the rest of the answer may still come and be
  // taken for that of the next request: then the socket is opened anew and the request repeated once, so that the
  // handler may see a message twice.
  virtual bool request(nl_msg& message, const Handler& handler);

  // std::bad_alloc of a handler comes out of request() and drain(); what followed may be lost then.
  // Reads every waiting notification. kOverrun: some were lost, whatever else was read.
  virtual Drained drain(const Handler& handler);

  int descriptor() const { return nl_socket_get_fd(socket_.get()); }

 private:
  struct SocketDeleter {
    uint32_t process;  // that opened it
    void operator()(nl_sock* socket) const;
  };
  using Socket = std::unique_ptr<nl_sock, SocketDeleter>;
  enum class Answer { kComplete, kNegative, kLost };

  Socket open();
  Answer ask(nl_msg& message, const Handler& handler);
  int receive(const Handler& handler);

  const int protocol_;
  Socket socket_;
  const Handler* handler_ = nullptr;  // set while libnl is inside receive()
  bool out_of_memory_ = false;        // so was the handler
  // While an answer is read: the number it carries, and what has come of it.
  const uint32_t* expected_ = nullptr;
  bool refused_ = false;  // it is an error
  bool astray_ = false;   // it is that of another request
};

}  // namespace uroce::net
