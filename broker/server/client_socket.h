// SPDX-License-Identifier: BSD-2-Clause
// The broker's end of a connection to a client, who may be hostile. To close a descriptor can take as long as its
// sender likes: a TCP socket with SO_LINGER and a peer that reads nothing, a file of his own file system (FUSE). So
// none is ever taken but by a process of its own (claims.h), or from the broker's owner where it serves nobody else.
#pragma once

#include <span>
#include <utility>

#include "base/unique_fd.h"
#include "broker/protocol/protocol.h"

namespace uroce::broker {

// The other end of a UNIX socket has not read all that was sent to it, and has not closed it.
bool is_unread(int socket);

class ClientSocket {
 public:
  explicit ClientSocket(UniqueFd socket) : socket_(std::move(socket)) {}
  ~ClientSocket();
  ClientSocket(ClientSocket&&) = default;
  ClientSocket& operator=(ClientSocket&&) = delete;

  int get() const { return socket_.get(); }
  int send(const Message& message, std::span<const int> descriptors = {}) const {
    return broker::send(socket_.get(), message, descriptors);
  }

  // It has been sent something that it has not read.
  bool unread() const { return is_unread(socket_.get()); }
  // It sees the end behind what it has been sent, and nothing more is taken from it.
  void hang_up();
  // Drops a message that it has sent. False: there are more, or descriptors, which would be closed with the socket: to
  // be left to a SlowCloser.
  bool drain();
  UniqueFd release() { return std::move(socket_); }

  // As broker::peek().
  int peek(Message& message, bool& brings) const { return broker::peek(socket_.get(), message, brings); }
  // Drops it. Its descriptors are closed, unless somebody has copies.
  void drop() const;
  // Any message of up to bytes.size() bytes, without descriptors, as far as there is one. EAGAIN: there is none.
  // EPROTO: it is longer, or brings descriptors. ECONNRESET: nothing comes any more.
  int receive(std::span<uint8_t> bytes, size_t& size);

 private:
  UniqueFd socket_;
  bool hung_up_ = false;  // to say it costs as much as there are waiters at the other end
};

}  // namespace uroce::broker
