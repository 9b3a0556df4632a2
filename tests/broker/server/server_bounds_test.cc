// SPDX-License-Identifier: BSD-2-Clause
// What clients and users may have of the broker and of its time, and what those get who break the rules
// (broker/server/bounds.h).
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <vector>

#include "base/concat.h"
#include "broker/steering/file_limit.h"
#include "cm/codec.h"
#include "tests/broker/server/children.h"
#include "tests/broker/server/server_rig.h"
#include "tests/held_files.h"

namespace uroce::broker {
namespace {

using ServerBounds = ServerTest;

TEST_F(ServerBounds, AUserLeavesNumbersForOthers) {
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

TEST_F(ServerBounds, KeptSocketsCountForTheirUser) {
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

TEST_F(ServerBounds, OthersGoOnWhileOneBreaksTheRules) {
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

// In time that passes as the test says.
TEST_F(ServerBounds, WhoConnectsAndSaysNothingIsLetGo) {
  silent_time = Time(std::chrono::hours(1));
  const auto broker = server(silent_clock);
  const auto turns = [&broker] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(broker->turn(-1, false));
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

TEST_F(ServerBounds, DescriptorsThatCloseSlowlyHoldNobodyUp) {
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
TEST_F(ServerBounds, DescriptorsThatAreHardToSeeHoldNobodyUpEither) {
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
TEST_F(ServerBounds, WhoIsRefusedReadsWhy) {
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

// Each ends a connection that was not read.
TEST_F(ServerBounds, ConnectionsOfTheManagerThatAreNotReadAreBounded) {
  UROCE_SKIP_UNLESS_ROOT();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  raise_file_limit();
  kernel_.has_cm = true;
  RunningBroker broker(kernel_, address_);
  std::vector<UniqueFd> kept;
  std::optional<RawClient> client;
  as_user(kUser, [&] { client.emplace(address_); });
  client->greet();
  size_t count = 0;
  for (; count < 2 * kMostClients; ++count) {
    if (client->ask(make_message(Kind::kCm)).kind != Kind::kGranted) break;
    UniqueFd& end = kept.emplace_back(std::move(client->descriptors().front()));
    const cm::Encoded request = cm::encode(cm::Request{cm::DestroyRequest{cm::Id{1}}});
    ASSERT_EQ(send_message(end.get(), request.bytes(), {}), 0);
    ASSERT_EQ(wait_for_message(end.get(), 20'000), 0);
  }
  EXPECT_LT(count, kMostClients);
  RawClient root(address_);
  EXPECT_EQ(root.greet().kind, Kind::kWelcome);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ServerBounds, AUserLeavesConnectionsForOthers) {
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
TEST_F(ServerBounds, UsersTogetherLeaveNumbersForRoot) {
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
TEST_F(ServerBounds, WhoAsksBeforeHeHasReadIsLetGoAndCountsUntilHeReads) {
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

size_t answered(const std::vector<RawClient>& clients) {
  return static_cast<size_t>(std::count_if(clients.begin(), clients.end(), [](const RawClient& client) {
    return wait_for_message(client.socket(), 0) == 0;
  }));
}

TEST_F(ServerBounds, ATurnServesSoManyMessagesOfAUser) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto broker = server();
  std::vector<RawClient> clients;
  as_user(kUser, [&] {
    for (size_t i = 0; i < 2 * kServedOfUser; ++i) {
      clients.emplace_back(address_);
      broker->turn(-1, false);
    }
  });
  clients.emplace_back(address_);
  broker->turn(-1, false);
  for (RawClient& client : clients) client.say(RawClient::hello());
  broker->turn(-1, false);
  EXPECT_EQ(answered(clients), kServedOfUser + 1);
  EXPECT_EQ(clients.back().listen().kind, Kind::kWelcome) << "root's, which came last";
  broker->turn(-1, false);
  broker->turn(-1, false);
  EXPECT_EQ(answered(clients), 2 * kServedOfUser);
}

// Whoever had a range next would not get what those send who have met the one before: they send it to the memory that
// he may still have. So it is kept until they have heard, or have not listened for long.
TEST_F(ServerBounds, ARangeIsKeptUntilThoseWhoMetItHaveHeard) {
  kernel_.last_number = 64;
  const auto broker = server(silent_clock);
  const auto ask = [&](RawClient& client, const Message& request) {
    client.say(request);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(broker->turn(-1, false));
    return client.listen();
  };
  const auto lease = [&](RawClient& client) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = 1;
    return ask(client, request);
  };
  const auto join = [&](RawClient& client) {
    client.say(RawClient::hello());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(broker->turn(-1, false));
    client.welcome();
    return lease(client).range;
  };
  RawClient deaf(address_);
  const uint32_t theirs = join(deaf);
  std::optional<RawClient> one(std::in_place, address_);
  const uint32_t range = join(*one);
  const auto meets = [&](RawClient& client, uint32_t own) {
    client.say(meet(own, theirs));
    EXPECT_EQ(lease(client).kind, Kind::kGranted);  // done with what came before
    client.hear(0);
    return client.error() == 0;
  };
  EXPECT_TRUE(meets(*one, range));
  bool met = true;
  int count = 0;
  for (; count < 1000 && met; ++count) {
    RawClient other(address_);
    const uint32_t own = join(other);
    met = meets(other, own);
    other.leave();
    silent_time += kPartingTime;
    for (int turn = 0; turn < 3; ++turn) EXPECT_TRUE(broker->turn(-1, false));
  }
  ASSERT_FALSE(met) << "it has room for all that it is told";
  ASSERT_GT(count, 1);
  one.reset();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(broker->turn(-1, false));
  const auto comes_back = [&] {
    std::vector<RawClient> all;
    bool found = false;
    for (int i = 0; i < 4; ++i) {
      RawClient& client = all.emplace_back(address_);
      found |= join(client) == range;
      for (Message got = lease(client); got.kind == Kind::kGranted; got = lease(client)) found |= got.range == range;
    }
    return found;
  };
  silent_time += kPartingTime - std::chrono::milliseconds(1);
  EXPECT_FALSE(comes_back());
  silent_time += std::chrono::seconds(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(broker->turn(-1, false));
  EXPECT_TRUE(comes_back()) << "is not waited for longer";
}

size_t open_files() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 0;
  return count;
}

TEST_F(ServerBounds, ATurnTakesAndClosesSoManyConnections) {
  const auto broker = server();
  std::vector<RawClient> clients;
  for (size_t i = 0; i < 2 * kMostAccepted; ++i) clients.emplace_back(address_).say(RawClient::hello());
  broker->turn(-1, false);
  EXPECT_EQ(answered(clients), 0u) << "they have been taken";
  broker->turn(-1, false);
  EXPECT_EQ(answered(clients), kMostAccepted);
  broker->turn(-1, false);
  EXPECT_EQ(answered(clients), 2 * kMostAccepted);
  clients.clear();
  const size_t before = open_files();
  constexpr size_t kFiles = 2;  // of each: the connection, and the socket for what the broker says by itself
  for (size_t turn = 1; turn <= 2; ++turn) {
    broker->turn(-1, false);
    EXPECT_EQ(before - open_files(), turn * kFiles * kMostClosed);
  }
}

TEST_F(ServerBounds, ThereAreNoMoreConnectionsThanFilesAllow) {
  EXPECT_EQ(most_clients(0), kReserved);
  EXPECT_EQ(most_clients(100 * kFilesOfClient), 100u);
  EXPECT_EQ(most_clients(1 << 20), kMostClients);
  EXPECT_EQ(enough_to_close(0), kReserved);
  EXPECT_EQ(enough_to_close(100), kReserved);
  EXPECT_EQ(enough_to_close(1 << 20), size_t{1} << 18);
}

TEST_F(ServerBounds, WhoOnlyKeepsTheBrokerThereCanAskNothing) {
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

// As many as they like: what is closed for them takes processes, and nobody waits for those.
TEST_F(ServerBounds, ConnectionsThatCloseSlowlyHoldNobodyUp) {
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

// He has as many processes as he may have, which do not end, and goes on.
TEST_F(ServerBounds, WhatWaitsToBeClosedLocksNobodyOut) {
  UROCE_SKIP_UNLESS_ROOT();
  constexpr size_t kClients = 2 * kReserved;
  constexpr size_t kAttempts = 4 * kClients;
  const auto broker = server(monotonic_now, kClients);
  std::vector<RawClient> stay;
  test::HeldFiles files(kAttempts);
  as_user(kUser, [&] {
    for (size_t i = 0; i < kClients; ++i) {
      stay.emplace_back(address_);
      broker->turn(-1, false);
    }
    for (size_t i = 0; i < kAttempts; ++i) {
      RawClient attempt(address_);
      {  // closed before the broker has it: else the process that closes may end first, and this thread would hang
        const UniqueFd file = files.take();
        ASSERT_EQ(attempt.say(RawClient::hello(), std::array{file.get()}), 0);
      }
      broker->turn(-1, false);
    }
  });
  const auto is_welcome = [&] {
    RawClient& client = stay.emplace_back(address_);
    client.say(RawClient::hello());
    return comes_true([&] {
      broker->turn(-1, false);
      return wait_for_message(client.socket(), 0) == 0;
    });
  };
  EXPECT_TRUE(is_welcome());
  as_user(kOtherUser, [&] { EXPECT_TRUE(is_welcome()); });
}

// What he is given waits as well, where the processes that close what is his do not end.
TEST_F(ServerBounds, WhoseProcessesDoNotEndIsNotGivenMoreAndMore) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto broker = server(silent_clock);
  test::HeldFiles files(SlowCloser::kMostOfUser);
  std::optional<RawClient> own, asks;
  const auto turns = [&] {
    for (int i = 0; i < 8; ++i) {
      silent_time += std::chrono::milliseconds(30);
      broker->turn(-1, false);
    }
  };
  const auto is_answered = [&](RawClient& client, const Message& question) {
    client.say(question);
    turns();
    const bool is = wait_for_message(client.socket(), 0) == 0;
    if (is) client.listen();
    return is;
  };
  as_user(kUser, [&] {
    for (size_t i = 0; i < SlowCloser::kMostOfUser; ++i) {
      RawClient attempt(address_);
      {
        const UniqueFd file = files.take();
        ASSERT_EQ(attempt.say(RawClient::hello(), std::array{file.get()}), 0);
      }
      const auto before = children("D");  // one more that hangs
      ASSERT_TRUE(comes_true([&] {
        turns();
        return has_more(children("D"), before);
      }));
    }
    own.emplace(address_);
    asks.emplace(address_);
  });
  own->say(RawClient::hello());
  turns();
  ASSERT_EQ(own->welcome().kind, Kind::kWelcome);
  ASSERT_TRUE(is_answered(*asks, make_message(Kind::kLook)));
  size_t answers = 0;
  while (answers < kMostKeptOfUser && is_answered(*asks, make_message(Kind::kNext))) {
    ++answers;
    own->hear(0);
  }
  EXPECT_LE(answers, kMostKeptOfUser / 3 + 1);
  EXPECT_GT(answers, kMostKeptOfUser / 4);
  RawClient root(address_), looks(address_);
  EXPECT_TRUE(is_answered(root, RawClient::hello()));
  EXPECT_TRUE(is_answered(looks, make_message(Kind::kLook)));
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(is_answered(looks, make_message(Kind::kNext)));
  EXPECT_LE(descriptors(), before) << "nothing of his is kept; what a process has had can have ended meanwhile";
}

TEST_F(ServerBounds, TheEndWaitsForNobodyWhoWasNotAccepted) {
  auto broker = server();
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(address_).say_with_slow_socket(RawClient::hello());
  broker.reset();
  for (RawClient& client : clients) EXPECT_TRUE(client.hung_up());
  UniqueFd late;
  EXPECT_EQ(connect_to(address_, late), ECONNREFUSED);
}

// Whoever does not read the answers is let go.
TEST_F(ServerBounds, FloodWithoutReadingEndsTheConnection) {
  RunningBroker broker(kernel_, address_);
  RawClient good(address_), flood(address_);
  good.greet();
  flood.greet();
  Message request = make_message(Kind::kLease);
  request.ifindex = 1;
  EXPECT_TRUE(comes_true([&] { return flood.say(request) != 0; }));
  EXPECT_EQ(good.lease(2).kind, Kind::kGranted);
}

}  // namespace
}  // namespace uroce::broker
