// SPDX-License-Identifier: BSD-2-Clause
// The kernel's sockets between the two sides: a UDP or TCP socket to the peer, and the socket of the side that waits
// for it. Errors are thrown.
#pragma once

#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

namespace uroce::limits {

struct PeerOptions {
  bool tcp = false;     // else UDP
  bool ipv6 = false;    // else IPv4
  std::string address;  // of the side that waits
};

struct Endpoint {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t length;
};

Endpoint peer_endpoint(const PeerOptions& options);
int open_socket(const PeerOptions& options);      // neither bound nor connected
int connect_to_peer(const PeerOptions& options);  // the peer waits already
int wait_for_peer(const PeerOptions& options);    // UDP: bound; TCP: accepted from the first peer

[[noreturn]] void fail_with_errno(const char* step);

}  // namespace uroce::limits
