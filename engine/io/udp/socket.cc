// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/socket.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include "base/fork.h"
#include "wire/envelope.h"

namespace uroce::io {
namespace {

constexpr int kUdpNoCheck6Rx = 102;    // UDP_NO_CHECK6_RX of <linux/udp.h>, which clashes with <netinet/udp.h>
constexpr int kIpv6MulticastAll = 29;  // IPV6_MULTICAST_ALL of <linux/in6.h>, which clashes with <netinet/in.h>

int set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 : errno;
}

// As large as allowed: beyond net.core.[rw]mem_max only with CAP_NET_ADMIN.
void set_buffer_sizes(int fd) {
  if (set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kUdpBufferSize) != 0)
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kUdpBufferSize);
  if (set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, kUdpBufferSize) != 0)
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kUdpBufferSize);
}

enum class Sharing {
  kNone,   // the process's own members of a multicast group get their copies from the engine, not from the kernel
  kGroup,  // multicast packets come to those members of the port's group that have joined, and to no others
};

// DF set and never fragmented here: the ICRC covers DF, and Linux sends ID 0 with it (wire.md "UDP sockets").
int set_ipv4_options(int fd, Sharing sharing) {
  const int shared = sharing == Sharing::kGroup ? 1 : 0;
  for (const auto& [name, value] :
       {std::pair{IP_MTU_DISCOVER, IP_PMTUDISC_DO}, std::pair{IP_PKTINFO, 1}, std::pair{IP_RECVTOS, 1},
        std::pair{IP_RECVTTL, 1}, std::pair{IP_MULTICAST_LOOP, shared}, std::pair{IP_MULTICAST_ALL, 1 - shared}}) {
    if (const int error = set_option(fd, IPPROTO_IP, name, value)) return error;
  }
  return 0;
}

// Native endpoints send UDP checksum 0 on IPv6 too.
int set_ipv6_options(int fd, Sharing sharing) {
  const int shared = sharing == Sharing::kGroup ? 1 : 0;
  for (const auto& [name, value] :
       {std::pair{IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO}, std::pair{IPV6_DONTFRAG, 1}, std::pair{IPV6_RECVPKTINFO, 1},
        std::pair{IPV6_RECVTCLASS, 1}, std::pair{IPV6_RECVHOPLIMIT, 1}, std::pair{IPV6_MULTICAST_LOOP, shared},
        std::pair{kIpv6MulticastAll, 1 - shared}}) {
    if (const int error = set_option(fd, IPPROTO_IPV6, name, value)) return error;
  }
  return set_option(fd, IPPROTO_UDP, kUdpNoCheck6Rx, 1);
}

int set_options(int fd, int family, Sharing sharing) {
  if (const int error = family == AF_INET ? set_ipv4_options(fd, sharing) : set_ipv6_options(fd, sharing)) return error;
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);  // only for a counter
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);     // Linux 5.0; without it packets come one by one
  set_buffer_sizes(fd);
  return 0;
}

int bind_to_port(int fd, int family) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(wire::kRoceUdpPort);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(wire::kRoceUdpPort);
  const int result = family == AF_INET ? bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4))
                                       : bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
  return result == 0 ? 0 : errno;
}

constexpr const char* kTakenRemedy =
    "uroced shares it among programs that run without --alone (uroce run starts it); see who has it with ss -lunp "
    "sport "
    "= :4791; the kernel's RoCE goes with modprobe -r rdma_rxe";
constexpr const char* kBindRemedy = "check the network namespace's addresses: ip address";

std::string name_of(int family) {
  return family == AF_INET ? "UDP socket over IPv4" : "UDP socket over IPv6";
}

IoError make_error(int error, const std::string& call, std::string remedy) {
  return {error, call + ": " + std::generic_category().message(error), remedy_for(error, std::move(remedy))};
}

IoError options_error(int error, const std::string& name) {
  return make_error(error, name + ", socket options", "Linux 5.7 or later");
}

std::variant<UniqueFd, IoError> open_socket(int family) {
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return make_error(errno, name_of(family), "enable the protocol in this kernel and network namespace");
  const int error = family == AF_INET6 ? set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) : 0;
  if (error != 0) return options_error(error, name_of(family));
  return fd;
}

}  // namespace

size_t udp_receive_buffer() {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return 0;
  set_buffer_sizes(fd.get());
  int size = 0;
  socklen_t length = sizeof(size);
  return getsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &size, &length) == 0 ? static_cast<size_t>(size) : 0;
}

UdpSocket::UdpSocket(UniqueFd fd) {
  ForkGuard guard;
  guard.close_in_children(fd.get());
  fd_ = fd.release();
}

UdpSocket::~UdpSocket() {
  ForkGuard().close(fd_);
}

std::optional<IoError> UdpSocket::open(int family, const std::string& netdev) {
  ForkGuard guard;
  auto result = open_socket(family);
  if (auto* const error = std::get_if<IoError>(&result)) return std::move(*error);
  UniqueFd fd = std::move(std::get<UniqueFd>(result));
  const std::string name = name_of(family);
  if (setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, netdev.data(), static_cast<socklen_t>(netdev.size())) != 0) {
    const int error = errno;
    return make_error(error, name + ", bind to netdev " + netdev,
                      error == EPERM ? "Linux 5.7 or later, or CAP_NET_RAW" : "check the name: ip link");
  }
  if (const int error = set_options(fd.get(), family, Sharing::kNone)) return options_error(error, name);
  if (const int error = bind_to_port(fd.get(), family)) {
    return make_error(error, name + ", port 4791 on " + netdev, error == EADDRINUSE ? kTakenRemedy : kBindRemedy);
  }
  guard.close_in_children(fd.get());
  fd_ = fd.release();
  return std::nullopt;
}

std::variant<UniqueFd, IoError> open_group_member(int family) {
  auto result = open_socket(family);
  const auto* const fd = std::get_if<UniqueFd>(&result);
  if (fd == nullptr) return result;
  const std::string name = name_of(family);
  if (const int error = set_option(fd->get(), SOL_SOCKET, SO_REUSEPORT, 1)) return options_error(error, name);
  if (const int error = set_options(fd->get(), family, Sharing::kGroup)) return options_error(error, name);
  if (const int error = bind_to_port(fd->get(), family)) return make_error(error, name + ", port 4791", kBindRemedy);
  return result;
}

int reset_group_member(int fd, int family) {
  return set_options(fd, family, Sharing::kGroup);
}

}  // namespace uroce::io
