// SPDX-License-Identifier: BSD-2-Clause
#include "bench/limits_src/peer_socket.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/tcp.h>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "bench/limits_src/process.h"

namespace uroce::limits {
namespace {

constexpr uint16_t kPort = 7471;

Endpoint any_endpoint(const PeerOptions& options) {
  Endpoint endpoint{};
  if (options.ipv6) {
    endpoint.v6.sin6_family = AF_INET6;
    endpoint.v6.sin6_port = htons(kPort);
    endpoint.length = sizeof endpoint.v6;
  } else {
    endpoint.v4.sin_family = AF_INET;
    endpoint.v4.sin_port = htons(kPort);
    endpoint.length = sizeof endpoint.v4;
  }
  return endpoint;
}

}  // namespace

void fail_with_errno(const char* step) {
  throw std::system_error(errno, std::generic_category(), step);
}

Endpoint peer_endpoint(const PeerOptions& options) {
  Endpoint endpoint = any_endpoint(options);
  void* const address = options.ipv6 ? static_cast<void*>(&endpoint.v6.sin6_addr) : &endpoint.v4.sin_addr;
  if (inet_pton(endpoint.any.sa_family, options.address.c_str(), address) != 1)
    throw std::runtime_error("not an address of this IP version: " + options.address);
  return endpoint;
}

int open_socket(const PeerOptions& options) {
  const int fd = socket(options.ipv6 ? AF_INET6 : AF_INET, options.tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
  if (fd < 0) fail_with_errno("socket");
  const int on = 1;
  if (options.tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int buffer_bytes = 8 << 20;  // as root beyond net.core.rmem_max; TCP sizes its own
  if (!options.tcp) setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
  return fd;
}

int connect_to_peer(const PeerOptions& options) {
  const int fd = open_socket(options);
  const Endpoint peer = peer_endpoint(options);
  if (connect(fd, &peer.any, peer.length) != 0) fail_with_errno("connect");
  return fd;
}

int wait_for_peer(const PeerOptions& options) {
  const int fd = open_socket(options);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const Endpoint local = any_endpoint(options);
  if (bind(fd, &local.any, local.length) != 0) fail_with_errno("bind");
  if (options.tcp && listen(fd, 1) != 0) fail_with_errno("listen");
  announce_ready();
  if (!options.tcp) return fd;
  const int connection = accept(fd, nullptr, nullptr);
  if (connection < 0) fail_with_errno("accept");
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(fd);
  return connection;
}

}  // namespace uroce::limits
