// SPDX-License-Identifier: BSD-2-Clause
// Whose time it is that the broker takes (broker/server/server_time.cc).
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "broker/steering/file_limit.h"
#include "tests/broker/server/server_rig.h"
#include "tests/unfilled_memory.h"
#include "tests/waiters.h"

namespace uroce::broker {
namespace {

class ServerTime : public ServerTest {
 protected:
  void turns() {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(broker->turn(-1, false));
  }
  bool is_answered(RawClient& client) {
    turns();
    pollfd answer{client.socket(), POLLIN, 0};
    return poll(&answer, 1, 0) != 0;
  }
  Message ask(RawClient& client, const Message& request) {
    client.say(request);
    EXPECT_TRUE(is_answered(client));
    return client.listen();
  }
  void come(std::optional<RawClient>& client, uid_t user) {
    as_user(user, [&] { client.emplace(address_); });
    client->say(RawClient::hello());
    ASSERT_TRUE(is_answered(*client));
    client->welcome();
  }
  uint32_t lease(RawClient& client) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = 1;
    return ask(client, request).range;
  }
  // Until there is a message of this client that is not read.
  void use_up_time(RawClient& client) {
    raise_file_limit();
    waiters.emplace(client.socket(), 100'000);
    for (int asked = 0; asked < 100'000; ++asked) {
      client.say(make_message(Kind::kHold, "port"));
      if (!is_answered(client)) return;
      client.listen();
    }
    FAIL() << "there is always time";
  }

  std::unique_ptr<Server> broker;
  std::optional<RawClient> slow, other;
  std::optional<test::Waiters> waiters;
};

// Else others would wait for those that wait at his end.
TEST_F(ServerTime, WhoHasNoTimeIsToldLater) {
  UROCE_SKIP_UNLESS_ROOT();
  broker = server(silent_clock);
  come(slow, kUser);
  come(other, kOtherUser);
  const uint32_t range = lease(*slow), gone = lease(*other);
  slow->say(meet(range, gone));
  other->say(meet(gone, range));
  turns();
  EXPECT_EQ(slow->hear(0).kind, Kind::kMemory);
  use_up_time(*slow);
  other.reset();
  turns();
  slow->hear(0);
  EXPECT_EQ(slow->error(), ETIMEDOUT);
  silent_time += std::chrono::seconds(9);  // kPartingTime has not passed
  turns();
  EXPECT_EQ(slow->hear(0).kind, Kind::kPart);
  EXPECT_EQ(slow->error(), 0);
}

// Who has it by then, while the broker still sends, closes his copy and keeps an epoll set locked that it is in: the
// last close() does not end. The waiters only see to it that he has the time, with all that he needs made before.
TEST_F(ServerTime, WhatItHasGivenAwayIsNotClosedByIt) {
  UROCE_SKIP_UNLESS_ROOT();
  raise_file_limit();
  broker = server(silent_clock);
  as_user(kUser, [&] { slow.emplace(address_); });
  test::UnfilledMemory memory;
  const UniqueFd set(epoll_create1(EPOLL_CLOEXEC)), ready(eventfd(1, EFD_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, ready.get(), &event), 0);
  std::atomic<bool> ends = false, is_given = false;
  std::promise<void> goes_on;
  bool in_time = false;
  std::thread thief([&] {
    Message answer;
    Descriptors given;
    while (!ends && !is_given) is_given = receive(slow->socket(), answer, given, 0) == 0;
    epoll_ctl(set.get(), EPOLL_CTL_ADD, given[0].get(), &event);
    given[0].reset();
    epoll_wait(set.get(), static_cast<epoll_event*>(memory.get()), 1, -1);
  });
  std::thread watch([&] {
    in_time = goes_on.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    ends = true;
    memory.fill();
  });
  waiters.emplace(slow->socket(), 200'000);
  slow->say(RawClient::hello());
  for (int i = 0; i < 8 && !is_given; ++i) {
    turns();
    silent_time += std::chrono::milliseconds(500);  // he has some time again
  }
  goes_on.set_value();
  thief.join();
  watch.join();
  EXPECT_TRUE(is_given);
  EXPECT_TRUE(in_time);
}

// With a message in its queue. The broker itself would drop that and hang up, which is no error at this end.
bool was_closed_unread(int socket) {
  pollfd end{socket, POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 20'000), 1);
  char byte;
  return recv(socket, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
}

TEST_F(ServerTime, TheEndDoesNotWaitForWhoHasNoTime) {
  UROCE_SKIP_UNLESS_ROOT();
  broker = server(silent_clock);
  broker->manage_connections(std::make_unique<FakeView>());
  come(slow, kUser);
  EXPECT_EQ(ask(*slow, make_message(Kind::kCm)).kind, Kind::kGranted);
  const UniqueFd cm = std::move(slow->descriptors()[0]);
  use_up_time(*slow);
  EXPECT_EQ(::send(cm.get(), "x", 1, 0), 1);
  std::optional<RawClient> pending;
  as_user(kUser, [&] { pending.emplace(address_); });
  pending->say(RawClient::hello());
  broker.reset();
  EXPECT_TRUE(was_closed_unread(slow->socket()));
  EXPECT_TRUE(was_closed_unread(cm.get()));
  EXPECT_TRUE(was_closed_unread(pending->socket()));
}

// The clock is asked before anything that takes somebody's time.
std::string address_to_be_free;
std::vector<int> errors_of_listening;
Time looking_clock() {
  UniqueFd listener;
  if (!address_to_be_free.empty()) errors_of_listening.push_back(listen_at(address_to_be_free, listener));
  return silent_time;
}

TEST_F(ServerTime, AtTheEndTheAddressIsFreeFirst) {
  broker = server(looking_clock);
  RawClient client(address_), pending(address_);
  turns();
  address_to_be_free = address_;
  broker.reset();
  address_to_be_free.clear();
  ASSERT_FALSE(errors_of_listening.empty());
  EXPECT_EQ(errors_of_listening.front(), 0);
}

}  // namespace
}  // namespace uroce::broker
