// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/memory_faults/control.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "tests/e2e/memory_faults/failure.h"

namespace uroce::memory_faults {
namespace {

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  check(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "not an IPv4 address: " + host);
  return address;
}

int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail_call("socket", errno);
  return fd;
}

}  // namespace

Control Control::serve(uint16_t port) {
  const sockaddr_in address = address_of("0.0.0.0", port);
  const int listener = tcp_socket();
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail_call("bind", errno);
  if (listen(listener, 1) != 0) fail_call("listen", errno);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) fail_call("accept", errno);
  close(listener);
  return Control(fd);
}

Control Control::connect(const std::string& host, uint16_t port) {
  const sockaddr_in address = address_of(host, port);
  const int fd = tcp_socket();
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail_call("connect", errno);
  return Control(fd);
}

Control::Control(int fd) : fd_(fd) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Control::Control(Control&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Control::~Control() {
  if (fd_ >= 0) close(fd_);
}

void Control::tell() const {
  const uint8_t word = 1;
  send(&word, sizeof word);
}

bool Control::told() const {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, 0) == 0) return false;
  wait_told();
  return true;
}

void Control::wait_told() const {
  uint8_t word;
  receive(&word, sizeof word);
  check(word == 1, "the two sides are at different places");
}

void Control::send(const void* data, size_t size) const {
  const ssize_t n = ::send(fd_, data, size, MSG_NOSIGNAL);
  check(n == static_cast<ssize_t>(size), "the other side is gone");
}

void Control::receive(void* data, size_t size) const {
  const Deadline deadline;
  for (size_t done = 0; done < size;) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, deadline.milliseconds()) == 0) deadline.check("the other side's word");
    const ssize_t n = recv(fd_, static_cast<uint8_t*>(data) + done, size - done, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    check(n > 0, "the other side is gone");
    done += static_cast<size_t>(n);
  }
}

}  // namespace uroce::memory_faults
