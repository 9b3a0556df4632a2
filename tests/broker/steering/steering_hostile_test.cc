// SPDX-License-Identifier: BSD-2-Clause
// What clients of other users try with their sockets, and what they bring to a new broker.
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "broker/steering/descriptors.h"
#include "broker/steering/slots.h"
#include "broker/steering/steering.h"
#include "engine/io/udp/socket.h"
#include "tests/broker/steering/port_lab.h"
#include "tests/locked_socket.h"

namespace uroce::broker::test {
namespace {

using io::test::VethPair;
using testing::HasSubstr;
using testing::IsEmpty;

// What the attempt returns to an unprivileged process: 0 or an errno value.
int as_nobody(const std::function<int()>& attempt) {
  const pid_t process = fork();
  if (process == 0) {
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
        setresuid(kNobody, kNobody, kNobody) != 0) {
      _exit(255);
    }
    _exit(attempt());
  }
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

int set(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 : errno;
}

// Lets everything pass, as a socket filter, and picks the first socket, as the group's program.
int attach(int fd, int name, uint32_t result) {
  sock_filter instruction = BPF_STMT(BPF_RET | BPF_K, result);
  const sock_fprog program{1, &instruction};
  return setsockopt(fd, SOL_SOCKET, name, &program, sizeof(program)) == 0 ? 0 : errno;
}

struct Target {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_in6);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Target at(const wire::IpAddress& ip, uint16_t port) {
  Target target;
  if (ip.is_v4()) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&target.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, ip.v4_bytes(), 4);
    target.length = sizeof(*v4);
  } else {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&target.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, ip.bytes.data(), 16);
  }
  return target;
}

int connect_to(int fd, const Target& target) {
  return connect(fd, target.get(), target.length) == 0 ? 0 : errno;
}

int bind_to(int fd, const Target& target) {
  return bind(fd, target.get(), target.length) == 0 ? 0 : errno;
}

int send_to(int fd, const Target& target) {
  return sendto(fd, "hello", 5, 0, target.get(), target.length) == 5 ? 0 : errno;
}

Target anywhere(int family, uint16_t port) {
  return at(family == AF_INET ? wire::IpAddress::v4(std::array<uint8_t, 4>{}.data()) : wire::IpAddress{}, port);
}

class HostileClient : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    lab_ = std::make_unique<PortLab>();
    steering_ = lab_->open(Kind::kMap);
    ASSERT_TRUE(steering_->isolates()) << steering_->isolation_obstacle();
    // On both sides of the victim in the kernel's lists.
    before_ = admit(*steering_, 1);
    victim_ = admit(*steering_, 2);
    after_ = admit(*steering_, 3);
  }

  // With sockets of both attackers and both IP versions; none of them harms the victim.
  void expect(int result, const std::function<int(int fd, int family)>& attempt) {
    for (const PortSockets* const sockets : {&before_, &after_}) {
      for (const int family : {AF_INET, AF_INET6}) {
        const int fd = socket_of(*sockets, family);
        EXPECT_EQ(as_nobody([&] { return attempt(fd, family); }), result) << family;
      }
    }
    for (const int family : {AF_INET, AF_INET6}) {
      for (const Way way : {Way::kVeth, Way::kLoopback}) {
        for (const size_t count : {1u, 10u}) {
          lab_->send(family, 0x8001, count, way);
          EXPECT_EQ(receive(socket_of(victim_, family)), (Arrived{0x8001, count}));
        }
      }
      for (const PortSockets* const sockets : {&before_, &after_})
        EXPECT_THAT(arrived(socket_of(*sockets, family)), IsEmpty());
    }
    EXPECT_EQ(steering_->unclaimed(), 0u);
  }

  wire::IpAddress peer(int family) const { return family == AF_INET ? lab_->veth().a().v4 : lab_->veth().a().v6; }

  std::unique_ptr<PortLab> lab_;
  std::unique_ptr<Steering> steering_;
  PortSockets before_, victim_, after_;
};

TEST_F(HostileClient, CannotReplaceTheProgramOfTheGroup) {
  expect(EPERM, [](int fd, int) { return attach(fd, SO_ATTACH_REUSEPORT_CBPF, 0); });
  expect(EPERM, [](int fd, int) { return set(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, fd); });
}

TEST_F(HostileClient, CannotDetachTheProgramOfTheGroup) {
  expect(EPERM, [](int fd, int) { return set(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0); });
}

TEST_F(HostileClient, CannotConnect) {
  expect(EPERM, [&](int fd, int family) { return connect_to(fd, at(peer(family), 4791)); });
}

// The kernel allows it, and takes the socket out of the group.
TEST_F(HostileClient, ThatLeavesTheGroupHarmsItselfOnly) {
  expect(0, [](int fd, int) {
    const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
    return connect(fd, &unspecified, sizeof(unspecified)) == 0 ? 0 : errno;
  });
  lab_->send(AF_INET, 0x4000);
  EXPECT_TRUE(unclaimed(*steering_, 1));
}

// Whichever sockets others get afterwards: the kernel looks for their group among those on the port.
TEST_F(HostileClient, ThatLeavesTheGroupHarmsNoClientAfterIt) {
  std::vector<PortSockets> clients;
  for (uint32_t number = 4; number < 60; ++number) {
    clients.push_back(admit(*steering_, number));
    for (const int family : {AF_INET, AF_INET6}) {
      lab_->send(family, LeaseRange{number}.first());
      EXPECT_EQ(receive(socket_of(clients.back(), family)), (Arrived{LeaseRange{number}.first(), 1})) << number;
      const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
      EXPECT_EQ(connect(socket_of(clients.back(), family), &unspecified, sizeof(unspecified)), 0);
    }
  }
}

TEST_F(HostileClient, SendsToTheRocePortOnly) {
  expect(EPERM, [&](int fd, int family) { return send_to(fd, at(peer(family), 53)); });
  expect(0, [&](int fd, int family) { return send_to(fd, at(peer(family), 4791)); });
}

TEST_F(HostileClient, CannotBindASecondTime) {
  expect(EINVAL, [](int fd, int family) { return bind_to(fd, anywhere(family, 4791)); });
  expect(EINVAL, [](int fd, int family) { return bind_to(fd, anywhere(family, 4792)); });
}

TEST_F(HostileClient, CannotBindItsOwnSocketsToThePort) {
  for (const int option : {SO_REUSEPORT, SO_REUSEADDR}) {
    expect(EADDRINUSE, [&](int, int family) {
      const UniqueFd own(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      set(own.get(), SOL_SOCKET, option, 1);
      return bind_to(own.get(), anywhere(family, 4791));
    });
    expect(EADDRINUSE, [&](int, int family) {
      const UniqueFd own(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      set(own.get(), SOL_SOCKET, option, 1);
      set(own.get(), SOL_SOCKET, SO_BINDTOIFINDEX, lab_->veth().b().ifindex);
      return bind_to(own.get(), at(family == AF_INET ? lab_->veth().b().v4 : lab_->veth().b().v6, 4791));
    });
  }
}

TEST_F(HostileClient, CannotChangeTheFilter) {
  expect(EPERM, [](int fd, int) { return set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0); });
  expect(EPERM, [](int fd, int) { return attach(fd, SO_ATTACH_FILTER, 0xffff); });
  expect(EPERM, [](int fd, int) { return set(fd, SOL_SOCKET, SO_LOCK_FILTER, 0); });
}

TEST_F(HostileClient, CannotSetOptions) {
  for (const int name : {SO_REUSEPORT, SO_REUSEADDR, SO_BINDTOIFINDEX, SO_INCOMING_CPU, SO_PRIORITY, SO_RCVBUF}) {
    expect(EPERM, [&](int fd, int) { return set(fd, SOL_SOCKET, name, 0); });
  }
  expect(EPERM, [](int fd, int) { return set(fd, SOL_UDP, UDP_GRO, 0); });
  expect(EPERM, [](int fd, int family) {
    return family == AF_INET ? set(fd, IPPROTO_IP, IP_TRANSPARENT, 1) : set(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1);
  });
  expect(EPERM, [](int fd, int family) {
    return family == AF_INET ? set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 1) : set(fd, IPPROTO_IPV6, 29, 1);
  });
}

TEST_F(HostileClient, MayJoinGroups) {
  expect(0, [&](int fd, int family) { return lab_->join(fd, family); });
  for (const int family : {AF_INET, AF_INET6}) {
    lab_->send_to_group(family);
    for (const PortSockets* const sockets : {&before_, &after_}) {
      EXPECT_EQ(receive(socket_of(*sockets, family)), (Arrived{0xffffff, 1}));
    }
  }
}

// Whatever becomes of the sockets, as long as one is open.
TEST_F(HostileClient, ThatKeepsSocketsKeepsTheRange) {
  steering_->dismiss({1});
  EXPECT_FALSE(steering_->is_free({1}, {}));
  const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
  for (const int family : {AF_INET, AF_INET6})
    EXPECT_EQ(connect(socket_of(before_, family), &unspecified, sizeof(unspecified)), 0);
  EXPECT_FALSE(steering_->is_free({1}, {}));
  before_.v4.reset();
  EXPECT_FALSE(steering_->is_free({1}, {}));
  before_.v6.reset();
  EXPECT_TRUE(steering_->is_free({1}, {}));
  steering_->dismiss({3});
  after_.v6.reset();
  EXPECT_FALSE(steering_->is_free({3}, {}));
  after_.v4.reset();
  EXPECT_TRUE(steering_->is_free({3}, {}));
  EXPECT_FALSE(steering_->is_free({2}, {}));
}

// --- what is brought to a new broker --------------------------------------------------------------------------------

PortSockets members(uint32_t v4_number, uint32_t v6_number) {
  PortSockets sockets{
      std::get<UniqueFd>(io::open_group_member(AF_INET)), std::get<UniqueFd>(io::open_group_member(AF_INET6)), {}};
  EXPECT_EQ(lock_to(sockets.v4.get(), {{v4_number}}), 0);
  EXPECT_EQ(lock_to(sockets.v6.get(), {{v6_number}}), 0);
  return sockets;
}

class Readmission : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    lab_ = std::make_unique<PortLab>();
    {
      BrokerProcess broker(*lab_, GetParam(), {5, 6});
      client_ = broker.take(0);
      other_ = broker.take(1);
    }
    steering_ = lab_->open(GetParam(), true);
  }
  void expect_refused(PortSockets sockets, const std::string& reason) {
    std::string why;
    EXPECT_EQ(readmit(*steering_, std::move(sockets), &why), 0u);
    EXPECT_THAT(why, HasSubstr(reason));
  }
  // The client's, but for one of them.
  PortSockets with_v4(UniqueFd v4) const {
    PortSockets sockets = copy(client_);
    sockets.v4 = std::move(v4);
    return sockets;
  }
  PortSockets with_v6(UniqueFd v6) const {
    PortSockets sockets = copy(client_);
    sockets.v6 = std::move(v6);
    return sockets;
  }

  std::unique_ptr<PortLab> lab_;
  PortSockets client_, other_;
  std::unique_ptr<Steering> steering_;
};

TEST_P(Readmission, TakesARangeOnce) {
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
  expect_refused(copy(client_), "another client");
  EXPECT_FALSE(steering_->start());
  expect_refused(copy(client_), "another client");
  EXPECT_EQ(readmit(*steering_, copy(other_)), 6u);
}

TEST_P(Readmission, RefusesWhatIsNotALease) {
  const std::function<UniqueFd(int)> forgeries[] = {
      [](int) { return UniqueFd(); },
      [](int) { return UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)); },
      [](int) { return UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)); },
      [](int family) { return UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); },
      [](int family) { return UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDPLITE)); },
      [](int family) { return UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)); },
      [](int family) {  // another port
        UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(bind_to(fd.get(), anywhere(family, 4792)), 0);
        EXPECT_EQ(lock_to(fd.get(), {{5}}), 0);
        return fd;
      },
      [](int family) { return std::get<UniqueFd>(io::open_group_member(family)); },  // no filter
      [](int family) {
        UniqueFd fd = std::get<UniqueFd>(io::open_group_member(family));
        EXPECT_EQ(attach(fd.get(), SO_ATTACH_FILTER, 0xffff), 0);
        EXPECT_EQ(set(fd.get(), SOL_SOCKET, SO_LOCK_FILTER, 1), 0);
        return fd;
      },
      [&](int family) {  // on the other host, and all else is right
        VethPair::enter(lab_->veth().a());
        UniqueFd fd = std::get<UniqueFd>(io::open_group_member(family));
        EXPECT_EQ(lock_to(fd.get(), {{5}}), 0);
        VethPair::enter(lab_->veth().b());
        return fd;
      },
      [&](int family) {
        UniqueFd fd = std::get<UniqueFd>(io::open_group_member(family));
        EXPECT_EQ(lock_to(fd.get(), {{5}}), 0);
        EXPECT_EQ(connect_to(fd.get(), at(family == AF_INET ? lab_->veth().a().v4 : lab_->veth().a().v6, 4791)), 0);
        return fd;
      },
      [](int family) {
        UniqueFd fd = std::get<UniqueFd>(io::open_group_member(family));
        EXPECT_EQ(lock_to(fd.get(), {{5}}), 0);
        EXPECT_EQ(fchown(fd.get(), 65534, 65534), 0);
        return fd;
      },
      [](int family) {  // as if it had been made by a broker of the other kind
        UniqueFd fd = std::get<UniqueFd>(io::open_group_member(family));
        EXPECT_EQ(lock_to(fd.get(), {{5}}), 0);
        return fd;
      },
  };
  size_t which = 0;
  for (const auto& forgery : forgeries) {
    SCOPED_TRACE(which++);
    expect_refused(with_v4(forgery(AF_INET)), "sockets of an earlier lease: ");
    expect_refused(with_v6(forgery(AF_INET6)), "sockets of an earlier lease: ");
  }
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
}

// Of which a lease has all but one thing.
TEST_P(Readmission, LooksAtTheNamespaceAndTheUser) {
  const UniqueFd member = std::get<UniqueFd>(io::open_group_member(AF_INET6));
  EXPECT_EQ(not_a_member(member.get(), AF_INET6), nullptr);
  EXPECT_STREQ(not_a_member(member.get(), AF_INET), "not a socket of this IP version");
  VethPair::enter(lab_->veth().a());
  EXPECT_STREQ(not_a_member(member.get(), AF_INET6), "of another network namespace");
  VethPair::enter(lab_->veth().b());
  EXPECT_EQ(fchown(member.get(), 65534, 65534), 0);
  EXPECT_STREQ(not_a_member(member.get(), AF_INET6), "made by another user");
}

class ReadmissionToMap : public Readmission {};

// The oldest IPv6 socket on the port is a client's then, with which look-ups would begin.
TEST_P(ReadmissionToMap, OfOneThatLeavesTheGroupHarmsNoOther) {
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
  EXPECT_EQ(readmit(*steering_, copy(other_)), 6u);
  EXPECT_FALSE(steering_->start());
  const PortSockets fresh = admit(*steering_, 7);
  for (const int family : {AF_INET, AF_INET6}) {
    const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
    EXPECT_EQ(connect(socket_of(client_, family), &unspecified, sizeof(unspecified)), 0);
    lab_->send(family, 0x18000);
    EXPECT_EQ(receive(socket_of(other_, family)), (Arrived{0x18000, 1}));
    lab_->send(family, 0x1c000);
    EXPECT_EQ(receive(socket_of(fresh, family)), (Arrived{0x1c000, 1}));
  }
}

// Who has returned a range and kept its sockets, beside who has it now.
class EarlierLease : public testing::Test {
 protected:
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    lab_ = std::make_unique<PortLab>();
    {
      BrokerProcess broker(*lab_, Kind::kMap, {5, 5});
      thief_ = broker.take(0);
      victim_ = broker.take(1);
    }
    steering_ = lab_->open(Kind::kMap, true);
  }
  void expect_steered_to_victim() {
    for (const int family : {AF_INET, AF_INET6}) {
      lab_->send(family, 0x14000);
      EXPECT_EQ(receive(socket_of(victim_, family)), (Arrived{0x14000, 1}));
      EXPECT_THAT(arrived(socket_of(thief_, family)), IsEmpty());
    }
  }
  void expect_thief_refused() {
    std::string why;
    EXPECT_EQ(readmit(*steering_, copy(thief_), &why), 0u);
    EXPECT_THAT(why, HasSubstr("another client"));
  }

  std::unique_ptr<PortLab> lab_;
  PortSockets thief_, victim_;
  std::unique_ptr<Steering> steering_;
};

TEST_F(EarlierLease, LosesTheRangeToALaterOne) {
  EXPECT_EQ(readmit(*steering_, copy(thief_)), 5u);
  expect_steered_to_victim();
  EXPECT_EQ(readmit(*steering_, copy(victim_)), 5u);
  EXPECT_FALSE(steering_->start());
  expect_steered_to_victim();
  expect_thief_refused();
  expect_steered_to_victim();
}

TEST_F(EarlierLease, LosesTheRangeAfterTheStart) {
  EXPECT_EQ(readmit(*steering_, copy(thief_)), 5u);
  EXPECT_FALSE(steering_->start());
  EXPECT_EQ(readmit(*steering_, copy(victim_)), 5u);
  expect_steered_to_victim();
}

TEST_F(EarlierLease, IsRefusedAfterALaterOne) {
  EXPECT_EQ(readmit(*steering_, copy(victim_)), 5u);
  expect_thief_refused();
  EXPECT_FALSE(steering_->start());
  expect_steered_to_victim();
}

// And what this broker gives out is later than what others gave.
TEST_F(EarlierLease, IsRefusedAfterANewOne) {
  EXPECT_FALSE(steering_->start());
  victim_ = admit(*steering_, 5);
  expect_thief_refused();
  expect_steered_to_victim();
}

TEST_P(Readmission, RefusesSocketsThatDoNotBelongTogether) {
  PortSockets swapped = copy(client_);
  std::swap(swapped.v4, swapped.v6);
  expect_refused(std::move(swapped), "");
  expect_refused(with_v6(copy(other_).v6), "");
  expect_refused(with_v4(copy(other_).v4), "");
  expect_refused(members(5, 6), "");
  expect_refused({}, "");
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
}

// Its client may lock it at any moment, and who waits for that cannot even be killed.
TEST_P(ReadmissionToMap, ALockedSocketHoldsTheBrokerUpInNothing) {
  Staging* const staging = steering_->staging();
  constexpr uint32_t kPlace = Staging::kStages - 1;
  const auto staged = staging->stage(kPlace, client_);
  ASSERT_TRUE(std::holds_alternative<Staging::Staged>(staged));
  in_addr peer;
  std::memcpy(&peer, lab_->veth().a().v4.bytes.data() + 12, sizeof(peer));
  const uroce::test::SocketLock v4(client_.v4.get(), peer);
  const auto range = staging->readmit(kPlace, std::get<Staging::Staged>(staged));
  ASSERT_TRUE(std::holds_alternative<LeaseRange>(range)) << std::get<io::IoError>(range).text();
  staging->clear(kPlace);
  EXPECT_EQ(std::get<LeaseRange>(range).number, 5u);
  EXPECT_FALSE(steering_->start());
  EXPECT_FALSE(steering_->is_free({5}, {}));
  steering_->work();
  steering_->dismiss({5});
  EXPECT_FALSE(steering_->is_free({5}, {})) << "somebody has it";
  EXPECT_EQ(admit(*steering_, 7).v4 ? 7 : 0, 7);
}

// What was staged is there until it is cleared, and nothing else is.
TEST_P(ReadmissionToMap, WhatIsNotStagedIsNotSteeredTo) {
  Staging* const staging = steering_->staging();
  const auto staged = std::get<Staging::Staged>(staging->stage(1, client_));
  for (const uint32_t place : {0u, 2u, Staging::kStages - 1}) {
    EXPECT_TRUE(std::holds_alternative<io::IoError>(staging->readmit(place, staged))) << place;
  }
  staging->clear(1);
  EXPECT_TRUE(std::holds_alternative<io::IoError>(staging->readmit(1, staged)));
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
}

INSTANTIATE_TEST_SUITE_P(, Readmission, testing::Values(Kind::kMap, Kind::kSlots),
                         [](const auto& kind) { return kind.param == Kind::kMap ? "Map" : "Slots"; });

INSTANTIATE_TEST_SUITE_P(, ReadmissionToMap, testing::Values(Kind::kMap), [](const auto&) { return "Map"; });

class ReadmissionToSlots : public Readmission {
 protected:
  PortSockets with_kept(UniqueFd kept) const {
    PortSockets sockets = copy(client_);
    sockets.kept = std::move(kept);
    return sockets;
  }
  // A UNIX socket in which these are on their way.
  static UniqueFd parked(const std::vector<int>& descriptors, int type = SOCK_DGRAM) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd writer(pair[1]);
    for (size_t next = 0; next < descriptors.size(); next += kMostPassedDescriptors) {
      const size_t count = std::min(kMostPassedDescriptors, descriptors.size() - next);
      EXPECT_EQ(send_descriptors(writer.get(), std::span(descriptors).subspan(next, count), "members"), 0);
    }
    return UniqueFd(pair[0]);
  }
};

TEST_P(ReadmissionToSlots, RefusesWhatWasNotKept) {
  expect_refused(with_kept({}), "what a client keeps");
  expect_refused(with_kept(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))), "what a client keeps");
  expect_refused(with_kept(UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))), "the members");
  expect_refused(with_kept(parked({})), "the members");
  expect_refused(with_kept(parked({client_.v4.get(), client_.v6.get()})), "the members");
  expect_refused(with_kept(parked(std::vector<int>(514, client_.v4.get()))), "not in the order");
  expect_refused(with_kept(parked(std::vector<int>(257, client_.v4.get()))), "not in the order");
  expect_refused(with_kept(parked(std::vector<int>(700, client_.v4.get()))), "the members");
  expect_refused(with_kept(parked(std::vector<int>(514, 0), SOCK_STREAM)), "");
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
  EXPECT_EQ(readmit(*steering_, PortSockets{copy(other_).v4, copy(other_).v6, {}}), 6u) << "one has brought it";
}

// A client that was stopped goes on to read from its sockets when it wakes up.
TEST_P(ReadmissionToSlots, WaitsForClientsThatMayBeStopped) {
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
  EXPECT_FALSE(steering_->start());
  EXPECT_FALSE(steering_->is_free({6}, monotonic_now()));
  EXPECT_TRUE(steering_->is_free({7}, monotonic_now())) << "nobody had it";
  EXPECT_TRUE(steering_->is_free({6}, monotonic_now() + SlotSteering::kAbsence));
  EXPECT_EQ(readmit(*steering_, copy(other_)), 6u);
  steering_->dismiss({6});
  EXPECT_TRUE(steering_->is_free({6}, monotonic_now())) << "returned";
}

TEST_P(ReadmissionToSlots, MustBringWhatWasKept) {
  const auto error = steering_->start();
  ASSERT_TRUE(error);
  EXPECT_THAT(error->text(), HasSubstr("taken by process " + std::to_string(getpid())));
  EXPECT_TRUE(steering_->inherits());
  EXPECT_EQ(readmit(*steering_, copy(client_)), 5u);
  EXPECT_FALSE(steering_->start());
}

INSTANTIATE_TEST_SUITE_P(, ReadmissionToSlots, testing::Values(Kind::kSlots), [](const auto&) { return "Slots"; });

}  // namespace
}  // namespace uroce::broker::test
