// SPDX-License-Identifier: BSD-2-Clause
// Whose time it is that the broker takes (broker/server/server_time.cc).
#include <cerrno>
#include <chrono>
#include <gtest/gtest.h>
#include <optional>
#include <poll.h>

#include "broker/steering/file_limit.h"
#include "tests/broker/server/server_rig.h"
#include "tests/waiters.h"

namespace uroce::broker {
namespace {

class ServerTime : public ServerTest {};

// Else others would wait for those that wait at his end.
TEST_F(ServerTime, WhoHasNoTimeIsToldLater) {
  UROCE_SKIP_UNLESS_ROOT();
  const auto broker = server(silent_clock);
  const auto turns = [&] {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(broker->turn(-1, false));
  };
  std::optional<RawClient> slow, other;
  as_user(kUser, [&] { slow.emplace(address_); });
  as_user(kOtherUser, [&] { other.emplace(address_); });
  const auto is_answered = [&](RawClient& client, const Message& request) {
    client.say(request);
    turns();
    pollfd answer{client.socket(), POLLIN, 0};
    if (poll(&answer, 1, 0) == 0) return false;
    client.welcome();
    return true;
  };
  const auto lease = [&](RawClient& client) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = 1;
    client.say(request);
    turns();
    return client.listen();
  };
  ASSERT_TRUE(is_answered(*slow, RawClient::hello()));
  ASSERT_TRUE(is_answered(*other, RawClient::hello()));
  const uint32_t range = lease(*slow).range, gone = lease(*other).range;
  slow->say(meet(range, gone));
  other->say(meet(gone, range));
  turns();
  EXPECT_EQ(slow->hear(0).kind, Kind::kMemory);
  raise_file_limit();
  const test::Waiters waiters(slow->socket(), 100'000);
  int asked = 0;
  bool has_time = true;
  for (; has_time && asked < 100'000; ++asked) {
    slow->say(make_message(Kind::kHold, "port"));
    turns();
    pollfd answer{slow->socket(), POLLIN, 0};
    has_time = poll(&answer, 1, 0) != 0;
    if (has_time) slow->listen();
  }
  ASSERT_FALSE(has_time);
  other.reset();
  turns();
  slow->hear(0);
  EXPECT_EQ(slow->error(), ETIMEDOUT);
  silent_time += std::chrono::seconds(9);  // kPartingTime has not passed
  turns();
  EXPECT_EQ(slow->hear(0).kind, Kind::kPart);
  EXPECT_EQ(slow->error(), 0);
}

}  // namespace
}  // namespace uroce::broker
