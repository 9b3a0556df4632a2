// A NETLINK_ROUTE socket: requests answered by the kernel, or a subscription to its notifications. A thin owner of
// libnl's socket that turns its callbacks into one function per message. Used by NetView; not thread-safe.
#pragma once

#include <functional>
#include <linux/netlink.h>
#include <memory>
#include <netlink/msg.h>
#include <netlink/socket.h>
#include <span>

#include "engine/base/fork.h"

namespace uroce::net {

struct NlMessageDeleter {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
using NlMessage = std::unique_ptr<nl_msg, NlMessageDeleter>;

class NetlinkSocket {
 public:
  using Handler = std::function<void(const nlmsghdr&)>;
  enum class Drained { kNothing, kMessages, kOverrun };

  // Connects in the calling thread's network namespace. Throws std::system_error.
  NetlinkSocket();
  NetlinkSocket(const NetlinkSocket&) = delete;
  NetlinkSocket& operator=(const NetlinkSocket&) = delete;

  // Makes this socket a non-blocking one that drain() reads. `groups` are RTNLGRP_*. Throws std::system_error.
  void subscribe(std::span<const int> groups);

  // Sends a request and reads the answer to its end. The request must be one that is answered: a get, a dump, or
  // anything with NLM_F_ACK. False: the kernel refused, or a dump was cut short because the table changed under it.
  bool request(nl_msg& message, const Handler& handler);

  // Reads every waiting notification. kOverrun: some were lost, whatever else was read.
  Drained drain(const Handler& handler);

  int descriptor() const { return nl_socket_get_fd(socket_.get()); }

 private:
  struct SocketDeleter {
    uint32_t process;  // that opened it
    void operator()(nl_sock* socket) const;
  };
  int receive(const Handler& handler);

  std::unique_ptr<nl_sock, SocketDeleter> socket_;
  const Handler* handler_ = nullptr;  // set while libnl is inside receive()
};

}  // namespace uroce::net
