// SPDX-License-Identifier: BSD-2-Clause
// AfXdp and UdpIo over a veth pair between two network namespaces.
#include "engine/io/af_xdp/af_xdp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/if_packet.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <tuple>

#include "engine/io/memory_link.h"
#include "engine/io/udp/udp.h"
#include "tests/engine/io/detach_xdp.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::io::test {
namespace {

enum class Backend { kNative, kGeneric, kUdp };

std::unique_ptr<AfXdp> open_af_xdp(const VethPair::End& end, uint32_t mtu, bool force_generic = false,
                                   std::optional<wire::QpnRange> qpns = {}) {
  VethPair::enter(end);
  AfXdpConfig config;
  config.netdev = end.netdev;
  config.ifindex = end.ifindex;
  config.mtu = mtu;
  config.mac = end.mac;
  config.local_addresses = {end.v4, end.v6};
  config.force_generic = force_generic;
  config.qpns = qpns;
  IoResult<AfXdp> result = AfXdp::open(config);
  if (const IoError* error = std::get_if<IoError>(&result)) {
    ADD_FAILURE() << error->what << "; " << error->remedy;
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<AfXdp>>(result));
}

std::unique_ptr<PacketIo> open_io(Backend backend, const VethPair::End& end, uint32_t mtu) {
  if (backend != Backend::kUdp) return open_af_xdp(end, mtu, backend == Backend::kGeneric);
  VethPair::enter(end);
  IoResult<UdpIo> result = UdpIo::open({.netdev = end.netdev, .ifindex = end.ifindex});
  if (const IoError* error = std::get_if<IoError>(&result)) {
    ADD_FAILURE() << error->what << "; " << error->remedy;
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<UdpIo>>(result));
}

// Sizes from 0 to the largest path MTU that fits, in one and in many pieces.
TestBurst all_sizes(const wire::Envelope& envelope, size_t largest) {
  TestBurst burst;
  uint32_t psn = 100;
  for (const size_t size : {0, 1, 2, 63, 256, 1021, 1024, 2047, 2048, 3840, 4095, 4096}) {
    if (size > largest) break;
    burst.add(envelope, psn++, size);
    burst.add(envelope, psn++, size, 7);
    burst.add(envelope, psn++, size, io::TxPacket::kMaxFragments);
  }
  return burst;
}

// In one direction, over IPv4 and IPv6. UDP sockets keep no order between the two.
void exchange_all_sizes(PacketIo& from_io, const VethPair::End& from, PacketIo& to_io, const VethPair::End& to,
                        size_t largest) {
  exchange(from_io, to_io, all_sizes(VethPair::envelope_v4(from, to), largest));
  exchange(from_io, to_io, all_sizes(VethPair::envelope_v6(from, to), largest));
}

// A run that reaches a generic XDP program has not been cut and is one frame to it (reference/udp-sockets.md).
// Datapaths notice that (transport/common/run_trial.h); here the sending netdev cuts.
void cut_runs(Backend from_backend, const VethPair::End& from, Backend to_backend) {
  if (from_backend != Backend::kUdp || to_backend != Backend::kGeneric) return;
  VethPair::run(from, "ethtool -K " + from.netdev + " tx-udp-segmentation off");
}

// Whoever looks for losses finds them: in one chunk the kernel drops such a frame, in several it reaches the receiver.
TEST(AfXdp, RunsThatNobodyCutsAreCounted) {
  UROCE_SKIP_UNLESS_ROOT();
  for (const uint32_t mtu : {1500u, 9000u}) {
    const VethPair veth({.mtu = mtu});
    const auto a = open_io(Backend::kUdp, veth.a(), mtu);
    const auto b = open_af_xdp(veth.b(), mtu, true);
    ASSERT_TRUE(a && b);
    TestBurst run;
    for (uint32_t psn = 0; psn < 32; ++psn) run.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 1024);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(a->send(run.packets()), run.size());
    EXPECT_EQ(a->counters().tx_runs, 3u);
    std::array<RxPacket, 64> received;
    EXPECT_TRUE(eventually([&] { return b->receive(received) == 0 && b->counters().rx_too_long == 3; })) << mtu;
    EXPECT_EQ(b->counters().rx_no_buffer + b->counters().rx_malformed, 0u);
    // A receiver that does not keep up is another reason.
    ASSERT_TRUE(eventually([&] {
      for (io::TxPacket& packet : run.packets()) a->send({&packet, 1});
      return b->counters().rx_no_buffer > 0;
    }));
    EXPECT_EQ(b->counters().rx_too_long, 3u) << mtu;
  }
}

class Backends : public testing::TestWithParam<std::tuple<Backend, Backend, uint32_t>> {};

TEST_P(Backends, PacketsArriveExactlyInBothDirections) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto [backend_a, backend_b, mtu] = GetParam();
  const VethPair veth({.mtu = mtu});
  const auto a = open_io(backend_a, veth.a(), mtu);
  const auto b = open_io(backend_b, veth.b(), mtu);
  ASSERT_TRUE(a && b);
  cut_runs(backend_a, veth.a(), backend_b);
  cut_runs(backend_b, veth.b(), backend_a);
  const size_t largest = mtu >= 9000 ? 4096 : 1024;
  ASSERT_GE(a->max_udp_length(), largest + 8 + 12 + 16 + 4) << a->description();
  ASSERT_GE(b->max_udp_length(), largest + 8 + 12 + 16 + 4) << b->description();
  for (int round = 0; round < 3; ++round) {
    exchange_all_sizes(*a, veth.a(), *b, veth.b(), largest);
    exchange_all_sizes(*b, veth.b(), *a, veth.a(), largest);
  }
  EXPECT_EQ(a->counters().rx_malformed, 0u);
  EXPECT_EQ(a->counters().tx_errors, 0u);
  EXPECT_EQ(a->counters().tx_packets, b->counters().rx_packets);
  EXPECT_EQ(a->counters().tx_bytes, b->counters().rx_bytes);
}

std::string backends_name(const testing::TestParamInfo<Backends::ParamType>& info) {
  const char* names[] = {"Native", "Generic", "Udp"};
  return std::string(names[static_cast<int>(std::get<0>(info.param))]) +
         names[static_cast<int>(std::get<1>(info.param))] + "Mtu" + std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Veth, Backends,
                         testing::Combine(testing::Values(Backend::kNative, Backend::kGeneric, Backend::kUdp),
                                          testing::Values(Backend::kNative, Backend::kGeneric, Backend::kUdp),
                                          testing::Values(1500u, 3400u, 9000u)),
                         backends_name);

TEST(AfXdp, ManyPacketsMoreThanTheRingsHold) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 10000; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 64);
  exchange(*a, *b, burst);
  EXPECT_EQ(b->counters().rx_no_buffer, 0u);
}

// More than the chunks of one queue, without anybody receiving: dropped and counted, and the link goes on working.
TEST(AfXdp, AReceiverThatDoesNotKeepUpDropsAndRecovers) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 32; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 64);
  constexpr uint64_t kSent = 6400;
  ASSERT_TRUE(eventually([&] {
    a->send(burst.packets());
    a->flush();
    return a->counters().tx_packets >= kSent;
  }));
  uint64_t arrived = 0;
  std::array<RxPacket, 64> received;
  ASSERT_TRUE(eventually([&] {
    a->flush();
    arrived += b->receive(received);
    return arrived + b->counters().rx_no_buffer + a->counters().tx_errors == a->counters().tx_packets;
  }));
  EXPECT_GT(b->counters().rx_no_buffer + a->counters().tx_errors, 0u);
  EXPECT_GE(arrived, 4096u - 64);
  exchange(*a, *b, burst);
}

TEST(AfXdp, AllQueuesReceiveAndSend) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.queues = 2});
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  EXPECT_THAT(a->description(), testing::HasSubstr("2 queues"));
  EXPECT_EQ(a->wait_descriptors().size(), 2u);
  for (const uint16_t port : {uint16_t{0xc000}, uint16_t{0xc001}}) {
    wire::Envelope envelope = VethPair::envelope_v4(veth.a(), veth.b());
    envelope.source_port = port;
    TestBurst burst;
    for (uint32_t psn = 0; psn < 200; ++psn) burst.add(envelope, psn, 512);
    exchange(*a, *b, burst);
  }
}

TEST(AfXdp, DescriptionSaysHowItIsAttached) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.mtu = 9000});
  EXPECT_EQ(open_af_xdp(veth.a(), 9000)->description(), "af_xdp, native, copy, multi-buffer, 1 queue");
  EXPECT_EQ(open_af_xdp(veth.a(), 1500, true)->description(), "af_xdp, generic, copy, 1 queue");
}

// A program that the application starts must not keep the netdev's queue.
TEST(AfXdp, DescriptorsCloseOnExec) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.queues = 2});
  const auto a = open_af_xdp(veth.a(), 1500);
  ASSERT_TRUE(a);
  for (const pollfd& descriptor : a->wait_descriptors()) {
    EXPECT_EQ(fcntl(descriptor.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(AfXdp, DescriptorsBecomeReadable) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(b->prepare_to_wait());
  std::vector<pollfd> fds(b->wait_descriptors().begin(), b->wait_descriptors().end());
  EXPECT_EQ(poll(fds.data(), fds.size(), 0), 0);
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  a->send(burst.packets());
  a->flush();
  EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1);
  EXPECT_FALSE(b->prepare_to_wait());
  std::array<RxPacket, 1> received;
  ASSERT_EQ(b->receive(received), 1u);
  burst.expect_arrived(0, received[0]);
}

// --- the rest of the host's traffic ----------------------------------------------------------------------------------

// A blocking TCP exchange between the namespaces, over the kernel: ARP, handshake, data.
void tcp_works(const VethPair& veth) {
  VethPair::enter(veth.b());
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(listener, 1), 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::memcpy(&address.sin_addr, veth.b().v4.v4_bytes(), 4);
  VethPair::enter(veth.a());
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << strerror(errno);
  const int server = accept(listener, nullptr, nullptr);
  std::vector<uint8_t> sent(60000, 0x42);
  std::vector<uint8_t> received(sent.size());
  ASSERT_EQ(send(client, sent.data(), sent.size(), 0), static_cast<ssize_t>(sent.size()));
  ASSERT_EQ(recv(server, received.data(), received.size(), MSG_WAITALL), static_cast<ssize_t>(received.size()));
  EXPECT_EQ(sent, received);
  for (const int fd : {client, server, listener}) close(fd);
}

TEST(AfXdp, KernelTrafficPasses) {
  UROCE_SKIP_UNLESS_ROOT();
  for (const uint32_t mtu : {1500u, 9000u}) {
    const VethPair veth({.mtu = mtu});
    const auto a = open_af_xdp(veth.a(), mtu);
    const auto b = open_af_xdp(veth.b(), mtu);
    ASSERT_TRUE(a && b);
    tcp_works(veth);
    VethPair::run(veth.a(), "ping -c 3 -i 0.01 -W 10 192.0.2.2 >/dev/null");
    VethPair::run(veth.a(), "ping -c 3 -i 0.01 -W 10 2001:db8::2 >/dev/null");
    exchange_all_sizes(*a, veth.a(), *b, veth.b(), 1024);
    tcp_works(veth);
  }
}

// RoCE packets to an address that is not ours are the kernel's, and the set follows at once.
TEST(AfXdp, OnlyLocalAddressesAreTaken) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_io(Backend::kUdp, veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  const auto kernel = open_io(Backend::kUdp, veth.b(), 1500);
  ASSERT_TRUE(a && b && kernel);
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  exchange(*a, *b, burst);
  ASSERT_EQ(b->set_local_addresses({&veth.b().v6, 1}), 0);
  exchange(*a, *kernel, burst);
  ASSERT_EQ(b->set_local_addresses({&veth.b().v4, 1}), 0);
  exchange(*a, *b, burst);
  EXPECT_EQ(kernel->counters().rx_packets, 1u);
}

// A leased range of QPNs, and the kernel's sockets beside it: each gets what is for it, in one buffer or several.
TEST(AfXdp, OnlyQpnsOfTheRangeAreTaken) {
  UROCE_SKIP_UNLESS_ROOT();
  for (const uint32_t mtu : {1500u, 9000u}) {
    for (const bool generic : {false, true}) {
      const VethPair veth({.mtu = mtu});
      const auto a = open_io(Backend::kUdp, veth.a(), mtu);
      TestBurst burst;
      for (const auto& envelope :
           {VethPair::envelope_v4(veth.a(), veth.b()), VethPair::envelope_v6(veth.a(), veth.b())})
        burst.add(envelope, 1, mtu == 9000 ? 4096 : 1024);
      const uint32_t qpn = wire::load_be24(&burst.packets()[0].header[5]);
      const auto b = open_af_xdp(veth.b(), mtu, generic, wire::QpnRange{qpn & ~0x3fffu, 1 << 14});
      const auto kernel = open_io(Backend::kUdp, veth.b(), mtu);
      ASSERT_TRUE(a && b && kernel);
      exchange(*a, *b, burst);
      for (io::TxPacket& packet : burst.packets()) packet.header[5] ^= 0x80;
      std::array<RxPacket, 4> received;
      ASSERT_EQ(a->send(burst.packets()), 2u);
      size_t count = 0;
      EXPECT_TRUE(eventually([&] { return (count += kernel->receive(received)) == 2; }));
      EXPECT_EQ(b->receive(received), 0u);
      EXPECT_EQ(b->counters().rx_packets, 2u);
    }
  }
}

// Frames to another MAC address are the kernel's, which drops them, and a change of our own is followed.
TEST(AfXdp, OnlyFramesToTheNetdevAreTaken) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  const wire::Envelope to_b = VethPair::envelope_v4(veth.a(), veth.b());
  wire::Envelope to_other = to_b;
  to_other.destination_mac = {2, 0, 0, 0, 0, 9};
  TestBurst other, own;
  other.add(to_other, 1, 8);
  own.add(to_b, 2, 8);
  ASSERT_EQ(a->send(other.packets()), 1u);
  exchange(*a, *b, own);
  EXPECT_EQ(b->counters().rx_packets, 1u);
  ASSERT_EQ(b->set_mac(to_other.destination_mac), 0);
  ASSERT_EQ(a->send(own.packets()), 1u);
  exchange(*a, *b, other);
  EXPECT_EQ(b->counters().rx_packets, 2u);
}

// What the map has no room for is not taken for done, and a later call brings it.
TEST(AfXdp, AddressesThatDoNotFitAreTriedAgain) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  ASSERT_EQ(b->set_local_addresses({}), 0);
  std::vector<wire::IpAddress> addresses;  // more than there is room for, and ours is the last one
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 256; ++j) addresses.push_back(ipv4(10, 0, static_cast<uint8_t>(i), static_cast<uint8_t>(j)));
  }
  addresses.push_back(veth.b().v4);
  ASSERT_EQ(b->set_local_addresses(addresses), E2BIG);
  addresses.erase(addresses.begin());
  ASSERT_EQ(b->set_local_addresses(addresses), 0);
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  exchange(*a, *b, burst);
}

TEST(AfXdp, SaysWhatItHasBeenOutgrownBy) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.queues = 2});
  // A netdev with an XDP program needs as many receive queues as the other end has to send.
  VethPair::run(veth.b(), "ethtool -L vb tx 1");
  VethPair::run(veth.a(), "ethtool -L va rx 1");
  const auto a = open_af_xdp(veth.a(), 1500);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->outgrown("va", 1500), "");
  EXPECT_EQ(a->outgrown("va", 576), "");
  EXPECT_EQ(a->outgrown("va", 9000), "the MTU has grown (1500 when AF_XDP was opened, now 9000)");
  VethPair::run(veth.a(), "ethtool -L va rx 2");
  EXPECT_EQ(a->outgrown("va", 1500), "the netdev has more receive queues (1 when AF_XDP was opened, now 2)");
  EXPECT_EQ(a->outgrown("va", 9000),
            "the netdev has more receive queues (1 when AF_XDP was opened, now 2), "
            "the MTU has grown (1500 when AF_XDP was opened, now 9000)");
  EXPECT_FALSE(AfXdp::vlan_obstacle("va", {}));
  const std::optional<IoError> vlans = AfXdp::vlan_obstacle("va", {"va.7", "va.9"});
  ASSERT_TRUE(vlans);
  EXPECT_THAT(vlans->text(), testing::AllOf(testing::HasSubstr("va.7, va.9"), testing::HasSubstr("rxvlan off")));
}

// Of a QP whose path MTU is that of a netdev which had a larger one.
TEST(AfXdp, PacketsThatAreTooLongAreLost) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  const wire::Envelope envelope = VethPair::envelope_v4(veth.a(), veth.b());
  TestBurst too_long, others;
  for (uint32_t psn = 0; psn < 3000; ++psn) too_long.add(envelope, psn, 4096);  // more than there is room for
  others.add(envelope, 1, 1024);
  EXPECT_EQ(a->send(too_long.packets()), too_long.size());
  a->flush();
  EXPECT_EQ(a->counters().tx_errors, too_long.size());
  exchange(*a, *b, others);
}

// Whatever the kernel says.
TEST(AfXdp, OpensWhereTheMtuIsAbsurd) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  for (const auto& [mtu, longest] : {std::pair<uint32_t, uint32_t>{0, 28}, {39, 28}, {UINT32_MAX, 8134}}) {
    const auto a = open_af_xdp(veth.a(), mtu);
    ASSERT_TRUE(a) << mtu;
    EXPECT_EQ(a->max_udp_length(), longest) << mtu;
  }
}

TEST(AfXdp, NoticesThatItsProgramWasDetached) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  ASSERT_TRUE(a);
  EXPECT_FALSE(a->is_detached());
  detach_xdp(veth.a());
  EXPECT_TRUE(a->is_detached());
}

// Frames to port 4791 that are not RoCE v2 packets arrive and are counted.
TEST(AfXdp, MalformedFramesAreCounted) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(b);
  VethPair::enter(veth.a());
  // A UDP header whose length field says more than there is.
  const int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  ASSERT_GE(raw, 0);
  const uint8_t udp[12] = {0xc0, 0x00, 0x12, 0xb7, 0xff, 0xff, 0, 0, 1, 2, 3, 4};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, veth.b().v4.v4_bytes(), 4);
  ASSERT_EQ(sendto(raw, udp, sizeof(udp), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)), ssize_t{sizeof(udp)});
  close(raw);
  std::array<RxPacket, 4> received;
  std::vector<wire::FrameError> seen;
  b->observe_malformed([&](std::span<const uint8_t> frame, wire::FrameError error) {
    EXPECT_EQ(frame.size(), wire::kEthernetSize + wire::kIpv4Size + sizeof(udp));
    seen.push_back(error);
  });
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(b->receive(received), 0u);
    return b->counters().rx_malformed == 1;
  }));
  EXPECT_EQ(seen, std::vector<wire::FrameError>{wire::FrameError::kLengthMismatch});
}

// Large ones on all queues at once: they take no more memory than packets of a burst do.
TEST(AfXdp, MalformedLargeFramesOnManyQueues) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.mtu = 9000, .queues = 16});
  const auto a = open_af_xdp(veth.a(), 9000);
  const auto b = open_af_xdp(veth.b(), 9000);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(b->wait_descriptors().size(), 16u);
  VethPair::enter(veth.a());
  const int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  ASSERT_GE(raw, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, veth.b().v4.v4_bytes(), 4);
  std::vector<uint8_t> datagram(5000);
  std::array<RxPacket, 64> received;
  uint16_t port = 0xc000;
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 500; ++i, ++port) {
      const uint8_t udp[8] = {uint8_t(port / 256), uint8_t(port % 256), 0x12, 0xb7, 0x10, 0x00, 0, 0};
      std::copy(std::begin(udp), std::end(udp), datagram.begin());
      EXPECT_EQ(sendto(raw, datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
                static_cast<ssize_t>(datagram.size()));
    }
    EXPECT_EQ(b->receive(received), 0u);
    return b->counters().rx_malformed > 2000;
  }));
  close(raw);
  while (!b->prepare_to_wait()) EXPECT_EQ(b->receive(received), 0u);
  exchange_all_sizes(*a, veth.a(), *b, veth.b(), 4096);
}

// The kernel may have changed nothing about a frame between a raw socket and ours, so it is seen as it was sent.
TEST(AfXdp, FramesAreSeenAsTheyWereSent) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth({.mtu = 9000});
  const auto b = open_af_xdp(veth.b(), 9000);
  ASSERT_TRUE(b);
  VethPair::enter(veth.a());
  const int raw = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  ASSERT_GE(raw, 0);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = veth.a().ifindex;
  for (const size_t size : {0u, 100u, 4096u}) {  // the last one in several chunks
    std::vector<std::vector<uint8_t>> frames;
    auto [from, nobody] = make_memory_link();
    from->record_sent(&frames);
    TestBurst burst;
    wire::Envelope envelope = VethPair::envelope_v4(veth.a(), veth.b());
    envelope.traffic_class = 0x6f;
    envelope.hop_limit = 3;
    burst.add(envelope, 1, size);
    from->send(burst.packets());
    std::vector<uint8_t> frame = frames.at(0);
    frame[wire::kEthernetSize + wire::kIpv4Size + 6] = 0xab;      // UDP checksum
    for (uint8_t pad = 1; pad < 10; ++pad) frame.push_back(pad);  // behind what IP says
    ASSERT_EQ(sendto(raw, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(frame.size()));
    std::array<RxPacket, 1> received;
    ASSERT_TRUE(eventually([&] { return b->receive(received) == 1; }));
    EXPECT_EQ(std::vector<uint8_t>(received[0].frame.begin(), received[0].frame.end()), frame);
    burst.expect_arrived(0, received[0]);
  }
  close(raw);
}

// --- attach and detach -----------------------------------------------------------------------------------------------

TEST(AfXdp, DetachesWhenDestroyed) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  auto a = open_af_xdp(veth.a(), 1500);
  ASSERT_TRUE(a);
  const auto attached = attached_xdp_program(veth.a().ifindex);
  ASSERT_TRUE(attached.has_value());
  EXPECT_TRUE(attached->is_ours()) << attached->name;
  a.reset();
  EXPECT_FALSE(attached_xdp_program(veth.a().ifindex).has_value());
  EXPECT_TRUE(open_af_xdp(veth.a(), 1500));
}

size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// Each opening finds the netdev free that another one has just left, and no descriptor or thread stays.
TEST(AfXdp, OpensAtOnceAfterItWasClosed) {
  UROCE_SKIP_UNLESS_ROOT();
  for (const int queues : {1, 4}) {
    const VethPair veth({.queues = queues});
    const size_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (int i = 0; i < 25; ++i) ASSERT_TRUE(open_af_xdp(veth.a(), 1500)) << i;
    EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
    EXPECT_EQ(entries_of("/proc/self/task"), threads);
    EXPECT_FALSE(attached_xdp_program(veth.a().ifindex).has_value());
  }
}

TEST(AfXdp, ClosesWhileTheNetdevIsDeleted) {
  UROCE_SKIP_UNLESS_ROOT();
  for (int i = 0; i < 10; ++i) {
    const VethPair veth({.queues = 4});
    auto a = open_af_xdp(veth.a(), 1500);
    ASSERT_TRUE(a);
    std::thread other([&veth] { VethPair::run(veth.a(), "ip link delete dev va"); });
    a.reset();
    other.join();
  }
}

TEST(AfXdp, NothingIsLeftWhenTheProcessIsKilled) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto io = open_af_xdp(veth.a(), 1500);
    const char ok = io != nullptr ? 'y' : 'n';
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  VethPair::enter(veth.a());
  EXPECT_TRUE(attached_xdp_program(veth.a().ifindex).has_value());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(eventually([&] { return !attached_xdp_program(veth.a().ifindex).has_value(); }));
  EXPECT_TRUE(eventually([&] { return open_af_xdp(veth.a(), 1500) != nullptr || testing::Test::HasFailure(); }));
  close(ready[0]);
  close(ready[1]);
}

// The broker has leased the queues anew when it saw the connection end, which may be before the kernel took the program
// of the process down.
TEST(AfXdp, WaitsForAnEarlierHolderToEnd) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const wire::QpnRange range{1 << 14, 1 << 14};
  auto earlier = open_af_xdp(veth.a(), 1500, false, range);
  ASSERT_TRUE(earlier);
  const auto attached = attached_xdp_program(veth.a().ifindex);
  ASSERT_TRUE(attached);
  EXPECT_TRUE(attached->is_ours() && !attached->takes_all()) << attached->name;
  std::thread ending([&earlier] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    earlier.reset();
  });
  EXPECT_TRUE(open_af_xdp(veth.a(), 1500, false, range));
  ending.join();
}

TEST(AfXdp, SurvivesTheNetdevGoingDownAndUp) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  const auto b = open_af_xdp(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  exchange(*a, *b, burst);
  VethPair::run(veth.a(), "ip link set dev va down");
  a->send(burst.packets());
  EXPECT_TRUE(a->flush()) << "would be kicked all the time";
  EXPECT_EQ(a->counters().kick_errors, 1u);
  EXPECT_EQ(a->counters().tx_errors, 0u) << "the packet is not lost";
  EXPECT_TRUE(a->prepare_to_wait()) << "would spin while the netdev is down";
  VethPair::run(veth.a(), "ip link set dev va up");
  std::array<RxPacket, 4> received;
  EXPECT_TRUE(eventually([&] {  // what was queued goes out when the netdev is back
    a->flush();
    return b->receive(received) == 1;
  }));
  exchange(*a, *b, burst);
}

TEST(AfXdp, SurvivesTheNetdevBeingDeleted) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_af_xdp(veth.a(), 1500);
  ASSERT_TRUE(a);
  VethPair::run(veth.a(), "ip link delete dev va");
  TestBurst burst;
  for (uint32_t psn = 0; psn < 64; ++psn) burst.add(VethPair::envelope_v4(veth.a(), veth.b()), psn, 64);
  for (int i = 0; i < 100; ++i) {
    a->send(burst.packets());
    a->flush();
  }
  std::array<RxPacket, 4> received;
  EXPECT_EQ(a->receive(received), 0u);
  EXPECT_GT(a->counters().kick_errors, 0u);
}

}  // namespace
}  // namespace uroce::io::test
