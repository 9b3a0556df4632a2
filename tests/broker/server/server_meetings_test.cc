// SPDX-License-Identifier: BSD-2-Clause
// Who is brought together with whom, to exchange packets by memory.
#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <unistd.h>
#include <vector>

#include "tests/broker/server/server_rig.h"
#include "tests/moved_together.h"

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
  const auto hears = [](RawClient& client, Kind kind, uint32_t range, uint32_t other) {
    const Message heard = client.hear();
    EXPECT_EQ(heard.kind, kind);
    EXPECT_EQ(heard.range, range);
    EXPECT_EQ(heard.other, other);
    return heard;
  };
  auto own = a.prepare(hears(a, Kind::kMemory, ours, theirs)), its = b.prepare(hears(b, Kind::kMemory, theirs, ours));
  hears(a, Kind::kPeer, ours, theirs);
  const auto one = peer_of(a, std::move(own));
  hears(b, Kind::kPeer, theirs, ours);
  const auto other = peer_of(b, std::move(its));
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
    // What the broker says by itself, after all that has been asked was done. Memory is sealed.
    Kind hears() {
      EXPECT_EQ(client->lease(2).kind, Kind::kGranted);
      const Message heard = client->hear(0);
      if (client->error() != 0) return Kind::kNoMore;
      if (heard.kind == Kind::kMemory) client->prepare(heard);
      return heard.kind;
    }
    bool is_asked_to_meet() { return hears() == Kind::kMemory; }
    void meet(const Stranger& other) { client->say(broker::meet(range, other.range)); }
    std::optional<RawClient> client;
    uint32_t range = 0;
  };
  void SetUp() override {
    UROCE_SKIP_UNLESS_ROOT();
    start();
  }
  void start(bool memory_between_users = true) {
    broker_.reset();
    broker_.emplace(
        kernel_, address_,
        Policy{.owner = geteuid(), .group = {}, .memory_between_users = memory_between_users, .linger = {}});
  }
  std::optional<RunningBroker> broker_;
};

TEST_F(Strangers, DoNotMeetIfTheBrokerDoesNotPermitIt) {
  start(false);
  Stranger a(address_, kUser), b(address_, kOtherUser), same(address_, kUser), root(address_, 0);
  for (Stranger* const one : {&a, &b, &root}) {
    for (Stranger* const other : {&a, &b, &root}) {
      if (one != other) one->meet(*other);
    }
  }
  for (Stranger* const each : {&a, &b, &root}) EXPECT_EQ(each->hears(), Kind::kNoMore);
  a.meet(same);
  EXPECT_TRUE(a.is_asked_to_meet());
  EXPECT_TRUE(same.is_asked_to_meet());
  EXPECT_EQ(a.client->hear().kind, Kind::kPeer);
}

TEST_F(Strangers, MeetWhenBothAsk) {
  Stranger a(address_, kUser), b(address_, kOtherUser);
  for (int i = 0; i < 2; ++i) a.meet(b);
  EXPECT_EQ(a.hears(), Kind::kNoMore);
  EXPECT_EQ(b.hears(), Kind::kNoMore);
  b.meet(a);
  EXPECT_TRUE(b.is_asked_to_meet());
  EXPECT_TRUE(a.is_asked_to_meet());
  EXPECT_EQ(a.client->hear().kind, Kind::kPeer);
  EXPECT_EQ(b.client->hear().kind, Kind::kPeer);
}

TEST_F(Strangers, ProcessesOfAUserAndRootsNeedNotBeAskedFor) {
  Stranger a(address_, kUser), same(address_, kUser), root(address_, 0);
  a.meet(same);
  EXPECT_TRUE(a.is_asked_to_meet());
  EXPECT_TRUE(same.is_asked_to_meet());
  EXPECT_EQ(a.client->hear().kind, Kind::kPeer);
  a.meet(root);
  EXPECT_EQ(a.hears(), Kind::kNoMore);
  EXPECT_EQ(root.hears(), Kind::kNoMore) << "root mistrusts others";
  Stranger b(address_, kOtherUser);
  root.meet(b);
  EXPECT_TRUE(root.is_asked_to_meet());
  EXPECT_TRUE(b.is_asked_to_meet());
}

// A wish ends with the range, which somebody else may have next.
TEST_F(Strangers, AWishIsForgottenWithItsRange) {
  broker_.reset();
  kernel_.last_number = 8;
  start();
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

// A broker whose turns and whose clock the test makes.
class ServerMeetingsInTurns : public ServerMeetings {
 protected:
  void turns() {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(broker_->turn(-1, false));
  }
  void greet(RawClient& client) {
    client.say(RawClient::hello());
    turns();
    EXPECT_EQ(client.welcome().kind, Kind::kWelcome);
  }
  uint32_t lease(RawClient& client) {
    Message request = make_message(Kind::kLease, "eth");
    request.ifindex = 1;
    client.say(request);
    turns();
    return client.listen().range;
  }
  void meet(RawClient& client, uint32_t own, uint32_t other) {
    client.say(broker::meet(own, other));
    turns();
  }

  // Others ask for it and leave until it, which reads nothing, cannot be told any more.
  void leave_no_room_to_tell(uint32_t range) {
    bool is_full = false;
    for (int i = 0; i < 100 && !is_full; ++i) {
      RawClient other(address_);
      greet(other);
      meet(other, lease(other), range);
      other.hear(0);
      is_full = other.error() == ETIMEDOUT;
    }
    ASSERT_TRUE(is_full);
  }

  void SetUp() override { broker_ = server(silent_clock); }

  std::unique_ptr<Server> broker_;
};

// One that does not listen misses it, and nobody else is made to set up what is of no use again and again.
TEST_F(ServerMeetingsInTurns, StrangersThatDoNotListenAreNotMetSoon) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  std::optional<RawClient> deaf, other;
  as_user(kUser, [&] { deaf.emplace(address_); });
  greet(*deaf);
  const uint32_t theirs = lease(*deaf);
  uint32_t ours = 0;
  const auto both_ask = [&] {
    meet(*other, ours, theirs);
    meet(*deaf, theirs, ours);
  };
  Message parting{};
  for (int i = 0; i < 100 && parting.kind != Kind::kPart; ++i) {
    as_user(kOtherUser, [&] { other.emplace(address_); });
    greet(*other);
    ours = lease(*other);
    both_ask();
    EXPECT_EQ(other->hear(0).kind, Kind::kMemory);
    parting = other->hear(0);
  }
  ASSERT_EQ(parting.kind, Kind::kPart) << "it does not keep the memory for one that is not there";
  EXPECT_EQ(parting.range, ours);
  EXPECT_EQ(parting.other, theirs);
  both_ask();
  other->hear(0);
  EXPECT_EQ(other->error(), ETIMEDOUT);
  silent_time += kPutOff;
  both_ask();
  EXPECT_EQ(other->hear(0).kind, Kind::kMemory);
  EXPECT_EQ(other->hear(0).kind, Kind::kPart);
  while (deaf->error() == 0) deaf->hear(0);  // now it listens
  silent_time += kPutOff;
  both_ask();
  EXPECT_EQ(other->hear(0).kind, Kind::kMemory);
  EXPECT_EQ(deaf->hear(0).kind, Kind::kMemory);
}

// A job's processes, which begin together.
TEST_F(ServerMeetingsInTurns, OfOneUserTheyAreMetWhenTheyListen) {
  RawClient deaf(address_), a(address_);
  greet(deaf);
  greet(a);
  const uint32_t theirs = lease(deaf), first = lease(a);
  leave_no_room_to_tell(theirs);
  meet(deaf, theirs, first);
  EXPECT_EQ(a.hear(0).kind, Kind::kMemory);
  EXPECT_EQ(a.hear(0).kind, Kind::kPart);
  while (deaf.error() == 0) deaf.hear(0);
  meet(a, first, theirs);
  EXPECT_EQ(a.hear(0).kind, Kind::kMemory);
  EXPECT_EQ(deaf.hear(0).kind, Kind::kMemory);
}

// Each would keep half a megabyte otherwise, of as many as come and go.
TEST_F(ServerMeetingsInTurns, WhoPreparedForOneThatHasStoppedListeningIsTold) {
  RawClient a(address_), gone(address_);
  greet(a);
  greet(gone);
  const uint32_t ours = lease(a), theirs = lease(gone);
  meet(a, ours, theirs);
  a.prepare(a.hear(0));
  turns();
  EXPECT_EQ(gone.hear(0).kind, Kind::kMemory);
  gone.seal();
  gone.stop_listening();
  meet(a, ours, theirs);
  const Message parting = a.hear(0);
  EXPECT_EQ(parting.kind, Kind::kPart);
  EXPECT_EQ(parting.range, ours);
  EXPECT_EQ(parting.other, theirs);
}

// Who has sealed first cannot be told when the other one has; it is told that they have parted as soon as it listens,
// and a meeting before that would end by it.
TEST_F(ServerMeetingsInTurns, WhoHasNotReadOfAPartingDoesNotMeetBefore) {
  for (const bool deaf_seals_first : {true, false}) {
    RawClient deaf(address_), a(address_);
    greet(deaf);
    greet(a);
    const uint32_t theirs = lease(deaf), ours = lease(a);
    meet(a, ours, theirs);
    RawClient &first = deaf_seals_first ? deaf : a, &second = deaf_seals_first ? a : deaf;
    first.prepare(first.hear(0));
    const Message told = second.hear(0);
    leave_no_room_to_tell(theirs);
    second.prepare(told);
    turns();
    if (!deaf_seals_first) {
      EXPECT_EQ(a.hear(0).kind, Kind::kPeer);
    }
    EXPECT_EQ(a.hear(0).kind, Kind::kPart) << "and nothing before it, of the one that is told last";
    for (Message heard = deaf.hear(0); deaf.error() == 0; heard = deaf.hear(0)) EXPECT_NE(heard.other, ours);
    const auto is_asked_to_meet = [&] {
      meet(a, ours, theirs);
      const bool is = a.hear(0).kind == Kind::kMemory && a.error() == 0;
      EXPECT_EQ(deaf.hear(0).kind == Kind::kMemory && deaf.error() == 0, is);
      return is;
    };
    EXPECT_FALSE(is_asked_to_meet());
    silent_time += Server::kLookAgain;
    turns();
    Message parting = deaf.hear(0);
    while (deaf.error() == 0 && parting.other != ours) parting = deaf.hear(0);
    EXPECT_EQ(deaf.error(), 0);
    EXPECT_EQ(parting.kind, Kind::kPart);
    EXPECT_TRUE(is_asked_to_meet());
  }
}

// Who reads it would wait for what the writer does to it. That he says so is not enough.
TEST_F(ServerMeetings, NobodyGetsMemoryThatIsNotSealed) {
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), b(address_);
  a.greet();
  b.greet();
  const uint32_t ours = a.lease(1).range, theirs = b.lease(1).range;
  const auto hears_nothing = [](RawClient& client) {
    EXPECT_EQ(client.lease(2).kind, Kind::kGranted) << "the broker is done with what came before";
    client.hear(0);
    return client.error() == ETIMEDOUT;
  };
  a.say(meet(ours, theirs));
  const Message told = a.hear();
  EXPECT_EQ(told.kind, Kind::kMemory);
  const UniqueFd memory = std::move(a.descriptors()[0]);
  b.prepare(b.hear());
  a.say(RawClient::sealed(told));
  EXPECT_TRUE(hears_nothing(a));
  EXPECT_TRUE(hears_nothing(b));
  const auto own = io::PeerMemory::for_writing(memory.get());
  ASSERT_NE(own, nullptr);
  EXPECT_TRUE(hears_nothing(a)) << "nobody has said that it is to be looked at";
  a.say(meet(ours, theirs));  // as good as kSealed, which may have been lost
  EXPECT_EQ(a.hear().kind, Kind::kPeer);
  EXPECT_EQ(b.hear().kind, Kind::kPeer);
  EXPECT_TRUE(io::PeerMemory::is_sealed(b.descriptors()[0].get()));
}

// What the one who had the range has sealed is not the next one's.
TEST_F(ServerMeetings, AMeetingThatIsNotReadyEndsWithTheRange) {
  kernel_.last_number = 2;
  RunningBroker broker(kernel_, address_);
  RawClient a(address_), next(address_);
  a.greet();
  next.greet();
  const uint32_t ours = a.lease(1).range;
  uint32_t theirs = 0;
  {
    RawClient b(address_);
    b.greet();
    theirs = b.lease(1).range;
    a.say(meet(ours, theirs));
    b.prepare(b.hear());
  }
  const Message told = a.hear();
  EXPECT_EQ(a.hear().kind, Kind::kPart);
  ASSERT_TRUE(comes_true([&] { return next.lease(1).range == theirs; }));
  a.say(RawClient::sealed(told));
  a.say(meet(ours, theirs));
  EXPECT_EQ(a.hear().kind, Kind::kMemory);
  a.prepare(told);
  EXPECT_EQ(next.hear().kind, Kind::kMemory) << "and nothing before it";
}

// Else what it sends meanwhile would be in the memory of the one who had the range.
TEST_F(ServerMeetingsInTurns, ARangeIsNobodysBeforeWhoMetItHasReadThatItHasGone) {
  broker_.reset();
  kernel_.last_number = 2;
  broker_ = server(silent_clock);
  RawClient a(address_), b(address_), next(address_);
  for (RawClient* const client : {&a, &b, &next}) greet(*client);
  const uint32_t ours = lease(a), theirs = lease(b);
  meet(a, ours, theirs);
  EXPECT_EQ(a.hear(0).kind, Kind::kMemory);
  b.leave();
  const auto is_free = [&] {
    silent_time += Server::kLookAgain;
    return lease(next) == theirs;
  };
  EXPECT_FALSE(is_free());
  EXPECT_FALSE(is_free());
  EXPECT_EQ(a.hear(0).kind, Kind::kPart);
  EXPECT_TRUE(is_free());
}

// Who has been given them may make others wait for it.
TEST_F(ServerMeetingsInTurns, NobodyMovesThePagesBeforeBothHoldThem) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for processes of other users";
  if (!test::MovedTogether::possible()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE for files in memory";
  const test::MovedTogether pages;
  std::optional<RawClient> stranger;
  as_user(kUser, [&] { stranger.emplace(address_); });
  RawClient root(address_);
  greet(*stranger);
  greet(root);
  const uint32_t theirs = lease(*stranger), ours = lease(root);
  meet(root, ours, theirs);
  const Message to_them = stranger->hear(0), to_us = root.hear(0);
  ASSERT_EQ(to_them.kind, Kind::kMemory);
  ASSERT_EQ(to_us.kind, Kind::kMemory);
  const UniqueFd given(dup(stranger->descriptors()[0].get()));
  EXPECT_FALSE(pages.are(given.get()));
  stranger->prepare(to_them).reset();
  root.prepare(to_us).reset();
  turns();
  ASSERT_EQ(root.hear(0).kind, Kind::kPeer);
  EXPECT_FALSE(pages.are(given.get())) << "root has still to map them";
  EXPECT_FALSE(pages.are(root.descriptors()[0].get()));
  silent_time += kHoldTime;
  turns();
  EXPECT_TRUE(pages.are(given.get())) << "neither holds them here";
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

// Those that are never ready keep nobody else from it.
TEST_F(Strangers, SoManyMeetingsOfAUserAreBeingPrepared) {
  RawClient a(address_), b(address_);
  const auto be_user = [&] {
    a = RawClient(address_);
    b = RawClient(address_);
  };
  as_user(kUser, be_user);
  a.greet();
  b.greet();
  std::vector<uint32_t> ours, theirs;
  for (size_t i = 0; i < kMostLeases; ++i) {
    ours.push_back(a.lease(1).range);
    theirs.push_back(b.lease(1).range);
  }
  size_t begun = 0;
  const auto is_asked = [](RawClient& client) {
    client.lease(1);  // whatever the answer: the broker is done with what came before
    client.hear(0);
    return client.error() == 0;
  };
  for (const uint32_t own : ours) {
    for (const uint32_t its : theirs) {
      a.say(meet(own, its));
      const bool asked = is_asked(a);
      begun += asked ? 1 : 0;
      EXPECT_EQ(is_asked(b), asked);
    }
  }
  EXPECT_EQ(begun, (kMostPendingMeetings - kMostPendingMeetings / kReserved) / 2);
  Stranger one(address_, kOtherUser), other(address_, kOtherUser), root(address_, 0);
  one.meet(other);
  EXPECT_TRUE(one.is_asked_to_meet());
  root.meet(one);
  EXPECT_TRUE(root.is_asked_to_meet());
}

}  // namespace
}  // namespace uroce::broker
