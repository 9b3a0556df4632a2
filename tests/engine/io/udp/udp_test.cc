// SPDX-License-Identifier: BSD-2-Clause
// What is special about UdpIo; packets in both directions are in af_xdp_test.cc.
#include "engine/io/udp/udp.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sock_diag.h>
#include <memory>
#include <net/if.h>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "engine/io/udp/message.h"
#include "engine/io/udp/socket.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

class Udp : public testing::Test {
 protected:
  void SetUp() override { UROCE_SKIP_UNLESS_ROOT(); }
};

std::unique_ptr<UdpIo> open_udp(const VethPair::End& end) {
  VethPair::enter(end);
  IoResult<UdpIo> result = UdpIo::open({.netdev = end.netdev, .ifindex = end.ifindex});
  if (const IoError* error = std::get_if<IoError>(&result)) {
    ADD_FAILURE() << error->what << "; " << error->remedy;
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<UdpIo>>(result));
}

TEST_F(Udp, NeedsNoPrivilege) {
  const VethPair veth;
  VethPair::enter(veth.a());
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    const IoResult<UdpIo> result = UdpIo::open({.netdev = "va", .ifindex = veth.a().ifindex});
    _exit(std::holds_alternative<IoError>(result) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another look would be a system call. One call takes 16 datagrams.
TEST_F(Udp, TellsWhetherItHasFoundTheEnd) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  const auto send_one = [&] {
    TestBurst burst;
    burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
    ASSERT_EQ(a->send(burst.packets()), 1u);
  };
  std::array<RxPacket, 64> packets;
  EXPECT_EQ(b->receive(packets), 0u);
  EXPECT_TRUE(b->drained());
  send_one();
  ASSERT_TRUE(eventually([&] { return b->receive(packets) == 1; }));
  EXPECT_TRUE(b->drained());
  for (int i = 0; i < 40; ++i) send_one();
  size_t received = 0, full = 0, in_part = 0;
  ASSERT_TRUE(eventually([&] {
    const size_t count = b->receive({packets.data(), 5});
    received += count;
    const bool part = count == 5 && !b->drained();  // there are others of the same call
    in_part += part;
    const size_t rest = part ? b->receive(packets) : 0;
    received += rest;
    if (part && count + rest == 16) {
      EXPECT_FALSE(b->drained()) << "the kernel may have more than it was asked for";
      ++full;
    } else {
      EXPECT_TRUE(b->drained());
    }
    return received == 40;
  }));
  EXPECT_GT(full, 0u);
  EXPECT_GT(in_part, 0u);
}

// The envelope that ICRC checks and answers are built on.
TEST_F(Udp, ReceivedEnvelopeSaysWhatIsKnown) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->kernel_routes());
  for (const bool v4 : {true, false}) {
    TestBurst burst;
    burst.add(v4 ? VethPair::envelope_v4(veth.a(), veth.b()) : VethPair::envelope_v6(veth.a(), veth.b()), 1, 8);
    ASSERT_EQ(a->send(burst.packets()), 1u);
    std::array<RxPacket, 1> received;
    ASSERT_TRUE(eventually([&] { return b->receive(received) == 1; }));
    burst.expect_arrived(0, received[0]);
    EXPECT_EQ(received[0].envelope.source_port, 4791);
    EXPECT_EQ(received[0].envelope.ip_id_known, !v4);
  }
}

// Sockets that the broker makes are bound to no netdev.
class UdpOfBroker : public Udp {
 protected:
  std::unique_ptr<UdpIo> open(int ifindex) {
    VethPair::enter(veth_.b());
    v4_ = std::get<UniqueFd>(open_group_member(AF_INET));
    v6_ = std::get<UniqueFd>(open_group_member(AF_INET6));
    auto result = UdpIo::open({.netdev = "vb", .ifindex = ifindex, .socket_v4 = v4_.get(), .socket_v6 = v6_.get()});
    return std::move(std::get<std::unique_ptr<UdpIo>>(result));
  }
  static TestBurst burst(bool v4, const VethPair::End& from, const VethPair::End& to) {
    TestBurst burst;
    burst.add(v4 ? VethPair::envelope_v4(from, to) : VethPair::envelope_v6(from, to), 1, 8);
    return burst;
  }

  const VethPair veth_;

 private:
  UniqueFd v4_, v6_;
};

TEST_F(UdpOfBroker, TakesWhatComesInOnItsNetdevOrFromTheHost) {
  const auto a = open_udp(veth_.a());
  const auto b = open(veth_.b().ifindex);
  for (const bool v4 : {true, false}) {
    exchange(*a, *b, burst(v4, veth_.a(), veth_.b()));
    exchange(*b, *b, burst(v4, veth_.b(), veth_.b()));
  }
  EXPECT_EQ(b->counters().rx_wrong_netdev, 0u);
}

TEST_F(UdpOfBroker, DropsWhatComesInElsewhere) {
  const auto a = open_udp(veth_.a());
  const auto b = open(veth_.b().ifindex + 1);
  uint64_t dropped = 0;
  for (const bool v4 : {true, false}) {
    auto packets = burst(v4, veth_.a(), veth_.b());
    ASSERT_EQ(a->send(packets.packets()), 1u);
    ++dropped;
    std::array<RxPacket, 1> received;
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(b->receive(received), 0u);
      return HasFailure() || b->counters().rx_wrong_netdev == dropped;
    }));
  }
}

// Of the sockets for IPv4 and IPv6, the one that had nothing last is looked into now and then only.
TEST_F(UdpOfBroker, LooksIntoBothWhereAsked) {
  const auto a = open_udp(veth_.a());
  const auto b = open(veth_.b().ifindex);
  std::array<RxPacket, 1> received;
  EXPECT_EQ(b->receive(received), 0u);
  for (const bool v4 : {false, true, false}) {
    auto packets = burst(v4, veth_.a(), veth_.b());
    ASSERT_EQ(a->send(packets.packets()), 1u);
    pollfd there = b->wait_descriptors()[v4 ? 0 : 1];
    ASSERT_EQ(poll(&there, 1, 20'000), 1);
    EXPECT_EQ(b->receive(received), 0u);
    b->look_everywhere();
    EXPECT_EQ(b->receive(received), 1u);
    while (!b->looked_everywhere()) EXPECT_EQ(b->receive(received), 0u);
  }
}

// What the kernel says of a socket's receive buffer: bytes in it.
uint32_t bytes_in(int fd) {
  std::array<uint32_t, SK_MEMINFO_VARS> about{};
  socklen_t size = sizeof(about);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_MEMINFO, about.data(), &size), 0);
  return about[SK_MEMINFO_RMEM_ALLOC];
}

// One call of the kernel brings 16, of which none may be for us.
TEST_F(UdpOfBroker, LooksBehindWhatIsNotForUsWhereAsked) {
  constexpr uint32_t kForeign = 40;
  VethPair::run(veth_.a(), "ip link add wa type veth peer name wb netns /proc/" + std::to_string(getpid()) + "/fd/" +
                               std::to_string(veth_.b().namespace_fd));
  VethPair::run(veth_.a(), "ip address add 198.51.100.1/24 dev wa && ip link set wa up");
  VethPair::run(veth_.b(), "ip address add 198.51.100.2/24 dev wb && ip link set wb up");
  VethPair::End elsewhere_a = veth_.a(), elsewhere_b = veth_.b();
  VethPair::enter(elsewhere_a);
  elsewhere_a.netdev = "wa";
  elsewhere_a.ifindex = static_cast<int>(if_nametoindex("wa"));
  elsewhere_a.v4 = ipv4(198, 51, 100, 1);
  elsewhere_b.v4 = ipv4(198, 51, 100, 2);

  const auto a = open_udp(veth_.a()), from_elsewhere = open_udp(elsewhere_a);
  const auto b = open(veth_.b().ifindex);
  auto foreign = burst(true, elsewhere_a, elsewhere_b), ours = burst(true, veth_.a(), veth_.b());
  const int fd = b->wait_descriptors().front().fd;
  uint32_t each = 0;
  for (uint32_t i = 1; i <= kForeign + 1; ++i) {
    ASSERT_EQ(i <= kForeign ? from_elsewhere->send(foreign.packets()) : a->send(ours.packets()), 1u);
    ASSERT_TRUE(eventually([&] { return bytes_in(fd) >= std::max(1u, each * i); })) << i;
    if (i == 1) each = bytes_in(fd);
  }
  EXPECT_TRUE(b->looked_everywhere());
  b->look_everywhere();
  std::array<RxPacket, 64> received;
  size_t count = 0, looks = 0;
  for (; count == 0 && !b->looked_everywhere(); ++looks) count = b->receive(received);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(looks, 3u);
  EXPECT_EQ(b->counters().rx_wrong_netdev, kForeign);
  EXPECT_TRUE(b->take_notices().empty()) << "each came in where its address is";
  while (!b->looked_everywhere()) EXPECT_EQ(b->receive(received), 0u);
}

// A packet that the kernel refuses is counted; those around it go out.
TEST_F(Udp, RefusedPacketIsCountedAndSkipped) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  wire::Envelope not_our_address = VethPair::envelope_v4(veth.a(), veth.b());
  not_our_address.source = ipv4(192, 0, 2, 77);
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 0, 8);
  burst.add(not_our_address, 1, 8);
  burst.add(not_our_address, 2, 8);
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 3, 8);
  EXPECT_EQ(a->send(burst.packets()), 4u);
  EXPECT_EQ(a->counters().tx_errors, 2u);
  EXPECT_EQ(a->counters().tx_packets, 2u);
  std::vector<uint32_t> psns;
  std::array<RxPacket, 8> received;
  EXPECT_TRUE(eventually([&] {
    const size_t count = b->receive(received);
    for (size_t i = 0; i < count; ++i) psns.push_back(psn_of(received[i]));
    return psns.size() == 2;
  }));
  EXPECT_EQ(psns, (std::vector<uint32_t>{0, 3}));
}

// The kernel reads a packet later than its ICRC is computed; by then the application may have changed the memory, as it
// may while a READ response or an unreliable WRITE leaves.
TEST(UdpMessage, WhatWasSummedIsWhatLeaves) {
  for (const wire::Envelope& envelope : {envelope_v4(), envelope_v6()}) {
    for (const size_t size : {1, 8, 24, 1024, 4096}) {
      TestBurst burst;
      burst.add(envelope, 7, size, 2);
      io::TxPacket& packet = burst.packets()[0];
      std::vector<uint8_t> leaves(packet.udp_length() - wire::kUdpSize);
      ASSERT_EQ(stage_packet(packet, 5, leaves.data()), leaves.size());
      for (size_t i = 0; i < packet.fragment_count; ++i) {
        auto* const memory = const_cast<uint8_t*>(packet.fragments[i].data);
        for (size_t k = 0; k < packet.fragments[i].size; ++k) memory[k] = static_cast<uint8_t>(~memory[k]);
      }
      wire::Envelope as_sent = envelope;
      as_sent.source_port = wire::kRoceUdpPort;
      as_sent.ip_id = 5;
      EXPECT_TRUE(wire::icrc_matches(as_sent, leaves)) << size << " bytes";
    }
  }
}

// A word that a thread writes as fast as it can, sent again and again: every copy arrives whole.
TEST_F(Udp, MemoryThatIsWrittenMeanwhileArrivesWithARightIcrc) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 32; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 24);
  alignas(64) std::array<std::atomic<uint64_t>, 3> words{};
  for (io::TxPacket& packet : burst.packets()) packet.fragments[0].data = reinterpret_cast<const uint8_t*>(&words);
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (uint64_t value = 1; !over.load(std::memory_order_relaxed); ++value) {
      for (std::atomic<uint64_t>& word : words) word.store(value * 0x9e3779b97f4a7c15, std::memory_order_relaxed);
    }
  });
  size_t arrived = 0, wrong = 0;
  std::array<RxPacket, 64> received;
  EXPECT_TRUE(eventually([&] {
    a->send(burst.packets());
    const size_t count = b->receive(received);
    for (size_t i = 0; i < count; ++i) wrong += !wire::icrc_matches(received[i].envelope, received[i].ib);
    arrived += count;
    return arrived >= 5000;
  }));
  over = true;
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Udp, DescriptorsBecomeReadable) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  std::vector<pollfd> fds(b->wait_descriptors().begin(), b->wait_descriptors().end());
  EXPECT_EQ(fds.size(), 2u);
  EXPECT_EQ(poll(fds.data(), fds.size(), 0), 0);
  TestBurst burst;
  burst.add(VethPair::envelope_v6(veth.a(), veth.b()), 1, 8);
  a->send(burst.packets());
  EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1);
}

// The netdev is slow: packets stay in the send buffer, and poll() tells when there is room in it again.
TEST_F(Udp, DescriptorsBecomeWritableWhenThereIsRoomAgain) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  ASSERT_TRUE(a);
  VethPair::run(veth.a(), "tc qdisc add dev va root tbf rate 100mbit burst 64kb limit 100mb");
  const auto asks_for_room = [&](const pollfd& descriptor) { return (descriptor.events & POLLOUT) != 0; };
  const auto descriptors = a->wait_descriptors();
  EXPECT_TRUE(std::none_of(descriptors.begin(), descriptors.end(), asks_for_room));
  TestBurst burst;
  for (uint32_t psn = 0; psn < 64; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 1024);
  ASSERT_TRUE(eventually([&] { return a->send(burst.packets()) < burst.size(); }));
  EXPECT_EQ(std::count_if(descriptors.begin(), descriptors.end(), asks_for_room), 1) << "of IPv4";
  std::vector<pollfd> fds(descriptors.begin(), descriptors.end());
  EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1);
  EXPECT_TRUE(std::any_of(fds.begin(), fds.end(), [](const pollfd& d) { return (d.revents & POLLOUT) != 0; }));
  EXPECT_EQ(a->send(burst.packets()), burst.size());
  EXPECT_TRUE(std::none_of(descriptors.begin(), descriptors.end(), asks_for_room));
}

TEST_F(Udp, FullReceiveBufferIsCounted) {
  const VethPair veth;
  const auto a = open_udp(veth.a());
  const auto b = open_udp(veth.b());
  ASSERT_TRUE(a && b);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 64; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 1024);
  constexpr uint64_t kSent = 40000;  // 16 MiB of buffer hold fewer
  ASSERT_TRUE(eventually([&] {
    a->send(burst.packets());
    return a->counters().tx_packets >= kSent;
  }));
  // The kernel tells with a packet that was queued after the drops.
  std::array<RxPacket, 64> received;
  EXPECT_TRUE(eventually([&] {
    a->send(burst.packets().first(1));
    b->receive(received);
    return b->counters().rx_no_buffer > 0;
  }));
}

TEST_F(Udp, PortInUseIsExplained) {
  const VethPair veth;
  const auto first = open_udp(veth.a());
  const IoResult<UdpIo> second = UdpIo::open({.netdev = "va", .ifindex = veth.a().ifindex});
  ASSERT_TRUE(std::holds_alternative<IoError>(second));
  const IoError& error = std::get<IoError>(second);
  EXPECT_EQ(error.code, EADDRINUSE);
  EXPECT_THAT(error.what, testing::HasSubstr("port 4791 on va"));
  EXPECT_THAT(error.remedy, testing::HasSubstr("ss -lunp sport = :4791"));
}

TEST_F(Udp, UnknownNetdevIsExplained) {
  const IoResult<UdpIo> result = UdpIo::open({.netdev = "nosuchdev0", .ifindex = 99});
  ASSERT_TRUE(std::holds_alternative<IoError>(result));
  EXPECT_EQ(std::get<IoError>(result).code, ENODEV);
  EXPECT_THAT(std::get<IoError>(result).what, testing::HasSubstr("nosuchdev0"));
}

}  // namespace
}  // namespace uroce::io::test
