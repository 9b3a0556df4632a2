// SPDX-License-Identifier: BSD-2-Clause
// The sockets on UDP port 4791 that one client has, and how they are told from others: a filter that nobody can change
// lets through the packets of one range of QPNs and multicast packets. It keeps a client from packets of others, and
// says to a new broker which lease the sockets are of when an earlier broker has died.
#pragma once

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"
#include "broker/protocol/lease_range.h"

namespace uroce::broker {

struct PortSockets {
  UniqueFd v4;
  UniqueFd v6;  // empty: the host has no IPv6
  // The client never reads it. It keeps it open for as long as the sockets, and brings it to the next broker. May be
  // empty.
  UniqueFd kept;
};

struct LeaseId {
  LeaseRange range;
  // Rises from one lease of a range to the next, over the lives of brokers: whoever had the range before may have kept
  // its sockets. 0: the same sockets are leased again and again.
  uint64_t serial = 0;
  // The client sees all that comes from the wire by a port of DPDK on the netdev, and the kernel goes on seeing it too.
  // The sockets get no copies of packets without UDP checksum, which are built in user space and by NICs, but from this
  // host and to groups. Runs of packets, which the port cannot take, have one.
  bool without_copies = false;

  bool operator==(const LeaseId&) const = default;
};

// Attaches the filter for good. 0 or an errno value.
int lock_to(int fd, const LeaseId& lease);
// The lease that the socket's filter is for, if it is one of ours and locked.
std::optional<LeaseId> locked_lease(int fd);

// What is wrong with a descriptor that is said to be a member of the port's group. Null: it is one of this process's
// user and network namespace, not connected.
const char* not_a_member(int fd, int family);

// Identifies a socket, whatever the number of the descriptor. 0: not a socket.
uint64_t socket_cookie(int fd);

// Reads what has arrived, a bounded number of messages, and says how many they were.
uint32_t discard_packets(int fd);

}  // namespace uroce::broker
