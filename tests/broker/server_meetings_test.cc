// SPDX-License-Identifier: BSD-2-Clause
// Who is brought together with whom, to exchange packets by memory.
#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "broker/meetings.h"
#include "tests/broker/server_rig.h"

namespace uroce::broker {
namespace {

class ServerMeetings : public ServerTest {};

TEST_F(ServerMeetings, BringsClientsOfOneNetdevTogetherOnce) {
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
  const Message parting = a.hear(0);
  EXPECT_EQ(parting.kind, Kind::kPart);
  EXPECT_EQ(parting.range, ours);
  EXPECT_EQ(parting.other, theirs);
  a.hear(0);
  EXPECT_EQ(a.error(), ETIMEDOUT);
}

class Strangers : public ServerMeetings {
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
  broker_.reset();
  kernel_.last_number = 8;
  broker_.emplace(kernel_, address_);
  Stranger a(address_, kUser);
  uint32_t range = 0;
  {
    Stranger b(address_, kOtherUser);
    range = b.range;
    b.meet(a);
    b.hears();
  }
  ASSERT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  Stranger root(address_, 0);
  for (int i = 0; i < 8 && root.range != range; ++i) root.range = root.client->lease(1).range;
  ASSERT_EQ(root.range, range);
  a.meet(root);
  a.client->lease(3);  // whatever the answer: the broker is done with what came before
  a.client->hear(0);
  EXPECT_EQ(a.client->error(), ETIMEDOUT);
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
TEST_F(ServerMeetings, ClientsThatDoNotListenAreNotMet) {
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

// Who has a range by an earlier lease has met others, not who has it by the later one.
TEST_F(ServerMeetings, WhoTakesARangeOverMeetsOthersAnew) {
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

// --- bounds ----------------------------------------------------------------------------------------------------------

TEST(Meetings, SoManyWishesOfARangeAreRemembered) {
  Meetings meetings;
  for (uint32_t other = 2; other < 2 + kMostWishes + 1; ++other) EXPECT_FALSE(meetings.wish(1, other, false));
  constexpr auto kFirst = 2, kTooMany = static_cast<int>(2 + kMostWishes);
  EXPECT_FALSE(meetings.wish(kTooMany, 1, false));
  EXPECT_TRUE(meetings.wish(kFirst, 1, false));
  meetings.settle(kFirst, 1);
  EXPECT_FALSE(meetings.wish(1, kTooMany + 1, false)) << "there is room for one more";
  EXPECT_TRUE(meetings.wish(kTooMany + 1, 1, false));
}

TEST(Meetings, ARangeMeetsSoMany) {
  Meetings meetings;
  for (uint32_t other = 2; other < 2 + kMostMet; ++other) {
    ASSERT_TRUE(meetings.wish(1, other, true));
    meetings.settle(1, other);
  }
  constexpr auto kOneMore = static_cast<uint32_t>(2 + kMostMet);
  EXPECT_FALSE(meetings.wish(1, kOneMore, true));
  EXPECT_FALSE(meetings.wish(kOneMore, 1, true));
  meetings.forget(2);
  EXPECT_TRUE(meetings.wish(1, kOneMore, true));
  EXPECT_EQ(meetings.met(1).size(), kMostMet - 1);
}

}  // namespace
}  // namespace uroce::broker
