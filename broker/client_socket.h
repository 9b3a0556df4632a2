// SPDX-License-Identifier: BSD-2-Clause
// The broker's end of a connection to a client, who may be hostile. To close a descriptor can take as long as its
// sender likes: a TCP socket with SO_LINGER and a peer that reads nothing, a file of his own file system (FUSE). So
// descriptors that nobody asked for are never taken, and those that are asked for are looked at before they are closed.
#pragma once

#include <span>
#include <utility>

#include "broker/protocol.h"
#include "engine/base/unique_fd.h"

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
  // Drops what it has sent. False: there are descriptors, which would be closed with the socket: to be left to a
  // SlowCloser.
  bool drain();
  UniqueFd release() { return std::move(socket_); }

  // Which descriptors may come with a kClaim: none, UDP sockets, or whatever it is.
  enum class Takes { kNothing, kUdpSockets, kAnything };
  // As broker::receive() without waiting. EPROTO as well for descriptors that are not to be taken; EPERM: one of these
  // was no UDP socket. It stays open for good, so the client's user should not be given the chance again.
  int receive(Message& message, Descriptors& descriptors, Takes takes);
  // Any message of up to bytes.size() bytes, without descriptors, as far as there is one. EAGAIN: there is none.
  // EPROTO: it is longer, or brings descriptors. ECONNRESET: nothing comes any more.
  int receive(std::span<uint8_t> bytes, size_t& size);

 private:
  int take_claimed(Descriptors& descriptors, Takes takes);

  UniqueFd socket_;
  bool hung_up_ = false;  // to say it costs as much as there are waiters at the other end
};

}  // namespace uroce::broker
