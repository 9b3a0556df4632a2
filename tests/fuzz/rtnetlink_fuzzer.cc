// SPDX-License-Identifier: BSD-2-Clause
// Any bytes as netlink's answer: one datagram with any number of messages, whole or cut short. Reading them touches
// nothing behind the datagram, which ends where memory does: libnl, which walks through attributes, has no sanitizer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <linux/netlink.h>
#include <netlink/msg.h>
#include <string>
#include <sys/mman.h>

#include "engine/net/rtnetlink.h"
#include "tests/fuzz/check.h"

using namespace uroce::net;
using uroce::fuzz::check;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 16;

// The place whose last byte is the last one that can be read.
uint8_t* end_of_memory() {
  static uint8_t* const end = [] {
    void* const memory =
        mmap(nullptr, (kPages + 1) * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const guard = static_cast<uint8_t*>(memory) + kPages * kPage;
    check(memory != MAP_FAILED && mprotect(guard, kPage, PROT_NONE) == 0, "no memory");
    return guard;
  }();
  return end;
}

void read(const nlmsghdr& message) {
  if (const auto link = rtnetlink::parse_link(message)) {
    check(link->netdev.name.find('\0') == std::string::npos, "the name has a null byte");
  }
  (void)rtnetlink::parse_ipv6_settings(message);
  (void)rtnetlink::parse_address(message);
  (void)rtnetlink::parse_route(message);
  if (const auto prefix = rtnetlink::parse_route_prefix(message)) {
    check(prefix->length <= 128, "a prefix longer than an address");
    News news;
    news.add_route(*prefix);
    check(news.concern_route_to(prefix->address), "a route does not cover its own prefix");
  }
  if (const auto entry = rtnetlink::parse_neighbour(message)) {
    NextHop hop(entry->netdev_index, entry->address, entry->neighbour);
    check(hop.neighbour() == entry->neighbour, "a next hop is not what it was set to");
    check(entry->neighbour.has_mac() || entry->neighbour.mac == uroce::wire::MacAddress{}, "a MAC address of no use");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As the kernel's datagrams the messages begin at a multiple of four; so do those behind the first.
  size = std::min(size, kPages * kPage) / NLMSG_ALIGNTO * NLMSG_ALIGNTO;
  uint8_t* const datagram = end_of_memory() - size;
  std::memcpy(datagram, data, size);
  auto* message = reinterpret_cast<nlmsghdr*>(datagram);
  int left = static_cast<int>(size);
  while (nlmsg_ok(message, left)) {  // the loop of libnl's recvmsgs()
    read(*message);
    message = nlmsg_next(message, &left);
  }
  return 0;
}
