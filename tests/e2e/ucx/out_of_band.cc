// SPDX-License-Identifier: BSD-2-Clause
#include "out_of_band.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace exchange {
namespace {

bool send_all(int fd, const void* data, size_t size) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent < 0) return false;
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t size) {
  if (size == 0) return true;
  const ssize_t received = ::recv(fd, data, size, MSG_WAITALL);
  if (received >= 0) errno = 0;
  return received == static_cast<ssize_t>(size);
}

}  // namespace

OutOfBand::~OutOfBand() {
  if (fd_ >= 0) ::close(fd_);
}

bool OutOfBand::accept(uint16_t port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return false;
  const int one = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(listener, name, sizeof(address)) == 0 && ::listen(listener, 1) == 0) {
    fd_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  }
  const int error = errno;
  ::close(listener);
  errno = error;
  return fd_ >= 0;
}

bool OutOfBand::connect(const std::string& text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    errno = EINVAL;
    return false;
  }
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return fd_ >= 0 && ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

OutOfBand::State OutOfBand::state() const {
  uint8_t byte;
  const ssize_t peeked = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (peeked > 0) return State::kReadable;
  return peeked < 0 && (errno == EAGAIN || errno == EINTR) ? State::kNothing : State::kEnded;
}

bool OutOfBand::send(const Blob& blob) {
  const uint64_t size = blob.size();
  return send_all(fd_, &size, sizeof(size)) && send_all(fd_, blob.data(), blob.size());
}

bool OutOfBand::receive(Blob& blob) {
  uint64_t size = 0;
  if (!receive_all(fd_, &size, sizeof(size))) return false;
  blob.resize(size);
  return receive_all(fd_, blob.data(), size);
}

}  // namespace exchange
