// SPDX-License-Identifier: BSD-2-Clause
// An ordinary program over TCP sockets, which librspreload puts onto RDMA (rdma_cm_apps.py). Both sides send at the
// same time, pieces of many sizes; each compares every byte that comes with what the other side's seed makes.
//
// Usage: socket_exchange PORT SEED [SERVER]     SERVER: an IPv4 address; without: waits for the client
// socket() and accept() without flags: librspreload (44) leaves other calls to the kernel. One thread and poll(): two
// threads that wait on one rsocket, one to send and one to receive, can both sleep for ever (docs/rdma-cm.md).
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::array<size_t, 6> kPieces{1, 7, 100, 4096, 65536, 1 << 20};
constexpr size_t kRounds = 4;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "socket_exchange: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::vector<uint8_t> piece(std::mt19937& random, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// The pieces of one direction, one after the other.
class Stream {
 public:
  explicit Stream(uint32_t seed) : random_(seed) { next(); }

  bool ended() const { return left_ == 0; }
  size_t moved() const { return moved_; }

  void send_some(int fd) {
    const ssize_t sent = send(fd, &piece_[at_], piece_.size() - at_, 0);
    if (sent > 0) return advance(static_cast<size_t>(sent));
    if (sent == 0 || errno != EAGAIN) fail("send");
  }

  void receive_some(int fd) {
    received_.resize(piece_.size());
    const ssize_t received = recv(fd, &received_[at_], piece_.size() - at_, 0);
    if (received == 0) errno = 0;
    if (received <= 0) {
      if (errno != EAGAIN) fail("recv");
      return;
    }
    const size_t from = at_, count = static_cast<size_t>(received);
    errno = 0;
    if (std::memcmp(&received_[from], &piece_[from], count) != 0) fail("other bytes than were sent");
    advance(count);
  }

 private:
  void next() {
    piece_ = piece(random_, kPieces[(kRounds * kPieces.size() - left_) % kPieces.size()]);
    at_ = 0;
  }
  void advance(size_t count) {
    moved_ += count;
    at_ += count;
    if (at_ == piece_.size() && --left_ > 0) next();
  }

  std::mt19937 random_;
  std::vector<uint8_t> piece_, received_;
  size_t left_ = kRounds * kPieces.size(), at_ = 0, moved_ = 0;
};

void exchange(int fd, Stream& out, Stream& in) {
  while (!out.ended() || !in.ended()) {
    pollfd wanted{fd, 0, 0};
    if (!in.ended()) wanted.events |= POLLIN;
    if (!out.ended()) wanted.events |= POLLOUT;
    if (poll(&wanted, 1, -1) < 0) fail("poll");
    if ((wanted.revents & ~(POLLIN | POLLOUT)) != 0) fail("the socket");
    if ((wanted.revents & POLLIN) != 0) in.receive_some(fd);
    if ((wanted.revents & POLLOUT) != 0) out.send_some(fd);
  }
}

int connected(uint16_t port, const char* server) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (server != nullptr && inet_pton(AF_INET, server, &name.sin_addr) != 1) fail(server);
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  if (fd < 0) fail("socket");
  if (server != nullptr) {
    if (connect(fd, address, sizeof(name)) != 0) fail("connect");
    return fd;
  }
  if (bind(fd, address, sizeof(name)) != 0 || listen(fd, 1) != 0) fail("listen");
  const int accepted = accept(fd, nullptr, nullptr);
  if (accepted < 0) fail("accept");
  return accepted;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool server = argc == 3;
  const auto seed = static_cast<uint32_t>(std::atoi(argv[2]));
  const int fd = connected(static_cast<uint16_t>(std::atoi(argv[1])), server ? nullptr : argv[3]);
  const uint32_t own = 2 * seed + (server ? 1 : 0), others = 2 * seed + (server ? 0 : 1);
  Stream out(own), in(others);
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
  exchange(fd, out, in);
  if (fcntl(fd, F_SETFL, 0) != 0) fail("blocking again");
  // Neither ends before the other one has all.
  uint8_t done = 1;
  if (send(fd, &done, 1, 0) != 1 || recv(fd, &done, 1, 0) != 1) fail("the end");
  close(fd);
  std::printf("ok: %zu bytes each way\n", in.moved());
  return 0;
}
