// SPDX-License-Identifier: BSD-2-Clause
// What clients of an earlier broker bring, and what hostile ones do with that (broker/server/claims.h).
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <set>
#include <span>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/passed_descriptors.h"
#include "broker/server/claims.h"
#include "tests/broker/server/children.h"
#include "tests/broker/server/server_rig.h"
#include "tests/locked_socket.h"

namespace uroce::broker {
namespace {

class ServerClaims : public ServerTest {
 protected:
  void SetUp() override {
    kernel_.survivors = true;
    silent_time = Time();
  }
};

UniqueFd udp_socket() {
  return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

// They close it slowly, and none of them is the broker.
TEST_F(ServerClaims, WhatIsBroughtIsClosedByOthers) {
  UROCE_SKIP_UNLESS_ROOT();
  RunningBroker broker(kernel_, address_);
  RawClient good(address_);
  std::vector<RawClient> claims;
  good.greet();
  for (int i = 0; i < 2; ++i) {
    as_user(kUser, [&] { claims.emplace_back(address_).greet(); });
  }
  claims.emplace_back(address_).greet();  // root may bring what it has got from others
  for (RawClient& client : claims) client.say_with_slow_socket(make_message(Kind::kClaim));
  for (RawClient& client : claims) EXPECT_EQ(client.listen().kind, Kind::kRefused);
  EXPECT_EQ(good.lease(1).kind, Kind::kGranted);
  EXPECT_EQ(claims.back().lease(1).kind, Kind::kGranted) << "it goes on";
}

TEST_F(ServerClaims, WhatIsNoLeaseIsRefused) {
  RunningBroker broker(kernel_, address_);
  RawClient liar(address_);
  liar.greet();
  const UniqueFd other = udp_socket(), event(eventfd(0, EFD_CLOEXEC));
  const Message claim = make_message(Kind::kClaim);
  EXPECT_EQ(liar.ask(claim).error, EINVAL);
  EXPECT_EQ(liar.ask(claim, std::array{event.get()}).error, EINVAL);
  EXPECT_EQ(liar.ask(claim, std::array{other.get()}).error, EPERM);
  EXPECT_EQ(liar.lease(1).kind, Kind::kGranted);
}

// Nobody has a copy of the last one, which closes slowly.
TEST_F(ServerClaims, WhoBringsMoreThanThereAreIsLetGo) {
  UROCE_SKIP_UNLESS_ROOT();
  RunningBroker broker(kernel_, address_);
  RawClient good(address_);
  good.greet();
  const UniqueFd other = udp_socket();
  const Message claim = make_message(Kind::kClaim);
  std::optional<RawClient> brings;
  as_user(kUser, [&] { brings.emplace(address_).greet(); });
  {
    const UniqueFd slow = test::slow_socket();
    const std::array many{other.get(), other.get(), other.get(), other.get(), slow.get()};
    const std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(&claim), sizeof(claim)};
    EXPECT_EQ(send_with_descriptors(brings->socket(), bytes, many), 0);
  }
  EXPECT_EQ(brings->listen().error, EPROTO);
  EXPECT_TRUE(brings->hung_up());
  EXPECT_EQ(good.lease(1).kind, Kind::kGranted);
}

// Else a range that is still looked at would be somebody else's.
TEST_F(ServerClaims, NothingIsLeasedWhileClaimsAreLookedAtButNotForLong) {
  UROCE_SKIP_UNLESS_ROOT();
  const UniqueFd socket = udp_socket();
  const test::SocketLock lock(socket.get());
  const auto broker = server(silent_clock);
  const auto turns = [&] {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(broker->turn(-1, false));
  };
  const auto is_answered = [](const RawClient& client) {
    pollfd answer{client.socket(), POLLIN, 0};
    return poll(&answer, 1, 0) == 1;
  };
  std::optional<RawClient> claims;
  as_user(kUser, [&] { claims.emplace(address_); });
  RawClient newcomer(address_);
  for (RawClient* const client : {&*claims, &newcomer}) {
    client->say(RawClient::hello());
    turns();
    client->welcome();
  }
  claims->say(make_message(Kind::kClaim), std::array{socket.get()});
  Message request = make_message(Kind::kLease, "eth");
  request.ifindex = 1;
  newcomer.say(request);
  turns();
  silent_time += Server::kInheritance + std::chrono::milliseconds(1);
  turns();
  EXPECT_FALSE(is_answered(newcomer));
  silent_time += Server::kMoreInheritance;
  turns();
  EXPECT_TRUE(is_answered(newcomer));
}

TEST_F(ServerClaims, WhoHasNotGreetedOrOnlyLooksBringsNothing) {
  RunningBroker broker(kernel_, address_);
  const UniqueFd socket = udp_socket();
  RawClient silent(address_), looks(address_);
  looks.ask(make_message(Kind::kLook));
  for (RawClient* const client : {&silent, &looks}) {
    client->say(make_message(Kind::kClaim), std::array{socket.get()});
    EXPECT_TRUE(client->hung_up());
  }
}

TEST_F(ServerClaims, OthersSocketsAreTakenOverInTheFirstMinute) {
  UROCE_SKIP_UNLESS_ROOT();
  const UniqueFd socket = udp_socket();
  for (const bool survivors : {true, false}) {
    kernel_.survivors = survivors;
    const auto broker = server(silent_clock);
    const auto is_looked_at = [&](uid_t user) {
      std::optional<RawClient> client;
      const auto turns_until = [&](const auto& condition) {
        return comes_true([&] { return broker->turn(-1, false) && condition(); });
      };
      const auto is_answered = [&] {
        pollfd answer{client->socket(), POLLIN, 0};
        return poll(&answer, 1, 0) == 1;
      };
      as_user(user, [&] { client.emplace(address_); });
      client->say(RawClient::hello());
      EXPECT_TRUE(turns_until(is_answered));
      client->welcome();
      client->say(make_message(Kind::kClaim), std::array{socket.get()});
      EXPECT_TRUE(turns_until(is_answered));
      const Message answer = client->listen();
      EXPECT_EQ(answer.kind, Kind::kRefused);
      return text_of(answer).find("first minute") == std::string::npos;
    };
    EXPECT_EQ(is_looked_at(kUser), survivors);
    silent_time += Server::kInheritance + kClaimTime - std::chrono::nanoseconds(1);
    EXPECT_EQ(is_looked_at(kUser), survivors);
    silent_time += std::chrono::nanoseconds(1);
    EXPECT_FALSE(is_looked_at(kUser));
    EXPECT_TRUE(is_looked_at(0)) << "root's at any time";
  }
}

// Whoever looks at such a socket waits, and cannot be killed.
TEST_F(ServerClaims, ASocketThatIsLockedEndsItsClaimOnly) {
  UROCE_SKIP_UNLESS_ROOT();
  RunningBroker broker(kernel_, address_);
  const UniqueFd socket = udp_socket();
  const test::SocketLock lock(socket.get());
  std::optional<RawClient> claims, same_user;
  as_user(kUser, [&] { claims.emplace(address_).greet(); });
  as_user(kUser, [&] { same_user.emplace(address_).greet(); });
  RawClient good(address_);
  good.greet();
  claims->say(make_message(Kind::kClaim), std::array{socket.get()});
  const UniqueFd other = udp_socket();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(good.ask(make_message(Kind::kClaim), std::array{other.get()}).error, EPERM);
  }
  same_user->say(make_message(Kind::kClaim), std::array{other.get()});
  const Message answer = claims->listen();
  EXPECT_EQ(answer.error, ETIMEDOUT) << text_of(answer);
  EXPECT_TRUE(claims->hung_up());
  EXPECT_EQ(same_user->listen().error, EPERM) << "its turn comes then";
}

// Those that this process has open, by their names in /proc. Threads of other tests may open some and close them.
std::set<std::string> open_sockets() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone);
    if (name.rfind("socket:", 0) == 0) found.insert(name);
  }
  return found;
}

// One that has just been forked has a copy of all that is open here, and would be the last to close it.
TEST_F(ServerClaims, NothingIsGivenAwayToBeClosedWhileAProcessBegins) {
  kernel_.has_starting_child = true;
  const auto broker = server();
  RawClient(address_).say_with_slow_socket(RawClient::hello());
  const std::set<std::string> before = open_sockets();
  EXPECT_TRUE(broker->turn(-1, false));
  std::set<std::string> kept = open_sockets();  // the connection, at last
  std::erase_if(kept, [&](const std::string& name) { return before.contains(name); });
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(broker->turn(-1, false));
    std::erase_if(kept, [now = open_sockets()](const std::string& name) { return !now.contains(name); });
    ASSERT_FALSE(kept.empty()) << "after turn " << i;
  }
  kernel_.has_starting_child = false;
  EXPECT_TRUE(comes_true([&] {
    std::erase_if(kept, [now = open_sockets()](const std::string& name) { return !now.contains(name); });
    return broker->turn(-1, false) && kept.empty();
  }));
}

// Processes that cannot be killed are as many as a user may have, and nobody else's matter.
TEST_F(ServerClaims, SoManyOfAUserMayHang) {
  UROCE_SKIP_UNLESS_ROOT();
  const UniqueFd socket = udp_socket(), other = udp_socket();
  std::optional<test::SocketLock> lock(socket.get());
  auto broker = server(silent_clock);
  const auto claims = [&](uid_t user, const UniqueFd& brings) {
    std::optional<RawClient> client;
    const auto is_answered = [&] {
      pollfd answer{client->socket(), POLLIN, 0};
      return poll(&answer, 1, 0) == 1;
    };
    // Processes cost him time: he gets some, less than any patience where that is not to end.
    const auto turn = [&](Duration time) {
      silent_time += time;
      return broker->turn(-1, false);
    };
    constexpr Duration kLittle = std::chrono::microseconds(200), kMuch = std::chrono::milliseconds(20);
    as_user(user, [&] { client.emplace(address_); });
    client->say(RawClient::hello());
    EXPECT_TRUE(comes_true([&] { return turn(kMuch) && is_answered(); }));
    client->welcome();
    silent_time += std::chrono::seconds(2);
    client->say(make_message(Kind::kClaim), std::array{brings.get()});
    if (brings.get() == socket.get()) {
      const auto before = children("D");  // no signal ends these
      EXPECT_TRUE(comes_true([&] { return turn(kLittle) && (is_answered() || has_more(children("D"), before)); }));
      silent_time += Claims::kPatience;
    }
    EXPECT_TRUE(comes_true([&] { return turn(kLittle) && is_answered(); }));
    return client->listen().error;
  };
  size_t hang = 0;
  while (hang <= Staging::kStages && claims(kUser, socket) == ETIMEDOUT) ++hang;
  EXPECT_LE(hang, Staging::kStages / 2);
  EXPECT_GE(hang, 2u);
  EXPECT_EQ(claims(kUser, other), EAGAIN);
  EXPECT_EQ(claims(kOtherUser, other), EPERM) << "is looked at";
  EXPECT_EQ(claims(0, other), EPERM);
  const auto begin = std::chrono::steady_clock::now();
  broker.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "it waits for none of them";
  UniqueFd late;
  EXPECT_EQ(connect_to(address_, late), ECONNREFUSED) << "and they have nothing of it";
  lock.reset();
}

// Its claim is forgotten, and whoever comes next is answered.
TEST_F(ServerClaims, WhoGoesWhileItsSocketsAreLookedAtHoldsNobodyUp) {
  UROCE_SKIP_UNLESS_ROOT();
  RunningBroker broker(kernel_, address_);
  const UniqueFd socket = udp_socket(), other = udp_socket();
  const test::SocketLock lock(socket.get());
  for (int i = 0; i < 4; ++i) {
    as_user(kUser, [&] {
      RawClient client(address_);
      client.greet();
      client.say(make_message(Kind::kClaim), std::array{socket.get()});
    });
    std::optional<RawClient> next;
    as_user(kUser, [&] { next.emplace(address_).greet(); });
    EXPECT_EQ(next->ask(make_message(Kind::kClaim), std::array{other.get()}).error, EPERM);
  }
}

}  // namespace
}  // namespace uroce::broker
