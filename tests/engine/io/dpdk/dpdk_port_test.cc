// SPDX-License-Identifier: BSD-2-Clause
// DpdkIo on ports of DPDK over a veth pair between two network namespaces.
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "engine/io/dpdk/dpdk.h"
#include "engine/io/dpdk/library.h"
#include "engine/io/frames_and_sockets.h"
#include "engine/io/udp/udp.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/test_packet.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::io::test {
namespace {

DpdkConfig config_for(const VethPair::End& end, uint32_t mtu, const std::string& devargs = "") {
  VethPair::enter(end);
  DpdkConfig config;
  config.module = UROCE_DPDK_MODULE;
  if (!devargs.empty()) config.devargs = *parse_dpdk_devargs(devargs);
  config.netdev = end.netdev;
  config.ifindex = end.ifindex;
  config.mtu = mtu;
  config.mac = end.mac;
  return config;
}

IoResult<DpdkIo> try_port(const VethPair::End& end, uint32_t mtu, const std::string& devargs = "") {
  return DpdkIo::open(config_for(end, mtu, devargs));
}

std::unique_ptr<DpdkIo> open_port(const VethPair::End& end, uint32_t mtu, const std::string& devargs = "") {
  IoResult<DpdkIo> result = try_port(end, mtu, devargs);
  if (const IoError* error = std::get_if<IoError>(&result)) {
    ADD_FAILURE() << error->text();
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<DpdkIo>>(result));
}

std::string why_not(const VethPair::End& end, const std::string& devargs) {
  IoResult<DpdkIo> result = try_port(end, 1500, devargs);
  const IoError* const error = std::get_if<IoError>(&result);
  EXPECT_NE(error, nullptr) << devargs;
  return error == nullptr ? "" : error->text();
}

TestBurst some_sizes(const wire::Envelope& envelope, size_t largest) {
  TestBurst burst;
  uint32_t psn = 100;
  for (const size_t size : {0, 1, 2, 63, 256, 1021, 1024, 2047, 2048, 3840, 4095, 4096}) {
    if (size > largest) break;
    burst.add(envelope, psn++, size);
    burst.add(envelope, psn++, size, 7);
  }
  return burst;
}

class DpdkPorts : public testing::TestWithParam<uint32_t> {};

TEST_P(DpdkPorts, PacketsArriveExactlyInBothDirections) {
  UROCE_SKIP_UNLESS_ROOT();
  const uint32_t mtu = GetParam();
  const VethPair veth({.mtu = mtu});
  const auto a = open_port(veth.a(), mtu), b = open_port(veth.b(), mtu);
  ASSERT_TRUE(a && b);
  const size_t largest = mtu >= 9000 ? 4096 : 1024;
  ASSERT_GE(a->max_udp_length(), largest + 8 + 12 + 16 + 4);
  for (int round = 0; round < 3; ++round) {
    exchange(*a, *b, some_sizes(VethPair::envelope_v4(veth.a(), veth.b()), largest));
    exchange(*b, *a, some_sizes(VethPair::envelope_v6(veth.b(), veth.a()), largest));
  }
  EXPECT_EQ(a->counters().rx_malformed + a->counters().tx_errors, 0u);
  EXPECT_EQ(a->counters().tx_packets, b->counters().rx_packets);
  EXPECT_EQ(a->counters().tx_bytes, b->counters().rx_bytes);
}

INSTANTIATE_TEST_SUITE_P(Veth, DpdkPorts, testing::Values(1500u, 9000u));

TEST(DpdkPort, TalksToUdpSockets) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_port(veth.a(), 1500);
  VethPair::enter(veth.b());
  IoResult<UdpIo> result = UdpIo::open({.netdev = veth.b().netdev, .ifindex = veth.b().ifindex});
  const auto& b = std::get<std::unique_ptr<UdpIo>>(result);
  ASSERT_TRUE(a);
  exchange(*a, *b, some_sizes(VethPair::envelope_v4(veth.a(), veth.b()), 1024));
  VethPair::run(veth.b(), "ethtool -K " + veth.b().netdev + " tx-udp-segmentation off");  // cuts runs
  exchange(*b, *a, some_sizes(VethPair::envelope_v4(veth.b(), veth.a()), 1024));
}

// Runs that nobody cuts are too long for the port, and come to the sockets; nothing comes twice.
TEST(DpdkPort, WithSocketsBesideRunsArriveToo) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  VethPair::enter(veth.b());
  IoResult<UdpIo> peer = UdpIo::open({.netdev = veth.b().netdev, .ifindex = veth.b().ifindex});
  const auto& b = std::get<std::unique_ptr<UdpIo>>(peer);
  auto port = open_port(veth.a(), 1500);
  ASSERT_TRUE(port);
  IoResult<UdpIo> beside = UdpIo::open({.netdev = veth.a().netdev, .ifindex = veth.a().ifindex, .only_runs = true});
  FramesAndSockets a(std::move(port), std::move(std::get<std::unique_ptr<UdpIo>>(beside)),
                     FramesAndSockets::Copies::kOfAll);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 500; ++psn) burst.add(VethPair::envelope_v4(veth.b(), veth.a()), psn, 1024);
  size_t sent = 0;
  std::vector<bool> seen(burst.size());
  size_t arrived = 0;
  std::array<RxPacket, 32> received;
  ASSERT_TRUE(eventually([&] {
    const size_t some = std::min<size_t>(burst.size() - sent, sent % 100 == 0 ? 40 : 1);
    if (sent < arrived + kWindow / 2) sent += b->send(burst.packets().subspan(sent, some));
    const size_t count = a.receive(received);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t psn = psn_of(received[i]);
      EXPECT_FALSE(seen.at(psn)) << psn << " came twice";
      seen.at(psn) = true;
      burst.expect_arrived(psn, received[i]);
    }
    arrived += count;
    return arrived == burst.size();
  })) << arrived;
  EXPECT_GT(b->counters().tx_runs, 0u);
  EXPECT_GT(a.counters().rx_run_packets, 0u);
  EXPECT_LT(a.counters().rx_run_packets, burst.size());
  EXPECT_EQ(a.counters().rx_packets, burst.size());
  EXPECT_EQ(a.counters().rx_malformed, 0u);
}

TEST(DpdkPort, AllQueuesReceiveAndSend) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_port(veth.a(), 1500, "net_af_packet_qa,qpairs=2");
  const auto b = open_port(veth.b(), 1500, "net_af_packet_qb,qpairs=2");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->description().substr(0, 20), "dpdk, net_af_packet,");
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

// The kernel does not even copy what is for other processes, or no packet at all.
TEST(DpdkPort, WhatIsForOthersWakesNobody) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  burst.add(VethPair::envelope_v6(veth.a(), veth.b()), 2, 8);
  constexpr uint32_t kQpn = 0x1234;  // of test packets
  const auto a = open_port(veth.a(), 1500);
  for (const auto& [first, is_own] : {std::pair{kQpn + 1, false}, {kQpn - 9, false}, {kQpn - 8, true}, {kQpn, true}}) {
    DpdkConfig config = config_for(veth.b(), 1500);
    config.qpns = wire::QpnRange{.first = first, .count = 9};
    auto result = DpdkIo::open(config);
    ASSERT_TRUE(std::holds_alternative<std::unique_ptr<DpdkIo>>(result));
    const auto b = std::move(std::get<std::unique_ptr<DpdkIo>>(result));
    std::array<RxPacket, 64> received;
    while (b->receive(received) > 0) {
    }
    VethPair::run(veth.a(), "ping -c 1 -W 5 -q " + veth.b().v4.text() + " > /dev/null");
    a->send(burst.packets());
    a->flush();
    std::vector<pollfd> fds(b->wait_descriptors().begin(), b->wait_descriptors().end());
    EXPECT_EQ(poll(fds.data(), fds.size(), is_own ? 20000 : 20), is_own ? 1 : 0) << first;
    size_t count = 0;
    if (is_own) {
      EXPECT_TRUE(eventually([&] { return (count += b->receive(received)) == 2; }));
    }
  }
}

// Tags are the driver's work, both ways; the kernel does not own the netdev's addresses here.
TEST(DpdkPort, InAVlan) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto open = [](const VethPair::End& end, const char* name, uint16_t vlan) {
    DpdkConfig config = config_for(end, 1500, std::string(name) + ",iface=" + end.netdev);
    config.netdev.clear();
    config.ifindex = 0;
    config.vlan = vlan;
    auto result = DpdkIo::open(config);
    if (const IoError* error = std::get_if<IoError>(&result)) ADD_FAILURE() << error->text();
    return std::move(std::get<std::unique_ptr<DpdkIo>>(result));
  };
  const auto a = open(veth.a(), "net_af_packet_va", 5);
  auto b = open(veth.b(), "net_af_packet_vb", 5);
  exchange(*a, *b, some_sizes(VethPair::envelope_v4(veth.a(), veth.b()), 1024));
  exchange(*b, *a, some_sizes(VethPair::envelope_v6(veth.b(), veth.a()), 1024));
  for (const uint16_t other : {6, 0}) {
    b.reset();  // the driver would share out frames between ports of one process
    b = open(veth.b(), "net_af_packet_vc", other);
    TestBurst burst = some_sizes(VethPair::envelope_v4(veth.a(), veth.b()), 1024);
    std::array<RxPacket, 64> received;
    while (b->receive(received) > 0) {
    }
    EXPECT_EQ(a->send(burst.packets()), burst.size());
    EXPECT_TRUE(a->flush());
    std::vector<pollfd> fds(b->wait_descriptors().begin(), b->wait_descriptors().end());
    EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1);
    for (int look = 0; look < 10; ++look) EXPECT_EQ(b->receive(received), 0u);
  }
}

// Both ends of a memif in one process. The server ends, and another one comes: the client finds it.
TEST(DpdkPort, AMemifClientFindsTheNextServer) {
  const std::string socket = testing::TempDir() + "uroce-memif-" + std::to_string(getpid());
  TestBurst burst = some_sizes(envelope_v4(), 1024);
  const wire::Envelope& envelope = *burst.packets()[0].envelope;
  const auto open = [&](const std::string& device, const char* role, const wire::MacAddress& mac) {
    DpdkConfig config;
    config.module = UROCE_DPDK_MODULE;
    config.devargs = *parse_dpdk_devargs(device + ",role=" + role + ",socket-abstract=no,socket=" + socket);
    config.mac = mac;
    auto result = DpdkIo::open(config);
    if (const IoError* error = std::get_if<IoError>(&result)) ADD_FAILURE() << error->text();
    return std::move(std::get<std::unique_ptr<DpdkIo>>(result));
  };
  {  // as a server that was killed leaves it
    const UniqueFd left(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(socket.copy(address.sun_path, sizeof(address.sun_path) - 1), sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  std::unique_ptr<DpdkIo> server = open("net_memif_s0", "server", envelope.destination_mac);
  const auto client = open("net_memif_c0", "client", envelope.source_mac);
  exchange(*client, *server, burst);
  std::array<RxPacket, 32> received;
  for (int next = 1; next < 4; ++next) {
    server.reset();
    client->send(burst.packets().first(1));  // is lost
    server = open("net_memif_s" + std::to_string(next), "server", envelope.destination_mac);
    TestBurst probe;
    probe.add(envelope, 7777, 8);
    ASSERT_TRUE(eventually([&] {
      client->send(probe.packets());
      client->flush();
      return server->receive(received) > 0 && psn_of(received[0]) == 7777;
    })) << next;
    while (client->flush(), server->receive(received) > 0) {
    }
    exchange(*client, *server, burst);
  }
}

// The driver's error path closes a descriptor for which EAL waits, at which EAL aborts the process.
sockaddr_un memif_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = testing::TempDir() + "uroce-memif-" + name + "-" + std::to_string(getpid());
  EXPECT_LT(path.copy(address.sun_path, sizeof(address.sun_path) - 1), sizeof(address.sun_path) - 1);
  return address;
}

std::unique_ptr<DpdkIo> open_memif_server(const std::string& device, const sockaddr_un& address) {
  DpdkConfig config;
  config.module = UROCE_DPDK_MODULE;
  config.devargs = *parse_dpdk_devargs(device + ",role=server,socket-abstract=no,socket=" + address.sun_path);
  config.mac = {2, 0, 0, 0, 0, 1};
  auto result = DpdkIo::open(config);
  auto* const opened = std::get_if<std::unique_ptr<DpdkIo>>(&result);
  EXPECT_NE(opened, nullptr);
  return opened == nullptr ? nullptr : std::move(*opened);
}

UniqueFd visitor_of(const sockaddr_un& address) {
  UniqueFd visitor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(visitor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return visitor;
}

// The driver's error path closes a descriptor for which EAL waits, at which EAL aborts the process.
TEST(DpdkPort, WhoConnectsAndLeavesDoesNotEndAMemifServer) {
  const sockaddr_un address = memif_address("left");
  const auto server = open_memif_server("net_memif_l0", address);
  ASSERT_TRUE(server);
  for (int i = 0; i < 200; ++i) visitor_of(address);
}

TEST(DpdkPort, DescriptorsBecomeReadable) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_port(veth.a(), 1500), b = open_port(veth.b(), 1500);
  ASSERT_TRUE(a && b);
  std::array<RxPacket, 64> received;
  TestBurst burst;
  burst.add(VethPair::envelope_v4(veth.a(), veth.b()), 1, 8);
  while (b->receive(received) > 0) {
  }
  ASSERT_TRUE(b->prepare_to_wait());
  a->send(burst.packets());
  a->flush();
  ASSERT_TRUE(eventually([&] {
    std::vector<pollfd> fds(b->wait_descriptors().begin(), b->wait_descriptors().end());
    EXPECT_EQ(poll(fds.data(), fds.size(), 20000), 1);
    return b->receive(received) == 1;
  }));
  burst.expect_arrived(0, received[0]);
}

TEST(DpdkPort, WrongArgumentsAreOneClearLine) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  EXPECT_THAT(why_not(veth.a(), "net_nosuch0"), testing::HasSubstr("failed to parse device \"net_nosuch0\""));
  EXPECT_THAT(why_not(veth.a(), "net_af_packet9,iface=nosuch"), testing::HasSubstr("No such device"));
  EXPECT_THAT(why_not(veth.a(), "net_af_packet9,nosuch=1"), testing::HasSubstr("net_af_packet9"));
  EXPECT_THAT(why_not(veth.a(), "net_af_packet9,framesz=4096,blocksz=4096"), testing::HasSubstr("will not fit"));
  EXPECT_THAT(why_not(veth.a(), "net_af_packet9,iface=lo"),
              testing::HasSubstr("it is netdev lo, and the device is on va"));
  EXPECT_THAT(why_not(veth.a(), "net_null0"), testing::HasSubstr("no netdev of the kernel"));
  EXPECT_THAT(why_not(veth.a(), "0000:01:00.0"), testing::HasSubstr("without PCI device"));
  const auto a = open_port(veth.a(), 1500);
  EXPECT_TRUE(a) << "errors leave nothing behind";
}

std::vector<std::filesystem::path> descriptors() {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) all.push_back(entry.path());
  return all;
}

size_t bound_to(const sockaddr_un& address) {
  size_t count = 0;
  for (const auto& path : descriptors()) {
    sockaddr_un own{};
    socklen_t size = sizeof(own);
    const int fd = std::stoi(path.filename());
    count += getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 && own.sun_family == AF_UNIX &&
             std::strncmp(own.sun_path, address.sun_path, sizeof(own.sun_path)) == 0;
  }
  return count;
}

// The driver frees the listener, for which EAL would go on waiting. Visitors are under way as it closes.
TEST(DpdkPort, AClosedMemifServerListensNoMore) {
  const sockaddr_un address = memif_address("closed");
  ASSERT_TRUE(open_memif_server("net_memif_x0", address));  // DPDK itself stays
  const size_t before = descriptors().size();  // or more: EAL's thread may have to close some of an earlier test
  for (int i = 1; i <= 10; ++i) {
    const auto server = open_memif_server("net_memif_x" + std::to_string(i), address);
    ASSERT_TRUE(server);
    for (int visitor = 0; visitor < 5; ++visitor) visitor_of(address);
  }
  EXPECT_TRUE(eventually([&] { return bound_to(address) == 0; })) << bound_to(address);
  EXPECT_TRUE(eventually([&] { return descriptors().size() <= before; })) << descriptors().size() << " of " << before;
}

// Of the driver's protocol what makes a server answer.
using MemifMessage = std::array<uint8_t, 128>;
constexpr MemifMessage kMemifInit = {3, 0, 0, 2};  // version 2.0
constexpr MemifMessage kMemifAddRing = {5, 0, 1};  // to the server, ring 0

bool send_with(int socket, MemifMessage message, int descriptor) {
  iovec bytes{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

// It asks, and reads no answer, until there is no room for more of them.
TEST(DpdkPort, AMemifClientThatDoesNotReadStopsNobody) {
  const UniqueFd file(memfd_create("uroce-asked-again", MFD_CLOEXEC));
  {
    const sockaddr_un address = memif_address("deaf");
    const auto server = open_memif_server("net_memif_d0", address);
    ASSERT_TRUE(server);
    const UniqueFd visitor = visitor_of(address);
    const int little = 1;
    setsockopt(visitor.get(), SOL_SOCKET, SO_SNDBUF, &little, sizeof(little));
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(visitor.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    ASSERT_EQ(send(visitor.get(), kMemifInit.data(), kMemifInit.size(), 0), static_cast<ssize_t>(kMemifInit.size()));
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(send_with(visitor.get(), kMemifAddRing, file.get())) << i;
  }
  // The driver keeps the last one only, and forgets the others.
  for (const auto& path : descriptors()) {
    std::error_code gone;
    const bool kept = std::filesystem::read_symlink(path, gone).string().find("uroce-asked-again") != std::string::npos;
    if (kept && std::stoi(path.filename()) != file.get()) close(std::stoi(path.filename()));
  }
}

// Ports come and go in a program that runs for days.
TEST(DpdkPort, ClosingLeavesNothing) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  ASSERT_TRUE(open_port(veth.a(), 1500));  // DPDK itself stays
  const size_t before = descriptors().size();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(open_port(veth.a(), 1500)) << i;
  EXPECT_EQ(descriptors().size(), before);
}

TEST(DpdkPort, TheApplicationIsNotDisturbed) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  cpu_set_t cpus_before, cpus;
  sched_getaffinity(0, sizeof(cpus_before), &cpus_before);
  std::array<struct sigaction, 65> before{};
  for (int number = 1; number < 65; ++number) sigaction(number, nullptr, &before[static_cast<size_t>(number)]);
  const auto inherited = descriptors();  // DPDK may run already: a test alone sees more
  const auto a = open_port(veth.a(), 1500);
  ASSERT_TRUE(a);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  EXPECT_TRUE(CPU_EQUAL(&cpus_before, &cpus));
  for (int number = 1; number < 65; ++number) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    EXPECT_EQ(now.sa_handler, before[static_cast<size_t>(number)].sa_handler) << "signal " << number;
  }
  for (const auto& descriptor : descriptors()) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(descriptor, gone);
    const bool is_new = std::find(inherited.begin(), inherited.end(), descriptor) == inherited.end();
    if (gone || !is_new || target.rfind("/proc/", 0) == 0) continue;  // the last: the directory that is read
    const int fd = std::stoi(descriptor.filename());
    if (fd > 2) {
      EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC) << target;
    }
  }
}

// DPDK's memory is shared with the parent, and its ports are the parent's.
TEST(DpdkPort, AChildIsRefused) {
  UROCE_SKIP_UNLESS_ROOT();
  const VethPair veth;
  const auto a = open_port(veth.a(), 1500);
  ASSERT_TRUE(a);
  const pid_t child = fork();
  if (child == 0) {
    IoResult<DpdkIo> result = try_port(veth.b(), 1500);
    const IoError* const error = std::get_if<IoError>(&result);
    _exit(error != nullptr && error->what.find("forked") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(DpdkLibrary, OneThatIsNotThereOrNotOursIsRefused) {
  const auto text_of = [](const std::string& path) {
    const auto result = load_dpdk(path);
    const auto* const error = std::get_if<IoError>(&result);
    return error == nullptr ? std::string() : error->text();
  };
  EXPECT_THAT(text_of("/nosuch/uroce_dpdk.so"), testing::HasSubstr("/nosuch/uroce_dpdk.so"));
  EXPECT_THAT(text_of("libm.so.6"), testing::HasSubstr("uroce_dpdk_calls"));
  EXPECT_EQ(text_of(UROCE_DPDK_MODULE), "");
}

}  // namespace
}  // namespace uroce::io::test
