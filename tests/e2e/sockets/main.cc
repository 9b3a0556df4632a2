// SPDX-License-Identifier: BSD-2-Clause
// An ordinary program over TCP sockets, which librspreload puts onto RDMA (rdma_cm_apps.py). Both sides send at the
// same time, pieces of many sizes; each compares every byte that comes with what the other side's seed makes.
//
// Usage: socket_exchange PORT SEED [SERVER]     SERVER: an IPv4 address; without: waits for the client
// socket() and accept() without flags: librspreload (44) leaves other calls to the kernel.
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::array<size_t, 6> kPieces{1, 7, 100, 4096, 65536, 1 << 20};
constexpr int kRounds = 4;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "socket_exchange: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::vector<uint8_t> piece(std::mt19937& random, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

void send_all(int fd, uint32_t seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t size : kPieces) {
      const std::vector<uint8_t> bytes = piece(random, size);
      for (size_t at = 0; at < size;) {
        const ssize_t sent = send(fd, &bytes[at], size - at, 0);
        if (sent <= 0) fail("send");
        at += static_cast<size_t>(sent);
      }
    }
  }
}

size_t receive_all(int fd, uint32_t seed) {
  std::mt19937 random(seed);
  size_t total = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t size : kPieces) {
      const std::vector<uint8_t> expected = piece(random, size);
      std::vector<uint8_t> bytes(size);
      for (size_t at = 0; at < size;) {
        const ssize_t received = recv(fd, &bytes[at], size - at, 0);
        if (received <= 0) fail("recv");
        at += static_cast<size_t>(received);
      }
      errno = 0;
      if (bytes != expected) fail("other bytes than were sent");
      total += size;
    }
  }
  return total;
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
  std::thread sender([&] { send_all(fd, own); });
  const size_t received = receive_all(fd, others);
  sender.join();
  // Neither ends before the other one has all.
  uint8_t done = 1;
  if (send(fd, &done, 1, 0) != 1 || recv(fd, &done, 1, 0) != 1) fail("the end");
  close(fd);
  std::printf("ok: %zu bytes each way\n", received);
  return 0;
}
