// SPDX-License-Identifier: BSD-2-Clause
// The broker's answers, and what clients that break the rules get.
#include "broker/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "broker/file_limit.h"
#include "engine/base/concat.h"
#include "engine/io/same_host/peer.h"
#include "tests/broker/broker_rig.h"
#include "tests/engine/io/veth_pair.h"
#include "tests/slow_socket.h"

namespace uroce::broker {
namespace {

// A client that says exactly what the test wants.
class RawClient {
 public:
  explicit RawClient(const std::string& address) { EXPECT_EQ(connect_to(address, socket_), 0); }

  int say(const Message& message, std::span<const int> descriptors = {}) {
    return send(socket_.get(), message, descriptors);
  }
  // The other side has the only descriptor of it.
  void say_with_slow_socket(const Message& message) {
    const UniqueFd slow = test::slow_socket();
    EXPECT_EQ(say(message, std::array{slow.get()}), 0);
  }
  void say_nothing_with_slow_socket() {
    const UniqueFd slow = test::slow_socket();
    EXPECT_EQ(send_message(socket_.get(), {}, std::array{slow.get()}), 0);
  }
  Message listen() {
    Message answer;
    error_ = receive(socket_.get(), answer, descriptors_, 20'000);
    return answer;
  }
  Message ask(const Message& message, std::span<const int> descriptors = {}) {
    EXPECT_EQ(say(message, descriptors), 0);
    return listen();
  }
  Message greet() {
    const Message answer = ask(hello());
    asides_ = std::move(descriptors_.front());
    return answer;
  }
  // As greet(), where it may be refused before it has said a word.
  bool is_welcome() {
    say(hello());
    return listen().kind == Kind::kWelcome;
  }
  // What the broker says by itself.
  Message hear(int timeout_ms = 20'000) {
    Message said;
    error_ = receive(asides_.get(), said, descriptors_, timeout_ms);
    return said;
  }
  Message lease(int ifindex, Plane plane = Plane::kSockets) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = ifindex;
    request.plane = plane;
    return ask(request);
  }
  static Message hello() {
    Message message = make_message(Kind::kHello, "raw");
    message.network_namespace = own_network_namespace();
    return message;
  }
  bool hung_up() {
    listen();
    return error_ == ECONNRESET;
  }
  int error() const { return error_; }
  int socket() const { return socket_.get(); }
  void leave() { socket_.reset(); }
  Descriptors& descriptors() { return descriptors_; }

 private:
  UniqueFd socket_, asides_;
  Descriptors descriptors_;
  int error_ = 0;
};

class ServerTest : public testing::Test {
 protected:
  void attach(int ifindex, const std::string& program) {
    const std::lock_guard guard(kernel_.lock);
    kernel_.xdp_programs[ifindex] = program;
  }

  Kernel kernel_;
  const std::string address_ = unique_address();
};

TEST_F(ServerTest, LeasesDifferentRangesWithSockets) {
  RunningBroker broker(kernel_, address_);
  std::set<uint32_t> ranges;
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) {
    RawClient& client = clients.emplace_back(address_);
    EXPECT_EQ(client.greet().kind, Kind::kWelcome);
    for (int netdev = 1; netdev <= 2; ++netdev) {
      const Message answer = client.lease(netdev);
      ASSERT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
      EXPECT_TRUE(client.descriptors()[0] && client.descriptors()[1] && client.descriptors()[2]);
      EXPECT_EQ(answer.has_v6, 1u);
      EXPECT_TRUE(kernel_.is_steered(answer.range));
      EXPECT_GE(answer.range, LeaseRange::kFirstNumber);
      EXPECT_LE(answer.range, LeaseRange::kLastNumber);
      ranges.insert(answer.range);
    }
  }
  EXPECT_EQ(ranges.size(), 16u);
}

TEST_F(ServerTest, EndOfConnectionAndReturnEndLeases) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const uint32_t first = a.lease(1).range, second = a.lease(2).range, other = b.lease(1).range;
  Message back = make_message(Kind::kReturn);
  back.range = other;
  a.say(back);  // not its own
  back.range = first;
  a.say(back);
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(first); }));
  EXPECT_TRUE(kernel_.is_steered(second));
  a.leave();
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(second); }));
  EXPECT_TRUE(kernel_.is_steered(other));
}

TEST_F(ServerTest, RangesRestBeforeTheyAreLeasedAgain) {
  kernel_.last_number = 64;
  RunningBroker broker(kernel_, address_);
  std::vector<uint32_t> order;
  for (int i = 0; i < 200; ++i) {
    RawClient client(address_);
    client.greet();
    const uint32_t range = client.lease(1).range;
    for (size_t back = 1; back <= 30 && back <= order.size(); ++back) ASSERT_NE(order[order.size() - back], range) << i;
    order.push_back(range);
    client.leave();
    ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  }
}

TEST_F(ServerTest, BoundsWhatAClientGets) {
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (size_t i = 0; i < kMostLeases; ++i) ASSERT_EQ(client.lease(static_cast<int>(i)).kind, Kind::kGranted);
  const Message refused = client.lease(100);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_NE(text_of(refused).find("16 netdevs"), std::string::npos) << text_of(refused);
}

TEST_F(ServerTest, SaysWhenAllNumbersAreLeased) {
  kernel_.last_number = 4;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(client.lease(i).kind, Kind::kGranted);
  const Message refused = client.lease(9);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, ENOSPC);
}

TEST_F(ServerTest, OneProcessHasTheAfXdpQueuesOfANetdevBesideOthersWithSockets) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  EXPECT_EQ(b.lease(1).kind, Kind::kGranted);
  const Message leased = a.lease(1, Plane::kAfXdp);
  ASSERT_EQ(leased.kind, Kind::kGranted);
  EXPECT_TRUE(a.descriptors()[0]) << "sockets come with it";
  EXPECT_TRUE(kernel_.is_steered(leased.range));
  attach(1, "uroce_steer_qpn");
  EXPECT_EQ(b.lease(1).kind, Kind::kGranted);
  const Message refused = b.lease(1, Plane::kAfXdp);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, EBUSY);
  EXPECT_NE(text_of(refused).find(concat("process ", getpid(), " (raw)")), std::string::npos) << text_of(refused);
  EXPECT_EQ(b.lease(2, Plane::kAfXdp).kind, Kind::kGranted) << "another netdev";
  a.leave();
  EXPECT_TRUE(comes_true([&] { return b.lease(1, Plane::kAfXdp).kind == Kind::kGranted; }));
  EXPECT_FALSE(kernel_.is_steered(leased.range));
}

// To ask for the queues takes no privilege, to attach the program does.
TEST_F(ServerTest, WhoDoesNotUseTheQueuesKeepsNobodyFromThem) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  EXPECT_EQ(a.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
  EXPECT_EQ(b.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
}

TEST_F(ServerTest, ProcessWithoutBrokerKeepsOthersFromItsNetdev) {
  RunningBroker broker(kernel_, address_);
  attach(1, "uroce_steer");
  attach(2, "somebody_else");
  RawClient client(address_);
  client.greet();
  for (const Plane plane : {Plane::kSockets, Plane::kAfXdp}) {
    const Message refused = client.lease(1, plane);
    EXPECT_EQ(refused.error, EBUSY);
    EXPECT_NE(text_of(refused).find("on eth without broker (XDP program id 7)"), std::string::npos) << text_of(refused);
    EXPECT_EQ(client.lease(2, plane).kind, Kind::kGranted) << "for the client to see";
  }
}

TEST_F(ServerTest, AfXdpLeasesAreTakenOver) {
  Message claim = make_message(Kind::kClaim);
  claim.ifindex = 1;
  claim.plane = Plane::kAfXdp;
  claim.has_v6 = 1;
  Descriptors kept;
  {
    RunningBroker broker(kernel_, address_);
    RawClient survivor(address_);
    survivor.greet();
    ASSERT_EQ(survivor.lease(1, Plane::kAfXdp).kind, Kind::kGranted);
    kept = std::move(survivor.descriptors());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient survivor(address_), other(address_);
  survivor.greet();
  other.greet();
  const std::array sockets{kept[0].get(), kept[1].get(), kept[2].get()};
  const Message answer = survivor.ask(claim, sockets);
  ASSERT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
  EXPECT_TRUE(kernel_.is_steered(answer.range));
  attach(1, "uroce_steer_qpn");
  EXPECT_EQ(other.lease(1, Plane::kAfXdp).error, EBUSY);
  EXPECT_EQ(other.lease(1).kind, Kind::kGranted);
}

Message port_request(Kind kind, const std::string& port) {
  return make_message(kind, port);
}

TEST_F(ServerTest, OneProcessHasADpdkPort) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const Message hold = port_request(Kind::kHold, "0000:01:00.0");
  EXPECT_EQ(a.ask(hold).kind, Kind::kGranted);
  EXPECT_EQ(a.ask(hold).kind, Kind::kGranted) << "it has it";
  const Message refused = b.ask(hold);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error, EBUSY);
  EXPECT_EQ(text_of(refused), concat("process ", getpid(),
                                     " (raw) has this DPDK port, which one process at a time can "
                                     "use: 0000:01:00.0"));
  EXPECT_EQ(b.ask(port_request(Kind::kHold, "0000:01:00.1")).kind, Kind::kGranted);
  a.leave();
  EXPECT_TRUE(comes_true([&] { return b.ask(hold).kind == Kind::kGranted; }));
}

TEST_F(ServerTest, DpdkPortsAreGivenBackAndCounted) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  for (size_t i = 0; i < kMostPorts; ++i) {
    ASSERT_EQ(a.ask(port_request(Kind::kHold, concat("port ", i))).kind, Kind::kGranted);
  }
  EXPECT_NE(text_of(a.ask(port_request(Kind::kHold, "one more"))).find("16 DPDK ports"), std::string::npos);
  EXPECT_EQ(b.ask(port_request(Kind::kHold, "port 3")).error, EBUSY);
  a.say(port_request(Kind::kRelease, "port 3"));
  EXPECT_TRUE(comes_true([&] { return b.ask(port_request(Kind::kHold, "port 3")).kind == Kind::kGranted; }));
  EXPECT_EQ(a.ask(port_request(Kind::kHold, "port 3")).error, EBUSY);
}

TEST_F(ServerTest, ServesOnlyItsOwnNamespaceUserAndVersion) {
  {
    RunningBroker broker(kernel_, address_);
    RawClient stranger(address_);
    Message message = RawClient::hello();
    message.network_namespace += 1;
    EXPECT_EQ(stranger.ask(message).error, EXDEV);
    EXPECT_TRUE(stranger.hung_up());

    RawClient newer(address_);
    message = RawClient::hello();
    message.version += 1;
    const Message answer = newer.ask(message);
    EXPECT_EQ(answer.kind, Kind::kRefused);
    EXPECT_EQ(answer.error, ENOTSUP);
    EXPECT_EQ(text_of(answer), concat("it speaks version ", kProtocolVersion, " and this program version ",
                                      kProtocolVersion + 1, ": install the same uroce for both, or end uroced (kill ",
                                      getpid(), ") so that the program starts its own"));
    EXPECT_TRUE(newer.hung_up());

    RawClient older(address_);
    message.version = 0;
    EXPECT_NE(
        text_of(older.ask(message)).find(concat("it speaks version ", kProtocolVersion, " and this program version 0")),
        std::string::npos);
    EXPECT_TRUE(older.hung_up());
  }
}

// What another user does. The kernel knows users of threads, the C library does not.
constexpr uid_t kUser = 65533, kOtherUser = 65532;
void as_user(uid_t user, const std::function<void()>& steps) {
  std::thread([&] {
    ASSERT_EQ(syscall(SYS_setgroups, 0, nullptr), 0);
    ASSERT_EQ(syscall(SYS_setresgid, user, user, user), 0);
    ASSERT_EQ(syscall(SYS_setresuid, user, user, user), 0);
    steps();
  }).join();
}

TEST_F(ServerTest, ServesAllUsersOrAGroup) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto code = [this] {
    int error = -1;
    as_user(kUser, [&] { error = RawClient(address_).greet().error; });
    return error;
  };
  {
    RunningBroker broker(kernel_, address_);
    EXPECT_EQ(code(), 0);
  }
  for (const auto& [group, expected] : {std::pair(gid_t{kUser}, 0), std::pair(gid_t{kOtherUser}, EACCES)}) {
    RunningBroker broker(kernel_, address_, {.owner = 0, .group = group, .linger = {}});
    EXPECT_EQ(code(), expected);
  }
}

TEST_F(ServerTest, ServesItsOwnerOnlyWhereUsersAreNotKeptApart) {
  UROCE_SKIP_UNLESS_ROOT();
  kernel_.isolation_obstacle = "it is too small";
  RunningBroker broker(kernel_, address_, {.owner = kOtherUser, .group = {}, .linger = {}});
  as_user(kUser, [&] {
    RawClient stranger(address_);
    const Message answer = stranger.greet();
    EXPECT_EQ(answer.error, EACCES);
    EXPECT_NE(text_of(answer).find("it is too small"), std::string::npos) << text_of(answer);
    EXPECT_TRUE(stranger.hung_up());
  });
  as_user(kOtherUser, [&] { EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome); });
  EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome);
}

TEST_F(ServerTest, AUserLeavesNumbersForOthers) {
  UROCE_SKIP_UNLESS_ROOT();
  kernel_.last_number = 8;
  RunningBroker broker(kernel_, address_);
  const auto leases = [](RawClient& client) {
    client.greet();
    int count = 0;
    while (client.lease(count + 1).kind == Kind::kGranted) ++count;
    return count;
  };
  std::vector<RawClient> clients;
  as_user(kUser, [&] { EXPECT_EQ(leases(clients.emplace_back(address_)), 4); });
  as_user(kOtherUser, [&] { EXPECT_EQ(leases(clients.emplace_back(address_)), 2); });
  EXPECT_EQ(leases(clients.emplace_back(address_)), 2) << "root gets all";
}

// Each socket that is open makes the kernel slower, for all.
TEST_F(ServerTest, ARangeIsNotFreeWhileItsSocketsAreKept) {
  kernel_.last_number = 2;
  kernel_.clients_keep_sockets = true;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (int i = 0; i < 2; ++i) {
    Message back = make_message(Kind::kReturn);
    back.range = client.lease(1).range;
    client.say(back);
  }
  EXPECT_EQ(client.lease(1).error, ENOSPC);
  {
    const std::lock_guard guard(kernel_.lock);
    kernel_.clients_keep_sockets = false;
    kernel_.kept.clear();
  }
  EXPECT_TRUE(comes_true([&] { return client.lease(1).kind == Kind::kGranted; }));
}

TEST_F(ServerTest, KeptSocketsCountForTheirUser) {
  UROCE_SKIP_UNLESS_ROOT();
  kernel_.last_number = 8;
  kernel_.clients_keep_sockets = true;
  RunningBroker broker(kernel_, address_);
  const auto leases = [&] {
    int count = 0;
    for (Message answer;; ++count) {
      RawClient client(address_);  // a new one each time
      client.greet();
      answer = client.lease(1);
      if (answer.kind == Kind::kRefused) return count;
      client.leave();
      if (!comes_true([&] { return !kernel_.is_steered(answer.range); })) return -1;
    }
  };
  as_user(kUser, [&] { EXPECT_EQ(leases(), 4); });
  as_user(kOtherUser, [&] { EXPECT_EQ(leases(), 2); });
}

// Clients of an earlier broker who have not come back may live.
TEST_F(ServerTest, RangesThatAreNotFreeAtTheStartAreNotLeased) {
  kernel_.last_number = 3;
  kernel_.survivors = true;
  kernel_.kept = {1, 3};
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  EXPECT_EQ(client.lease(1).range, 2u);
  EXPECT_EQ(client.lease(1).error, ENOSPC);
}

TEST_F(ServerTest, OthersGoOnWhileOneBreaksTheRules) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_);
  good.greet();

  RawClient silent(address_);  // says nothing
  RawClient rude(address_);    // no greeting
  rude.say(make_message(Kind::kLease));
  EXPECT_TRUE(rude.hung_up());
  RawClient garbage(address_);
  garbage.greet();
  ::send(garbage.socket(), "garbage", 7, MSG_NOSIGNAL);
  EXPECT_TRUE(garbage.hung_up());
  RawClient answers(address_);  // what only a broker says
  answers.greet();
  answers.say(make_message(Kind::kGranted));
  EXPECT_TRUE(answers.hung_up());
  RawClient again(address_);  // greets twice
  again.greet();
  again.say(RawClient::hello());
  EXPECT_TRUE(again.hung_up());

  EXPECT_EQ(good.lease(1).kind, Kind::kGranted);
}

Time silent_time{};
Time silent_clock() {
  return silent_time;
}

// In time that passes as the test says.
TEST_F(ServerTest, WhoConnectsAndSaysNothingIsLetGo) {
  silent_time = Time(std::chrono::hours(1));
  std::vector<UniqueFd> listeners(1);
  ASSERT_EQ(listen_at(address_, listeners.front()), 0);
  Server server(std::move(listeners), std::make_unique<FakeSteering>(kernel_),
                {.owner = geteuid(), .group = {}, .linger = {}}, false, io::attached_xdp_program, silent_clock);
  const auto turns = [&server] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(server.turn(-1, false));
  };
  RawClient silent(address_), late(address_), greeted(address_);
  turns();
  greeted.say(RawClient::hello());
  turns();
  EXPECT_EQ(greeted.listen().kind, Kind::kWelcome);
  silent_time += Server::kGreetingTime - std::chrono::nanoseconds(1);
  turns();
  late.say(RawClient::hello());  // in the last moment
  turns();
  EXPECT_EQ(late.listen().kind, Kind::kWelcome);
  silent_time += std::chrono::nanoseconds(1);
  turns();
  EXPECT_TRUE(silent.hung_up());
  silent_time += std::chrono::hours(1);
  turns();
  for (RawClient* const client : {&greeted, &late}) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = 1;
    client->say(request);
    turns();
    EXPECT_EQ(client->listen().kind, Kind::kGranted) << "who has greeted may be silent";
  }
}

TEST_F(ServerTest, DescriptorsThatCloseSlowlyHoldNobodyUp) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_), stranger(address_), leases(address_), returns(address_);
  good.greet();
  leases.greet();
  returns.greet();
  {
    const std::lock_guard guard(kernel_.lock);  // the broker stands still, and so has the last descriptors
    Message request = make_message(Kind::kLease);
    request.ifindex = 1;
    good.say(request);
    stranger.say_with_slow_socket(RawClient::hello());
    leases.say_with_slow_socket(make_message(Kind::kLease));
    returns.say_with_slow_socket(make_message(Kind::kReturn));
  }
  EXPECT_EQ(good.listen().kind, Kind::kGranted);
  for (RawClient* const client : {&stranger, &leases, &returns}) EXPECT_TRUE(client->hung_up());
  EXPECT_EQ(good.lease(2).kind, Kind::kGranted);
}

// Without a byte of message, and behind the error that whoever hangs up leaves if he has not read his answers.
TEST_F(ServerTest, DescriptorsThatAreHardToSeeHoldNobodyUpEither) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_), empty(address_), unread(address_);
  for (RawClient* const client : {&good, &empty}) client->greet();
  EXPECT_EQ(unread.say(RawClient::hello()), 0);
  EXPECT_EQ(wait_for_message(unread.socket(), 20'000), 0);
  {
    const std::lock_guard guard(kernel_.lock);  // the broker stands still, and so has the last descriptors
    Message request = make_message(Kind::kLease);
    request.ifindex = 1;
    good.say(request);
    empty.say_nothing_with_slow_socket();
    unread.say_with_slow_socket(make_message(Kind::kLease));
    unread.leave();
  }
  EXPECT_EQ(good.listen().kind, Kind::kGranted);
  EXPECT_TRUE(empty.hung_up());
  EXPECT_EQ(good.lease(2).kind, Kind::kGranted);
}

// Which the kernel would keep from him if the broker left messages unread.
TEST_F(ServerTest, WhoIsRefusedReadsWhy) {
  RunningBroker broker(kernel_, address_);
  for (int i = 0; i < 200; ++i) {
    RawClient newer(address_);
    Message message = RawClient::hello();
    message.version += 1;
    EXPECT_EQ(newer.say(message), 0);
    newer.say(message);
    ASSERT_EQ(newer.listen().kind, Kind::kRefused) << "attempt " << i;
  }
}

TEST_F(ServerTest, WhatOthersBringToAClaimIsASocketOrIsNotTaken) {
  UROCE_SKIP_UNLESS_ROOT();
  RunningBroker broker(kernel_, address_);
  RawClient good(address_);
  good.greet();
  std::vector<RawClient> claims;
  for (int i = 0; i < 2; ++i) {
    as_user(kUser, [&] { claims.emplace_back(address_).greet(); });
  }
  {
    const std::lock_guard guard(kernel_.lock);
    Message request = make_message(Kind::kLease);
    request.ifindex = 1;
    good.say(request);
    for (RawClient& client : claims) client.say_with_slow_socket(make_message(Kind::kClaim));
  }
  EXPECT_EQ(good.listen().kind, Kind::kGranted);
  for (RawClient& client : claims) EXPECT_TRUE(client.hung_up());
  EXPECT_EQ(good.lease(2).kind, Kind::kGranted);
}

TEST_F(ServerTest, AUserLeavesConnectionsForOthers) {
  UROCE_SKIP_UNLESS_ROOT();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  raise_file_limit();
  {
    RunningBroker broker(kernel_, address_);
    std::vector<RawClient> clients;
    as_user(kUser, [&] {
      RawClient* last = nullptr;
      do {
        last = &clients.emplace_back(address_);
      } while (last->is_welcome());
    });
    EXPECT_EQ(clients.size(), (kMostClients - kMostClients / kReserved) / 2 + 1) << "and one that was refused";
    as_user(kOtherUser, [&] { EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome); });
    RawClient root(address_);
    EXPECT_EQ(root.greet().kind, Kind::kWelcome);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

// As many users as they like get no more than that.
TEST_F(ServerTest, UsersTogetherLeaveNumbersForRoot) {
  UROCE_SKIP_UNLESS_ROOT();
  kernel_.last_number = 2 * kReserved;
  RunningBroker broker(kernel_, address_);
  std::vector<RawClient> clients;
  size_t leases = 0;
  for (uid_t user = 60000; user < 60020; ++user) {
    as_user(user, [&] {
      RawClient* client = nullptr;
      do {
        client = &clients.emplace_back(address_);
        client->greet();
      } while (client->lease(1).kind == Kind::kGranted && ++leases > 0);
    });
  }
  EXPECT_EQ(leases, kernel_.last_number - 2);
  for (int i = 0; i < 2; ++i) {
    RawClient& root = clients.emplace_back(address_);
    root.greet();
    EXPECT_EQ(root.lease(1).kind, Kind::kGranted);
  }
}

// Each such answer is on its way for good, with its descriptors.
TEST_F(ServerTest, WhoAsksBeforeHeHasReadIsLetGoAndCountsUntilHeReads) {
  UROCE_SKIP_UNLESS_ROOT();
  constexpr size_t kClients = 2 * kReserved;
  {
    RunningBroker broker(kernel_, address_, {.owner = 0, .group = {}, .linger = {}, .most_clients = kClients});
    Message request = make_message(Kind::kLease);
    request.ifindex = 1;
    std::vector<RawClient> unread;
    const auto attack = [&] {
      for (size_t i = 0; i < 2 * kClients; ++i) {
        RawClient& client = unread.emplace_back(address_);
        if (!client.is_welcome()) return true;
        for (int again = 0; again < 3; ++again) client.say(request);
      }
      return false;
    };
    as_user(kUser, [&] { EXPECT_TRUE(attack()) << "it is refused in the end"; });
    EXPECT_EQ(unread.size(), kClients / 2);
    EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome);
    as_user(kOtherUser, [&] { EXPECT_EQ(RawClient(address_).greet().kind, Kind::kWelcome); });
    EXPECT_EQ(unread.front().listen().kind, Kind::kGranted) << "what it was sent is still there";
    EXPECT_TRUE(unread.front().hung_up());
    as_user(kUser, [&] { EXPECT_TRUE(comes_true([&] { return RawClient(address_).is_welcome(); })); });
  }
}

// In turns that the test makes.
TEST_F(ServerTest, ATurnServesSoManyMessagesOfAUser) {
  UROCE_SKIP_UNLESS_ROOT();
  std::vector<UniqueFd> listeners(1);
  ASSERT_EQ(listen_at(address_, listeners.front()), 0);
  Server server(std::move(listeners), std::make_unique<FakeSteering>(kernel_), {.owner = 0, .group = {}, .linger = {}},
                false);
  std::vector<RawClient> clients;
  as_user(kUser, [&] {
    for (size_t i = 0; i < 2 * kServedOfUser; ++i) {
      clients.emplace_back(address_);
      server.turn(-1, false);
    }
  });
  clients.emplace_back(address_);
  server.turn(-1, false);
  for (RawClient& client : clients) client.say(RawClient::hello());
  const auto answered = [&clients] {
    return std::count_if(clients.begin(), clients.end(),
                         [](const RawClient& client) { return wait_for_message(client.socket(), 0) == 0; });
  };
  server.turn(-1, false);
  EXPECT_EQ(answered(), kServedOfUser + 1);
  EXPECT_EQ(clients.back().listen().kind, Kind::kWelcome) << "root's, which came last";
  server.turn(-1, false);
  server.turn(-1, false);
  EXPECT_EQ(answered(), 2 * kServedOfUser);
}

TEST_F(ServerTest, WhoOnlyKeepsTheBrokerThereCanAskNothing) {
  for (const Kind kind : {Kind::kLease, Kind::kCm, Kind::kHold, Kind::kMeet, Kind::kStay, Kind::kClaim}) {
    RunningBroker broker(kernel_, address_,
                         {.owner = geteuid(), .group = {}, .linger = std::chrono::milliseconds(300)});
    RawClient stays(address_);
    stays.greet();
    stays.say(make_message(Kind::kStay));
    EXPECT_FALSE(comes_true([&] { return broker.ended(); }, std::chrono::milliseconds(600)));
    stays.say(make_message(kind));
    EXPECT_TRUE(stays.hung_up());
    EXPECT_TRUE(comes_true([&] { return broker.ended(); }));
  }
}

// Descriptors that root brings are not trusted either: what it inherited may be another's.
TEST_F(ServerTest, WhatTheOwnerBringsToAClaimIsASocketToo) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_), claims(address_);
  good.greet();
  claims.greet();
  {
    const std::lock_guard guard(kernel_.lock);
    Message request = make_message(Kind::kLease);
    request.ifindex = 1;
    good.say(request);
    claims.say_with_slow_socket(make_message(Kind::kClaim));
  }
  EXPECT_EQ(good.listen().kind, Kind::kGranted);
  EXPECT_TRUE(claims.hung_up());
}

Message meet(uint32_t range, uint32_t other) {
  Message message = make_message(Kind::kMeet);
  message.range = range;
  message.other = other;
  return message;
}

// Maps what has just been heard.
std::unique_ptr<io::Peer> peer_of(RawClient& client, const Message& heard) {
  return io::Peer::open(0, {std::move(client.descriptors()[0]), std::move(client.descriptors()[1]), heard.side});
}

TEST_F(ServerTest, BringsClientsOfOneNetdevTogetherOnce) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const uint32_t ours = a.lease(1).range, theirs = b.lease(1).range, elsewhere = b.lease(2).range;
  a.say(meet(ours, elsewhere));
  a.say(meet(ours, ours));
  a.say(meet(theirs, ours));  // as if it were the other one
  a.say(meet(ours, 0));
  a.say(meet(ours, theirs));
  const Message told = a.hear();
  EXPECT_EQ(told.kind, Kind::kPeer);
  EXPECT_EQ(told.range, ours);
  EXPECT_EQ(told.other, theirs);
  const auto one = peer_of(a, told);
  const Message heard = b.hear();
  EXPECT_EQ(heard.kind, Kind::kPeer);
  EXPECT_EQ(heard.range, theirs);
  EXPECT_EQ(heard.other, ours);
  EXPECT_EQ(told.side + heard.side, 1u);
  const auto other = peer_of(b, heard);
  ASSERT_TRUE(one && other);
  *one->out.reserve(1) = 7;
  one->out.add(1);
  one->out.publish();
  ASSERT_EQ(other->in.front().size(), 1u);
  EXPECT_EQ(other->in.front()[0], 7);

  b.say(meet(theirs, ours));
  EXPECT_EQ(b.lease(3).kind, Kind::kGranted);
  b.hear(0);
  EXPECT_EQ(b.error(), ETIMEDOUT) << "they have met";
  b.leave();
  ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(theirs); }));
  a.say(meet(ours, theirs));
  EXPECT_EQ(a.lease(2).kind, Kind::kGranted);
  a.hear(0);
  EXPECT_EQ(a.error(), ETIMEDOUT);
}

// As many as they like: what is closed for them takes processes, and nobody waits for those.
TEST_F(ServerTest, ConnectionsThatCloseSlowlyHoldNobodyUp) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_);
  good.greet();
  for (int round = 0; round < 5; ++round) {
    {
      const std::lock_guard guard(kernel_.lock);  // the broker stands still, and so has the last descriptors
      Message request = make_message(Kind::kLease);
      request.ifindex = 1;
      good.say(request);
      for (int i = 0; i < 8; ++i) RawClient(address_).say_with_slow_socket(RawClient::hello());
    }
    EXPECT_EQ(good.listen().kind, Kind::kGranted) << round;
  }
}

// --- of several users -----------------------------------------------------------------------------------------------

class Strangers : public ServerTest {
 protected:
  struct Stranger {
    Stranger(const std::string& address, uid_t uid) {
      as_user(uid, [&] { client.emplace(address); });
      client->greet();
      range = client->lease(1).range;
    }
    // What the broker says by itself, after all that has been asked was done.
    Kind hears() {
      EXPECT_EQ(client->lease(2).kind, Kind::kGranted);
      const Message heard = client->hear(0);
      return client->error() == 0 ? heard.kind : Kind::kNoMore;
    }
    void meet(const Stranger& other) { client->say(broker::meet(range, other.range)); }
    std::optional<RawClient> client;
    uint32_t range = 0;
  };
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    broker_.emplace(kernel_, address_);
  }
  std::optional<RunningBroker> broker_;
};

TEST_F(Strangers, MeetWhenBothAsk) {
  Stranger a(address_, kUser), b(address_, kOtherUser);
  for (int i = 0; i < 2; ++i) a.meet(b);
  EXPECT_EQ(a.hears(), Kind::kNoMore);
  EXPECT_EQ(b.hears(), Kind::kNoMore);
  b.meet(a);
  EXPECT_EQ(b.hears(), Kind::kPeer);
  EXPECT_EQ(a.hears(), Kind::kPeer);
}

TEST_F(Strangers, ProcessesOfAUserAndRootsNeedNotBeAskedFor) {
  Stranger a(address_, kUser), same(address_, kUser), root(address_, 0);
  a.meet(same);
  EXPECT_EQ(a.hears(), Kind::kPeer);
  EXPECT_EQ(same.hears(), Kind::kPeer);
  a.meet(root);
  EXPECT_EQ(a.hears(), Kind::kNoMore);
  EXPECT_EQ(root.hears(), Kind::kNoMore) << "root mistrusts others";
  Stranger b(address_, kOtherUser);
  root.meet(b);
  EXPECT_EQ(root.hears(), Kind::kPeer);
  EXPECT_EQ(b.hears(), Kind::kPeer);
}

// A wish ends with the range, which somebody else may have next.
TEST_F(Strangers, AWishIsForgottenWithItsRange) {
  kernel_.last_number = 4;
  Stranger a(address_, kUser);
  uint32_t range = 0;
  {
    Stranger b(address_, kOtherUser);
    range = b.range;
    b.meet(a);
    b.hears();
  }
  ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  a.client->say(meet(a.range, range));
  EXPECT_EQ(a.hears(), Kind::kNoMore);
}

TEST_F(Strangers, NoMoreThanSoManyOfOneOtherUser) {
  Stranger victim(address_, 0);
  std::vector<std::unique_ptr<Stranger>> many;
  for (size_t i = 0; i <= kMostMetOfUser; ++i) {
    Stranger& each = *many.emplace_back(std::make_unique<Stranger>(address_, kUser));
    each.meet(victim);
    EXPECT_EQ(each.hears(), Kind::kNoMore);
    victim.meet(each);
    victim.client->hear(i < kMostMetOfUser ? 20'000 : 100);
    EXPECT_EQ(victim.client->error(), i < kMostMetOfUser ? 0 : ETIMEDOUT) << i;
  }
  Stranger other(address_, kOtherUser);
  other.meet(victim);
  victim.meet(other);
  victim.client->hear();
  EXPECT_EQ(victim.client->error(), 0) << "of another user";
}

// One that does not listen misses it, and nobody else is made to set up what is of no use.
TEST_F(ServerTest, ClientsThatDoNotListenAreNotMet) {
  RunningBroker broker(kernel_, address_);
  RawClient deaf(address_), a(address_);
  deaf.greet();
  a.greet();
  const uint32_t theirs = deaf.lease(1).range, first = a.lease(1).range;
  bool alone = false;
  for (int i = 0; i < 100 && !alone; ++i) {
    RawClient other(address_);
    other.greet();
    other.say(meet(other.lease(1).range, theirs));
    EXPECT_EQ(other.lease(2).kind, Kind::kGranted) << "the broker is done with what came before";
    other.hear(0);
    alone = other.error() == ETIMEDOUT;
  }
  EXPECT_TRUE(alone);
  deaf.hear();  // now it does
  a.say(meet(first, theirs));
  EXPECT_EQ(a.hear().kind, Kind::kPeer);
}

// Whoever does not read the answers is let go.
TEST_F(ServerTest, FloodWithoutReadingEndsTheConnection) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_), flood(address_);
  good.greet();
  flood.greet();
  Message request = make_message(Kind::kLease);
  request.ifindex = 1;
  EXPECT_TRUE(comes_true([&] { return flood.say(request) != 0; }));
  EXPECT_EQ(good.lease(2).kind, Kind::kGranted);
}

TEST_F(ServerTest, LingersAfterTheLastClient) {
  RunningBroker broker(kernel_, address_, {.owner = geteuid(), .group = {}, .linger = std::chrono::milliseconds(300)});
  RawClient client(address_);
  client.greet();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_FALSE(broker.ended()) << "somebody is there";
  client.leave();
  EXPECT_TRUE(comes_true([&] { return broker.ended(); }));
}

TEST_F(ServerTest, SurvivorsComeBackBeforeOthersAreServed) {
  Message claim = make_message(Kind::kClaim);
  claim.ifindex = 1;
  claim.has_v6 = 1;
  uint32_t range = 0;
  std::vector<int> sockets;
  Descriptors kept;
  {
    RunningBroker broker(kernel_, address_);
    RawClient survivor(address_);
    survivor.greet();
    range = survivor.lease(1).range;
    kept = std::move(survivor.descriptors());
  }
  for (const UniqueFd& descriptor : kept) {
    if (descriptor) sockets.push_back(descriptor.get());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient newcomer(address_), survivor(address_), liar(address_);
  newcomer.greet();
  survivor.greet();
  liar.greet();
  Message request = make_message(Kind::kLease, "eth");
  request.ifindex = 1;
  newcomer.say(request);
  pollfd answered{newcomer.socket(), POLLIN, 0};
  const Message answer = survivor.ask(claim, sockets);
  EXPECT_EQ(answer.kind, Kind::kGranted) << text_of(answer);
  EXPECT_EQ(answer.range, range);
  EXPECT_EQ(poll(&answered, 1, 0), 0) << "it waits";
  EXPECT_EQ(liar.ask(claim, sockets).error, EBUSY) << "somebody has them";
  const UniqueFd other(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), event(eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(liar.ask(claim, std::array{other.get()}).error, EPERM);
  EXPECT_EQ(liar.ask(claim).error, EPERM);
  liar.say(claim, std::array{event.get()});
  EXPECT_TRUE(liar.hung_up());
  EXPECT_EQ(newcomer.listen().kind, Kind::kGranted);
}

// Who has returned a range and kept its sockets comes first to the next broker, and then who has it.
TEST_F(ServerTest, ALaterLeaseOfARangeEndsAnEarlierOne) {
  kernel_.last_number = 1;
  Message claim = make_message(Kind::kClaim);
  claim.has_v6 = 1;
  Descriptors kept, current;
  {
    RunningBroker broker(kernel_, address_);
    RawClient thief(address_), victim(address_);
    thief.greet();
    ASSERT_EQ(thief.lease(1).kind, Kind::kGranted);
    kept = std::move(thief.descriptors());
    thief.leave();
    ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(1); }));
    victim.greet();
    ASSERT_EQ(victim.lease(1).kind, Kind::kGranted);
    current = std::move(victim.descriptors());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient thief(address_), victim(address_);
  thief.greet();
  victim.greet();
  const std::array stolen{kept[0].get(), kept[1].get(), kept[2].get()};
  const std::array own{current[0].get(), current[1].get(), current[2].get()};
  EXPECT_EQ(thief.ask(claim, stolen).kind, Kind::kGranted);
  EXPECT_EQ(victim.ask(claim, own).kind, Kind::kGranted);
  EXPECT_EQ(thief.ask(claim, stolen).error, EBUSY);
  Message back = make_message(Kind::kReturn);
  back.range = 1;
  thief.say(back);
  EXPECT_EQ(thief.lease(1).error, ENOSPC) << "it is the victim's";
  EXPECT_TRUE(kernel_.is_steered(1));
}

// Sockets of several leases, which one connection brings.
TEST_F(ServerTest, WhatAClientBringsBackIsBoundedLikeWhatItGets) {
  Message claim = make_message(Kind::kClaim);
  claim.has_v6 = 1;
  std::vector<Descriptors> kept;
  {
    RunningBroker broker(kernel_, address_);
    for (size_t clients = 0; clients < 2; ++clients) {
      RawClient client(address_);
      client.greet();
      for (size_t i = 0; i < kMostLeases; ++i) {
        ASSERT_EQ(client.lease(1).kind, Kind::kGranted);
        kept.push_back(std::move(client.descriptors()));
      }
    }
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  for (size_t i = 0; i < kept.size(); ++i) {
    const Message answer = client.ask(claim, std::array{kept[i][0].get(), kept[i][1].get(), kept[i][2].get()});
    EXPECT_EQ(answer.kind, i < kMostLeases ? Kind::kGranted : Kind::kRefused) << i;
  }
}

// Who has a range by an earlier lease has met others, not who has it by the later one.
TEST_F(ServerTest, WhoTakesARangeOverMeetsOthersAnew) {
  kernel_.last_number = 2;
  Message claim = make_message(Kind::kClaim);
  claim.ifindex = 1;
  claim.has_v6 = 1;
  Descriptors kept, current;
  uint32_t range = 0;
  {
    RunningBroker broker(kernel_, address_);
    RawClient one(address_);
    one.greet();
    range = one.lease(1).range;
    kept = std::move(one.descriptors());
    one.leave();
    ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
    RawClient other(address_);
    other.greet();
    while (other.lease(1).range != range) continue;
    current = std::move(other.descriptors());
  }
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  RawClient thief(address_), victim(address_), third(address_);
  for (RawClient* const client : {&thief, &victim, &third}) client->greet();
  ASSERT_EQ(thief.ask(claim, std::array{kept[0].get(), kept[1].get(), kept[2].get()}).kind, Kind::kGranted);
  const uint32_t theirs = third.lease(1).range;
  third.say(meet(theirs, range));
  EXPECT_EQ(third.hear().other, range);
  ASSERT_EQ(victim.ask(claim, std::array{current[0].get(), current[1].get(), current[2].get()}).kind, Kind::kGranted);
  third.say(meet(theirs, range));
  EXPECT_EQ(third.hear().other, range);
  EXPECT_EQ(victim.hear().range, range);
}

TEST_F(ServerTest, SaysWhyItCannotStart) {
  kernel_.survivors = true;
  kernel_.start_error = EBUSY;
  RunningBroker broker(kernel_, address_);
  RawClient client(address_);
  client.greet();
  const Message refused = client.lease(1);
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(text_of(refused), "cannot start; try");
}

TEST_F(ServerTest, ManyClients) {
  RunningBroker broker(kernel_, address_);
  std::vector<RawClient> clients;
  std::set<uint32_t> ranges;
  for (int i = 0; i < 256; ++i) {
    RawClient& client = clients.emplace_back(address_);
    client.greet();
    ranges.insert(client.lease(1).range);
    client.descriptors() = {};
  }
  EXPECT_EQ(ranges.size(), 256u);
}

}  // namespace
}  // namespace uroce::broker
