// SPDX-License-Identifier: BSD-2-Clause
#include "broker/protocol/port_sockets.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::broker {
namespace {

#ifndef SO_NETNS_COOKIE
constexpr int SO_NETNS_COOKIE = 71;  // Linux 5.14
#endif

constexpr uint32_t kUdpHeader = 8, kDestinationQp = 4;  // the word of it in the BTH
constexpr uint32_t kQpnMask = wire::kMask24, kMulticastQpn = wire::kMulticastQpn.value();
constexpr uint32_t kEverything = 0xffffffff, kNothing = 0;
constexpr uint32_t kLoopback = 1;  // its index, in each network namespace
constexpr auto kIfindex = static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_IFINDEX);

// Without memory of its own: it is looked at in processes that must not allocate (staging.h).
class Filter {
 public:
  Filter() = default;
  Filter(std::initializer_list<sock_filter> instructions) {
    for (const sock_filter& each : instructions) push_back(each);
  }
  void push_back(const sock_filter& instruction) { instructions_.at(size_++) = instruction; }
  void append(const Filter& more) {
    for (size_t i = 0; i < more.size_; ++i) push_back(more.instructions_[i]);
  }
  size_t size() const { return size_; }
  sock_filter* data() { return instructions_.data(); }
  const sock_filter& operator[](size_t i) const { return instructions_.at(i); }

 private:
  std::array<sock_filter, 48> instructions_{};
  size_t size_ = 0;
};

// Drops what comes with one of our addresses as its source and its destination, and not over lo. Of IPv4 the kernel
// drops it. A packet that is for us otherwise goes by after a look at two words.
Filter forgery_filter() {
  constexpr auto kSource = static_cast<uint32_t>(SKF_NET_OFF + 8), kDestination = kSource + 16;
  constexpr uint8_t kEach = 4, kAll = 16;  // instructions for a word, for an address
  Filter filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kIfindex),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLoopback, kAll + 1, 0)};
  for (uint8_t left = kAll; left > 0; left -= kEach) {  // the last word first: hosts differ there
    const uint32_t word = left - kEach;
    const auto behind = static_cast<uint8_t>(left - kEach + 1);
    for (const sock_filter& instruction :
         {sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSource + word), sock_filter BPF_STMT(BPF_MISC | BPF_TAX, 0),
          sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kDestination + word),
          sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, behind)})
      filter.push_back(instruction);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, kNothing));
  return filter;
}

// Drops what a port of DPDK has seen (LeaseId::without_copies).
Filter copies_filter() {
  constexpr uint32_t kChecksum = 6;
  return {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kChecksum),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 6),
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kIfindex),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLoopback, 4, 0),
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kUdpHeader + kDestinationQp),
          BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kQpnMask),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMulticastQpn, 1, 0),
          BPF_STMT(BPF_RET | BPF_K, kNothing)};
}

// What a socket filter sees begins with the UDP header. Of a run it sees the first packet. A packet that is too short
// is dropped. The last two instructions are never reached: they hold the serial.
Filter filter_for(const LeaseId& lease, int family) {
  const auto high = static_cast<uint32_t>(lease.serial >> 32), low = static_cast<uint32_t>(lease.serial);
  Filter filter = family == AF_INET6 ? forgery_filter() : Filter();
  if (lease.without_copies) filter.append(copies_filter());
  for (const sock_filter& instruction :
       {sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kUdpHeader + kDestinationQp),
        sock_filter BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kQpnMask),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMulticastQpn, 2, 0),
        sock_filter BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, LeaseRange::kBits),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lease.range.number, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, kEverything), sock_filter BPF_STMT(BPF_RET | BPF_K, kNothing),
        sock_filter BPF_STMT(BPF_RET | BPF_K, high), sock_filter BPF_STMT(BPF_RET | BPF_K, low)})
    filter.push_back(instruction);
  return filter;
}
constexpr size_t kNumberAt = 5, kSerialAt = 2;  // from the end

// -1 if there is none.
int option(int fd, int name) {
  int value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

uint64_t cookie(int fd, int name) {
  uint64_t value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : 0;
}

bool is_in_own_namespace(int fd) {
  const UniqueFd own(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return own && cookie(fd, SO_NETNS_COOKIE) == cookie(own.get(), SO_NETNS_COOKIE);
}

bool is_on_port(int fd, int family) {
  sockaddr_in6 bound{};  // as much as both take
  socklen_t length = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return false;
  if (family == AF_INET6) {
    return bound.sin6_port == htons(wire::kRoceUdpPort) && IN6_IS_ADDR_UNSPECIFIED(&bound.sin6_addr);
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &bound, sizeof(v4));
  return v4.sin_port == htons(wire::kRoceUdpPort) && v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

bool is_connected(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

}  // namespace

int lock_to(int fd, const LeaseId& lease) {
  Filter filter = filter_for(lease, option(fd, SO_DOMAIN));
  const sock_fprog program{static_cast<uint16_t>(filter.size()), filter.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) return errno;
  const int on = 1;
  return setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)) == 0 ? 0 : errno;
}

// SO_GET_FILTER counts in instructions, and fails if there are more than fit.
static std::optional<LeaseId> locked_lease(int fd, bool without_copies) {
  const int family = option(fd, SO_DOMAIN);
  Filter found = filter_for({.range = {}, .without_copies = without_copies}, family);  // as long
  auto length = static_cast<socklen_t>(found.size());
  if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, found.data(), &length) != 0 || length != found.size()) return {};
  if (option(fd, SO_LOCK_FILTER) != 1) return {};
  const LeaseRange range{found[found.size() - kNumberAt].k};
  if (range.number < LeaseRange::kFirstNumber || range.number > LeaseRange::kLastNumber) return {};
  const sock_filter* const serial = &found[found.size() - kSerialAt];
  const LeaseId lease{range, uint64_t{serial[0].k} << 32 | serial[1].k, without_copies};
  Filter expected = filter_for(lease, family);
  if (std::memcmp(found.data(), expected.data(), expected.size() * sizeof(sock_filter)) != 0) return {};
  return lease;
}

std::optional<LeaseId> locked_lease(int fd) {
  const std::optional<LeaseId> lease = locked_lease(fd, false);
  return lease ? lease : locked_lease(fd, true);
}

const char* not_a_member(int fd, int family) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return "not a socket";
  if (option(fd, SO_DOMAIN) != family) return "not a socket of this IP version";
  if (option(fd, SO_TYPE) != SOCK_DGRAM || option(fd, SO_PROTOCOL) != IPPROTO_UDP) return "not a UDP socket";
  if (!is_in_own_namespace(fd)) return "of another network namespace";
  if (status.st_uid != geteuid()) return "made by another user";
  if (!is_on_port(fd, family) || option(fd, SO_BINDTOIFINDEX) != 0) return "not bound to port 4791 of all netdevs";
  if (option(fd, SO_REUSEPORT) != 1) return "not a member of the port's group";
  if (is_connected(fd)) return "connected";
  return nullptr;
}

uint64_t socket_cookie(int fd) {
  return cookie(fd, SO_COOKIE);
}

uint32_t discard_packets(int fd) {
  constexpr size_t kCalls = 16, kMessages = 64;
  char byte = 0;
  iovec place{&byte, sizeof(byte)};
  uint32_t count = 0;
  for (size_t call = 0; call < kCalls; ++call) {
    std::array<mmsghdr, kMessages> messages{};
    for (mmsghdr& message : messages) {
      message.msg_hdr.msg_iov = &place;
      message.msg_hdr.msg_iovlen = 1;
    }
    const int received = recvmmsg(fd, messages.data(), kMessages, MSG_DONTWAIT, nullptr);
    if (received <= 0) break;
    count += static_cast<uint32_t>(received);
    if (received < static_cast<int>(kMessages)) break;
  }
  return count;
}

}  // namespace uroce::broker
