// SPDX-License-Identifier: BSD-2-Clause
// See netlink_socket.h.
#include "engine/net/netlink_socket.h"

#include <cerrno>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <new>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <system_error>
#include <utility>

namespace uroce::net {
namespace {

// Room for a burst of notifications between two calls of drain(); the kernel caps it at net.core.rmem_max.
constexpr int kNotificationBufferBytes = 1 << 20;
constexpr size_t kLongestNotification = 32 << 10;

void check(int result, const char* what) {
  if (result < 0) throw std::system_error(EIO, std::generic_category(), std::string(what) + ": " + nl_geterror(result));
}

}  // namespace

// A child that read from it would take notifications away from its parent, so it has been closed there.
void NetlinkSocket::SocketDeleter::operator()(nl_sock* socket) const {
  if (process != process_generation()) return;
  ForkGuard guard;
  guard.forget(nl_socket_get_fd(socket));
  nl_socket_free(socket);
}

NetlinkSocket::NetlinkSocket(int protocol) : protocol_(protocol), socket_(open()) {}

NetlinkSocket::Socket NetlinkSocket::open() {
  Socket socket(nl_socket_alloc(), SocketDeleter{process_generation()});
  if (!socket) throw std::system_error(ENOMEM, std::generic_category(), "netlink socket");
  auto deliver = [](nl_msg* message, void* self) -> int {
    auto& its = *static_cast<NetlinkSocket*>(self);
    try {
      (*its.handler_)(*nlmsg_hdr(message));
      return NL_OK;
    } catch (const std::bad_alloc&) {  // not through libnl, which is C
      its.out_of_memory_ = true;
      return NL_STOP;
    }
  };
  // Without acknowledgements libnl does not compare sequence numbers.
  auto look = [](nl_msg* message, void* self) -> int {
    auto& its = *static_cast<NetlinkSocket*>(self);
    if (its.expected_ == nullptr || nlmsg_hdr(message)->nlmsg_seq == *its.expected_) return NL_OK;
    its.astray_ = true;
    return NL_STOP;
  };
  auto refuse = [](sockaddr_nl*, nlmsgerr*, void* self) -> int {
    static_cast<NetlinkSocket*>(self)->refused_ = true;
    return NL_STOP;
  };
  check(nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, deliver, this), "netlink callback");
  check(nl_socket_modify_cb(socket.get(), NL_CB_MSG_IN, NL_CB_CUSTOM, look, this), "netlink callback");
  check(nl_socket_modify_err_cb(socket.get(), NL_CB_CUSTOM, refuse, this), "netlink callback");
  nl_socket_disable_auto_ack(socket.get());
  ForkGuard guard;
  errno = 0;
  const int connected = nl_connect(socket.get(), protocol_);
  if (connected < 0 && errno != 0) throw std::system_error(errno, std::generic_category(), "netlink socket");
  check(connected, "netlink socket");
  const int descriptor = nl_socket_get_fd(socket.get());
  guard.close_in_children(descriptor);
  const timeval limit{kAnswerTime.count(), 0};
  (void)setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket;
}

void NetlinkSocket::subscribe(std::span<const int> groups) {
  nl_socket_disable_seq_check(socket_.get());  // notifications carry the number of whatever request caused them
  check(nl_socket_set_nonblocking(socket_.get()), "netlink non-blocking");
  check(nl_socket_set_buffer_size(socket_.get(), kNotificationBufferBytes, 0), "netlink buffer");
  // Beyond net.core.rmem_max where we may.
  (void)setsockopt(descriptor(), SOL_SOCKET, SO_RCVBUFFORCE, &kNotificationBufferBytes, sizeof(int));
  // One system call per message instead of two. A longer message counts as lost: everything is read anew.
  nl_socket_disable_msg_peek(socket_.get());
  check(nl_socket_set_msg_buf_size(socket_.get(), kLongestNotification), "netlink buffer");
  for (int group : groups) check(nl_socket_add_membership(socket_.get(), group), "netlink subscription");
}

int NetlinkSocket::receive(const Handler& handler) {
  handler_ = &handler;
  int result = nl_recvmsgs_default(socket_.get());
  handler_ = nullptr;
  expected_ = nullptr;
  if (std::exchange(out_of_memory_, false)) throw std::bad_alloc();
  return result;
}

NetlinkSocket::Answer NetlinkSocket::ask(nl_msg& message, const Handler& handler) {
  nlmsg_hdr(&message)->nlmsg_seq = NL_AUTO_SEQ;
  nlmsg_hdr(&message)->nlmsg_pid = NL_AUTO_PORT;
  refused_ = astray_ = false;
  if (nl_send_auto(socket_.get(), &message) < 0) return Answer::kLost;
  expected_ = &nlmsg_hdr(&message)->nlmsg_seq;
  const int result = receive(handler);
  if (astray_) return Answer::kLost;
  if (result >= 0) return Answer::kComplete;
  return refused_ || result == -NLE_DUMP_INTR ? Answer::kNegative : Answer::kLost;
}

bool NetlinkSocket::request(nl_msg& message, const Handler& handler) {
  Answer answer = ask(message, handler);
  if (answer == Answer::kLost) {
    try {
      socket_ = open();
    } catch (const std::system_error&) {
      return false;  // no descriptors, no memory: the next request tries again
    }
    answer = ask(message, handler);
  }
  return answer == Answer::kComplete;
}

NetlinkSocket::Drained NetlinkSocket::drain(const Handler& handler) {
  Drained drained = Drained::kNothing;
  for (;;) {
    int result = receive(handler);
    if (result == -NLE_AGAIN) return drained;
    if (result >= 0) {
      if (drained == Drained::kNothing) drained = Drained::kMessages;
      continue;
    }
    // ENOBUFS reads as NLE_NOMEM; reading it clears it, and messages may follow. After any other failure a message is
    // lost just the same, and what follows is left to the next call.
    drained = Drained::kOverrun;
    if (result != -NLE_NOMEM) return drained;
  }
}

}  // namespace uroce::net
