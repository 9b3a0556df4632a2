// SPDX-License-Identifier: BSD-2-Clause
#include "link.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "symbols.h"

namespace uroce::nccl_style {
namespace {

int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket", errno);
  return fd;
}

}  // namespace

Link Link::serve(uint16_t port) {
  const int listener = tcp_socket();
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  if (bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0) fail("bind", errno);
  if (listen(listener, 1) != 0) fail("listen", errno);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) fail("accept", errno);
  close(listener);
  return Link(fd);
}

Link Link::connect(const std::string& address, uint16_t port) {
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &server.sin_addr) != 1) throw Failure(address + " is no IPv4 address");
  const int fd = tcp_socket();
  if (::connect(fd, reinterpret_cast<sockaddr*>(&server), sizeof(server)) != 0) fail("connect to " + address, errno);
  return Link(fd);
}

Link::~Link() {
  close(fd_);
}

void Link::send(const void* data, size_t size) {
  for (const auto* next = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = ::send(fd_, next, size, MSG_NOSIGNAL);
    if (sent <= 0) fail("send", errno);
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

void Link::receive(void* data, size_t size) {
  const ssize_t received = recv(fd_, data, size, MSG_WAITALL);
  if (received < 0) fail("receive", errno);
  if (static_cast<size_t>(received) != size) throw Failure("the other side has gone");
}

}  // namespace uroce::nccl_style
