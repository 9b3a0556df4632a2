// See netlink_socket.h.
#include "engine/net/netlink_socket.h"

#include <cerrno>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <string>
#include <system_error>

namespace uroce::net {
namespace {

// Room for a burst of notifications between two calls of drain(); the kernel caps it at net.core.rmem_max.
constexpr int kNotificationBufferBytes = 1 << 20;

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

NetlinkSocket::NetlinkSocket() : socket_(nl_socket_alloc(), SocketDeleter{process_generation()}) {
  if (!socket_) throw std::system_error(ENOMEM, std::generic_category(), "netlink socket");
  auto deliver = [](nl_msg* message, void* self) -> int {
    (*static_cast<NetlinkSocket*>(self)->handler_)(*nlmsg_hdr(message));
    return NL_OK;
  };
  check(nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_CUSTOM, deliver, this), "netlink callback");
  nl_socket_disable_auto_ack(socket_.get());
  ForkGuard guard;
  check(nl_connect(socket_.get(), NETLINK_ROUTE), "netlink socket");
  guard.close_in_children(nl_socket_get_fd(socket_.get()));
}

void NetlinkSocket::subscribe(std::span<const int> groups) {
  nl_socket_disable_seq_check(socket_.get());  // notifications carry the number of whatever request caused them
  check(nl_socket_set_nonblocking(socket_.get()), "netlink non-blocking");
  check(nl_socket_set_buffer_size(socket_.get(), kNotificationBufferBytes, 0), "netlink buffer");
  for (int group : groups) check(nl_socket_add_membership(socket_.get(), group), "netlink subscription");
}

int NetlinkSocket::receive(const Handler& handler) {
  handler_ = &handler;
  int result = nl_recvmsgs_default(socket_.get());
  handler_ = nullptr;
  return result;
}

bool NetlinkSocket::request(nl_msg& message, const Handler& handler) {
  return nl_send_auto(socket_.get(), &message) >= 0 && receive(handler) >= 0;
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
