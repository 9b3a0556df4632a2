// SPDX-License-Identifier: BSD-2-Clause
#include "tests/broker/steering/port_lab.h"

#include <array>
#include <bpf/bpf.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/steering/descriptors.h"
#include "broker/steering/file_limit.h"
#include "broker/steering/map.h"
#include "broker/steering/slots.h"
#include "tests/engine/io/exchange.h"
#include "wire/bytes.h"

namespace uroce::broker::test {

using io::test::eventually;
using io::test::VethPair;

namespace {

constexpr int kLongMs = 20000;  // only ever waited for by a failing test
constexpr size_t kPacket = 100;
constexpr uint16_t kPort = 4791;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Address address(int family, const uint8_t* bytes, uint16_t port, uint32_t scope = 0) {
  Address result;
  if (family == AF_INET) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, bytes, 4);
    result.length = sizeof(*v4);
  } else {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_scope_id = scope;
    std::memcpy(&v6->sin6_addr, bytes, 16);
    result.length = sizeof(*v6);
  }
  return result;
}

const uint8_t* bytes_of(const wire::IpAddress& ip) {
  return ip.is_v4() ? ip.v4_bytes() : ip.bytes.data();
}

constexpr std::array<uint8_t, 4> kGroupV4 = {239, 1, 2, 3};
constexpr std::array<uint8_t, 16> kGroupV6 = {0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4};

std::vector<uint8_t> packets(uint32_t qpn, size_t count) {
  std::vector<uint8_t> bytes(count * kPacket);
  for (size_t i = 0; i < count; ++i) wire::store_be32(&bytes[i * kPacket + 4], qpn);
  return bytes;
}

}  // namespace

PortLab::PortLab() {
  raise_file_limit();  // for SlotSteering
  VethPair::enter(veth_.b());
}

std::unique_ptr<Steering> PortLab::open(Kind kind, bool inherits) const {
  auto result = kind == Kind::kMap ? MapSteering::open(inherits) : SlotSteering::open(inherits);
  if (const auto* const error = std::get_if<io::IoError>(&result)) {
    ADD_FAILURE() << error->text();
    return nullptr;
  }
  auto steering = std::move(std::get<std::unique_ptr<Steering>>(result));
  if (!inherits) {
    if (const auto error = steering->start()) ADD_FAILURE() << error->text();
  }
  return steering;
}

void PortLab::send_bytes(int family, const std::vector<uint8_t>& bytes, size_t segment, Way way, bool checksum) const {
  if (way == Way::kVeth) VethPair::enter(veth_.a());
  const UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  VethPair::enter(veth_.b());
  const int size = static_cast<int>(segment);
  if (bytes.size() > segment) {
    ASSERT_EQ(setsockopt(fd.get(), SOL_UDP, UDP_SEGMENT, &size, sizeof(size)), 0);
  }
  if (!checksum) {
    constexpr int kUdpNoCheck6Tx = 101;  // UDP_NO_CHECK6_TX of <linux/udp.h>, which clashes with <netinet/udp.h>
    const int on = 1;
    const int level = family == AF_INET ? SOL_SOCKET : SOL_UDP, name = family == AF_INET ? SO_NO_CHECK : kUdpNoCheck6Tx;
    ASSERT_EQ(setsockopt(fd.get(), level, name, &on, sizeof(on)), 0);
  }
  const Address to = address(family, bytes_of(family == AF_INET ? veth_.b().v4 : veth_.b().v6), kPort);
  const ssize_t sent =
      sendto(fd.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to.storage), to.length);
  ASSERT_EQ(sent, static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

void PortLab::send(int family, uint32_t qpn, size_t count, Way way) const {
  send_bytes(family, packets(qpn, count), kPacket, way);
}

void PortLab::send_without_checksum(int family, uint32_t qpn, Way way) const {
  send_bytes(family, packets(qpn, 1), kPacket, way, false);
}

void PortLab::forge(uint32_t qpn) const {
  constexpr size_t kEthernet = 14, kIp = 40, kUdp = 8, kPayload = 100;
  std::vector<uint8_t> frame(kEthernet);
  std::copy(veth_.b().mac.begin(), veth_.b().mac.end(), frame.begin());
  wire::store_be16(&frame[12], ETH_P_IPV6);
  constexpr std::array<uint8_t, 8> kBegin = {0x60, 0, 0, 0, 0, kUdp + kPayload, IPPROTO_UDP, 64};
  frame.insert(frame.end(), kBegin.begin(), kBegin.end());
  for (int i = 0; i < 2; ++i) frame.insert(frame.end(), veth_.b().v6.bytes.begin(), veth_.b().v6.bytes.end());
  frame.resize(kEthernet + kIp + kUdp + kPayload);
  uint8_t* const udp = &frame[kEthernet + kIp];  // without checksum
  wire::store_be16(udp, kPort);
  wire::store_be16(udp + 2, kPort);
  wire::store_be16(udp + 4, kUdp + kPayload);
  wire::store_be32(udp + kUdp + 4, qpn);
  VethPair::enter(veth_.a());
  const UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  VethPair::enter(veth_.b());
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = veth_.a().ifindex;
  const ssize_t sent =
      sendto(fd.get(), frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  ASSERT_EQ(sent, static_cast<ssize_t>(frame.size())) << std::strerror(errno);
}

void PortLab::send_to_group(int family) const {
  VethPair::enter(veth_.a());
  const UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  VethPair::enter(veth_.b());
  if (family == AF_INET) {
    ip_mreqn from{};
    from.imr_ifindex = veth_.a().ifindex;
    ASSERT_EQ(setsockopt(fd.get(), IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)), 0);
  }
  const auto scope = static_cast<uint32_t>(veth_.a().ifindex);
  const Address to = address(family, family == AF_INET ? kGroupV4.data() : kGroupV6.data(), kPort, scope);
  const auto bytes = packets(0xffffff, 1);
  const ssize_t sent =
      sendto(fd.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to.storage), to.length);
  ASSERT_EQ(sent, static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

int PortLab::join(int fd, int family) const {
  group_req request{};
  request.gr_interface = static_cast<uint32_t>(veth_.b().ifindex);
  const Address group = address(family, family == AF_INET ? kGroupV4.data() : kGroupV6.data(), 0);
  std::memcpy(&request.gr_group, &group.storage, sizeof(group.storage));
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  return setsockopt(fd, level, MCAST_JOIN_GROUP, &request, sizeof(request)) == 0 ? 0 : errno;
}

Arrived receive(int fd) {
  pollfd ready{fd, POLLIN, 0};
  if (poll(&ready, 1, kLongMs) != 1) return {0, 0};
  const std::vector<Arrived> one = arrived(fd);
  return one.empty() ? Arrived{0, 0} : one.front();
}

std::vector<Arrived> arrived(int fd) {
  std::vector<Arrived> all;
  std::vector<uint8_t> bytes(65536);
  alignas(cmsghdr) std::array<char, 512> control{};
  for (;;) {
    iovec place{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &place;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t length = recvmsg(fd, &header, MSG_DONTWAIT);
    if (length < 8) return all;
    size_t segment = static_cast<size_t>(length);
    for (cmsghdr* message = CMSG_FIRSTHDR(&header); message != nullptr; message = CMSG_NXTHDR(&header, message)) {
      if (message->cmsg_level != SOL_UDP || message->cmsg_type != UDP_GRO) continue;
      int size = 0;
      std::memcpy(&size, CMSG_DATA(message), sizeof(size));
      segment = static_cast<size_t>(size);
    }
    all.push_back({wire::load_be32(&bytes[4]), static_cast<size_t>(length) / segment});
  }
}

int socket_of(const PortSockets& sockets, int family) {
  return (family == AF_INET ? sockets.v4 : sockets.v6).get();
}

PortSockets admit(Steering& steering, uint32_t number, bool without_copies) {
  auto result = steering.admit({number}, without_copies);
  if (const auto* const error = std::get_if<io::IoError>(&result)) {
    ADD_FAILURE() << error->text();
    return {};
  }
  return std::move(std::get<PortSockets>(result));
}

PortSockets copy(const PortSockets& sockets) {
  const auto duplicate = [](const UniqueFd& fd) {
    return fd ? UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)) : UniqueFd();
  };
  return {duplicate(sockets.v4), duplicate(sockets.v6), duplicate(sockets.kept)};
}

uint32_t readmit(Steering& steering, PortSockets sockets, std::string* why) {
  const auto result = steering.readmit(std::move(sockets));
  if (const auto* const error = std::get_if<io::IoError>(&result)) {
    if (why != nullptr) {
      *why = error->text();
    } else {
      ADD_FAILURE() << error->text();
    }
    return 0;
  }
  return std::get<LeaseRange>(result).number;
}

bool unclaimed(Steering& steering, uint64_t count) {
  return eventually([&] {
           steering.work();
           return steering.unclaimed() >= count;
         }) &&
         steering.unclaimed() == count;
}

BrokerProcess::BrokerProcess(const PortLab& lab, Kind kind, const std::vector<uint32_t>& numbers) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd here(pair[0]);
  UniqueFd there(pair[1]);
  process_ = fork();
  if (process_ == 0) {
    const auto steering = lab.open(kind);
    std::set<uint32_t> leased;
    for (const uint32_t number : numbers) {
      if (!leased.insert(number).second) steering->dismiss({number});
      const PortSockets sockets = admit(*steering, number);
      std::vector<int> descriptors = {sockets.v4.get(), sockets.v6.get()};
      if (sockets.kept) descriptors.push_back(sockets.kept.get());
      send_descriptors(there.get(), descriptors, "lease");
    }
    for (;;) pause();
  }
  there.reset();
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto message = receive_descriptors(here.get(), 0);
    if (!message || message->descriptors.size() < 2) {
      ADD_FAILURE() << "no lease from the other process";
      return;
    }
    auto& descriptors = message->descriptors;
    leases_.push_back({std::move(descriptors[0]), std::move(descriptors[1]),
                       descriptors.size() > 2 ? std::move(descriptors[2]) : UniqueFd()});
  }
  programs_ = programs_of(process_);
}

void BrokerProcess::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

std::vector<uint32_t> programs_of(pid_t process) {
  std::vector<uint32_t> programs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fdinfo", error)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("prog_id:", 0) == 0) programs.push_back(static_cast<uint32_t>(std::stoul(line.substr(8))));
    }
  }
  return programs;
}

bool unloaded(const std::vector<uint32_t>& programs) {
  return eventually([&] {
    for (const uint32_t id : programs) {
      const UniqueFd fd(bpf_prog_get_fd_by_id(id));
      if (fd) return false;
    }
    return true;
  });
}

}  // namespace uroce::broker::test
