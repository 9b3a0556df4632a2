// SPDX-License-Identifier: BSD-2-Clause
// A client's connection to its broker, over the broker's death.
#include "broker/client/link.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "base/concat.h"
#include "base/fork.h"
#include "broker/client/observer.h"
#include "engine/io/same_host/peer_exchange.h"
#include "tests/broker/client/links.h"
#include "tests/broker/client/scripted_broker.h"
#include "tests/broker/server/broker_rig.h"
#include "tests/engine/io/veth_pair.h"

namespace uroce::broker {
namespace {

std::string report_nothing(uint32_t) {
  return {};
}

class LinkTest : public testing::Test {
 protected:
  std::shared_ptr<Link> open() {
    auto opened = Link::open(address_, report_nothing);
    if (auto* const error = std::get_if<io::IoError>(&opened)) ADD_FAILURE() << error->text();
    auto* const link = std::get_if<std::shared_ptr<Link>>(&opened);
    return link == nullptr ? nullptr : *link;
  }
  static std::shared_ptr<Lease> lease(Link& link, int ifindex = 1) {
    auto leased = link.lease(ifindex, "eth", Plane::kSockets);
    if (auto* const error = std::get_if<io::IoError>(&leased)) ADD_FAILURE() << error->text();
    auto* const own = std::get_if<std::shared_ptr<Lease>>(&leased);
    return own == nullptr ? nullptr : *own;
  }

  Kernel kernel_;
  const std::string address_ = unique_address();
};

TEST_F(LinkTest, NoBroker) {
  const auto none = Link::open("none", report_nothing);
  EXPECT_EQ(std::get<std::shared_ptr<Link>>(none), nullptr);
  const auto missing = Link::open(address_, report_nothing);
  ASSERT_TRUE(std::holds_alternative<io::IoError>(missing));
  EXPECT_NE(std::get<io::IoError>(missing).text().find(address_), std::string::npos);
}

TEST_F(LinkTest, LeaseEndsWithItsObject) {
  RunningBroker broker(kernel_, address_);
  const auto link = open();
  auto first = lease(*link);
  auto second = lease(*link, 2);
  EXPECT_GE(first->socket_v4(), 0);
  EXPECT_GE(first->socket_v6(), 0);
  EXPECT_NE(first->range(), second->range());
  const uint32_t range = first->range().number;
  first.reset();
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  EXPECT_TRUE(kernel_.is_steered(second->range().number));
}

TEST_F(LinkTest, NextBrokerTakesLeasesOver) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open();
  const auto kept = lease(*link);
  auto given_back = lease(*link, 2);
  broker.reset();
  const uint32_t back = given_back->range().number;
  given_back.reset();  // while nobody is there to be told
  {
    const std::lock_guard guard(kernel_.lock);
    kernel_.steered.clear();
  }
  kernel_.survivors = true;
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  EXPECT_TRUE(comes_true([&] { return kernel_.is_steered(kept->range().number); }));
  EXPECT_FALSE(kernel_.is_steered(back));
  EXPECT_NE(lease(*link, 3)->range(), kept->range()) << "and gives new ones";
}

TEST_F(LinkTest, HeldPortIsNobodyElsesUntilItsObjectEnds) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open(), other = open();
  const auto hold = [](Link& of) { return of.hold("net_memif client 0 of /run/memif.sock"); };
  auto held = hold(*link);
  ASSERT_TRUE(std::holds_alternative<std::shared_ptr<const void>>(held));
  const auto refused = hold(*other);
  ASSERT_TRUE(std::holds_alternative<io::IoError>(refused));
  EXPECT_NE(std::get<io::IoError>(refused).text().find(concat("process ", getpid())), std::string::npos);
  broker.reset();
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  lease(*link, 3);  // for which it finds the next broker, and tells it what it holds
  const auto again = hold(*other);
  ASSERT_TRUE(std::holds_alternative<io::IoError>(again));
  EXPECT_EQ(std::get<io::IoError>(again).code, EBUSY);
  held = std::shared_ptr<const void>();
  EXPECT_TRUE(comes_true([&] { return std::holds_alternative<std::shared_ptr<const void>>(hold(*other)); }));
}

TEST_F(LinkTest, RefusesClearlyWhileNobodyIsThere) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open();
  const auto kept = lease(*link);
  broker.reset();
  const auto refused = link->lease(2, "eth", Plane::kSockets);
  ASSERT_TRUE(std::holds_alternative<io::IoError>(refused));
  EXPECT_NE(std::get<io::IoError>(refused).text().find("no broker at " + address_), std::string::npos);
}

TEST_F(LinkTest, ComesToTheNextBrokerWithoutALeaseToo) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open();
  broker.reset();
  EXPECT_TRUE(std::holds_alternative<io::IoError>(link->lease(1, "eth", Plane::kSockets)));
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  EXPECT_NE(lease(*link), nullptr);
  broker.reset();
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  EXPECT_NE(lease(*link, 2), nullptr) << "whether the watching thread was there before or not";
}

TEST_F(LinkTest, OneThatNobodyHasEndsWithItsBroker) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  auto link = open();
  broker.reset();
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  EXPECT_NE(lease(*link), nullptr) << "as long as somebody has it, it goes on";
  EXPECT_FALSE(links_have_ended());
  link.reset();
  broker.reset();
  EXPECT_TRUE(comes_true(links_have_ended));
}

// The broker lets it wait for half a second, and signals come all the time.
TEST_F(LinkTest, HandledSignalsDoNotEndALease) {
  kernel_.survivors = true;
  RunningBroker broker(kernel_, address_);
  const auto link = open();
  struct sigaction handled {
  }, before{};
  handled.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &handled, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  EXPECT_NE(lease(*link), nullptr);
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

// What a process has been handed.
struct Handed {
  std::mutex lock;
  std::vector<uint32_t> ranges, parted;
  Lease::PartFrom part() {
    return [this](std::optional<uint32_t> range) {
      const std::lock_guard guard(lock);
      parted.push_back(range.value_or(io::PeerExchange::kStrangers));
    };
  }
  Lease::TakePeer take() {
    return [this](uint32_t range, io::PeerEnd end) {
      EXPECT_TRUE(end.own && end.memory && end.bell);
      ForkGuard().close(end.bell.release());  // as a Peer does
      const std::lock_guard guard(lock);
      ranges.push_back(range);
      return true;
    };
  }
  // In whatever order.
  bool is(std::vector<uint32_t> expected) {
    const std::lock_guard guard(lock);
    std::sort(ranges.begin(), ranges.end());
    std::sort(expected.begin(), expected.end());
    return ranges == expected;
  }
};

TEST_F(LinkTest, ProcessesOfOneHostMeet) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto one = open(), other = open();
  const auto ours = lease(*one);
  auto theirs = lease(*other);
  Handed to_us, to_them;
  ours->take_peers(to_us.take(), to_us.part(), [] {});
  theirs->take_peers(to_them.take(), to_them.part(), [] {});
  ours->meet(theirs->range().number);
  EXPECT_TRUE(comes_true([&] { return to_us.is({theirs->range().number}); }));
  EXPECT_TRUE(comes_true([&] { return to_them.is({ours->range().number}); }));
  // Nobody takes them for the one that comes between.
  const auto deaf = lease(*one), late = lease(*one);
  late->take_peers(to_us.take(), to_us.part(), [] {});
  theirs->meet(deaf->range().number);
  theirs->meet(late->range().number);
  const std::vector<uint32_t> all{ours->range().number, deaf->range().number, late->range().number};
  EXPECT_TRUE(comes_true([&] { return to_them.is(all); }));
  EXPECT_TRUE(comes_true([&] { return to_us.is({theirs->range().number, theirs->range().number}); }));
  const uint32_t gone = theirs->range().number;
  theirs.reset();
  EXPECT_TRUE(comes_true([&] {
    const std::lock_guard guard(to_us.lock);
    return to_us.parted == std::vector<uint32_t>{gone, gone};
  }));
}

// The threads that ask for something find it before those that listen have seen the end of the last one, or after.
TEST_F(LinkTest, HearsTheNextBrokerWhoeverHasFoundIt) {
  std::unique_ptr<RunningBroker> broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto one = open(), other = open();
  for (int round = 0; round < 20; ++round) {
    broker.reset();
    broker = std::make_unique<RunningBroker>(kernel_, address_);
    Handed to_us, to_them;
    const auto ours = lease(*one), theirs = lease(*other);
    ours->take_peers(to_us.take(), to_us.part(), [] {});
    theirs->take_peers(to_them.take(), to_them.part(), [] {});
    ours->meet(theirs->range().number);
    ASSERT_TRUE(comes_true([&] { return to_us.is({theirs->range().number}); })) << round;
    ASSERT_TRUE(comes_true([&] { return to_them.is({ours->range().number}); })) << round;
  }
}

// Another broker tells nobody that such a range has gone.
TEST_F(LinkTest, StrangersHaveToMeetAnewWithAnotherBroker) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open();
  const auto first = lease(*link), second = lease(*link);
  Handed to_first, to_second;
  first->take_peers(to_first.take(), to_first.part(), [] {});
  second->take_peers(to_second.take(), to_second.part(), [] {});
  broker.reset();
  kernel_.survivors = true;
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  for (Handed* const to : {&to_first, &to_second}) {
    EXPECT_TRUE(comes_true([&] {
      const std::lock_guard guard(to->lock);
      return to->parted == std::vector<uint32_t>{io::PeerExchange::kStrangers};
    }));
  }
}

// It is busy, and a program does not lose its numbers by that.
TEST_F(LinkTest, LeasesThatCouldNotBeLookedAtAreClaimedAgain) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto link = open();
  const auto ours = lease(*link);
  broker.reset();
  {
    Message late = make_message(Kind::kRefused), later = make_message(Kind::kRefused);
    late.error = ETIMEDOUT;
    later.error = EAGAIN;
    const ScriptedBroker busy(address_,
                              {{make_message(Kind::kWelcome), 4}, {late}, {make_message(Kind::kWelcome), 4}, {later}});
    EXPECT_TRUE(comes_true([&] { return busy.answered() == 4; }));
  }
  kernel_.survivors = true;
  broker = std::make_unique<RunningBroker>(kernel_, address_);
  EXPECT_TRUE(comes_true([&] { return kernel_.is_steered(ours->range().number); }));
}

// --- fork() ----------------------------------------------------------------------------------------------------------

// Runs in a child that ends then. What `steps` returns; 255 if it did not end by itself.
template <class F>
int in_a_child(F&& steps) {
  const pid_t child = fork();
  if (child == 0) _exit(steps());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// Without a thread in the child: sanitizers do not know those.
TEST_F(LinkTest, AChildHasNothingOfItsParentsLinkAndMayHaveItsOwn) {
  RunningBroker broker(kernel_, address_);
  const auto link = open();
  const auto ours = lease(*link);
  const auto steps = [&] {
    if (fcntl(ours->socket_v4(), F_GETFD) >= 0 || fcntl(ours->socket_v6(), F_GETFD) >= 0) return 1;
    auto opened = Link::open(address_, nullptr);
    const auto* const own_link = std::get_if<std::shared_ptr<Link>>(&opened);
    if (own_link == nullptr) return 2;
    auto leased = (*own_link)->lease(1, "eth", Plane::kSockets);
    const auto* const own = std::get_if<std::shared_ptr<Lease>>(&leased);
    if (own == nullptr) return 3;
    return (*own)->range() == ours->range() ? 4 : 0;
  };
  EXPECT_EQ(in_a_child(steps), 0);
  EXPECT_TRUE(kernel_.is_steered(ours->range().number)) << "the child's end is nothing to its parent";
  EXPECT_NE(lease(*link, 2), nullptr);
}

// Otherwise it would keep the numbers of a program that has ended.
TEST_F(LinkTest, AChildThatOutlivesItsParentKeepsNothingOfItsLink) {
  RunningBroker broker(kernel_, address_);
  int hold[2], said[2];
  ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  UniqueFd wait(hold[0]), let_go(hold[1]), hear(said[0]), tell(said[1]);
  uint32_t range = 0;
  const pid_t parent = fork();
  if (parent == 0) {
    let_go.reset();
    const auto opened = Link::open(address_, nullptr);
    const auto leased = std::get<std::shared_ptr<Link>>(opened)->lease(1, "eth", Plane::kSockets);
    range = std::get<std::shared_ptr<Lease>>(leased)->range().number;
    char byte = 'x';
    const bool stays = fork() == 0;
    if (stays && read(wait.get(), &byte, 1) == 0) [[maybe_unused]]
      const ssize_t size = write(tell.get(), "x", 1);
    if (stays) _exit(0);
    [[maybe_unused]] const ssize_t size = write(tell.get(), &range, sizeof(range));
    for (;;) pause();
  }
  wait.reset();
  tell.reset();
  ASSERT_EQ(read(hear.get(), &range, sizeof(range)), static_cast<ssize_t>(sizeof(range)));
  EXPECT_TRUE(kernel_.is_steered(range));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return !kernel_.is_steered(range); }));
  let_go.reset();
  char byte = 0;
  EXPECT_EQ(read(hear.get(), &byte, 1), 1) << "the child was there";
}

// What came too much is closed here; what has its number then is the application's, also in children.
TEST_F(LinkTest, DescriptorsThatNobodyAskedForAreNotClosedInChildrenLater) {
  Message granted = make_message(Kind::kGranted);
  granted.range = 5;
  granted.has_v6 = 1;
  const Message refused = make_message(Kind::kRefused, "no");
  const ScriptedBroker broker(address_, {{make_message(Kind::kWelcome), 4}, {granted, 4}, {refused, 4}});
  const auto opened = Link::open(address_, nullptr);
  const auto link = std::get<std::shared_ptr<Link>>(opened);
  const auto ours = lease(*link);
  EXPECT_TRUE(std::holds_alternative<io::IoError>(link->lease(2, "eth", Plane::kSockets)));
  std::vector<UniqueFd> own(16);
  for (UniqueFd& descriptor : own) descriptor.reset(eventfd(0, EFD_CLOEXEC));
  const auto steps = [&own] {
    const auto is_open = [](const UniqueFd& fd) { return fcntl(fd.get(), F_GETFD) >= 0; };
    return std::all_of(own.begin(), own.end(), is_open) ? 0 : 1;
  };
  EXPECT_EQ(in_a_child(steps), 0);
}

// --- other versions --------------------------------------------------------------------------------------------------

TEST_F(LinkTest, SaysWhatABrokerOfAnotherVersionSays) {
  for (const uint16_t version : {0, kProtocolVersion + 1, 60000}) {
    const ScriptedBroker broker(address_, {{refusal_of_version(version)}});
    const auto opened = Link::open(address_, report_nothing);
    const auto* const error = std::get_if<io::IoError>(&opened);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, ENOTSUP);
    EXPECT_EQ(error->text(), concat("the broker (uroced, process ", getpid(), ") refuses: it speaks version ", version,
                                    " and this program version ", kProtocolVersion,
                                    ": install the same uroce for both; without broker "
                                    "(--alone) the program needs a netdev that no other process uses"));
  }
}

// --- who listens -----------------------------------------------------------------------------------------------------

// As another user, in a network namespace of its own, as nothing may listen at the host's addresses.
constexpr uid_t kStranger = 65533;
void in_a_namespace(const std::function<void()>& steps) {
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    steps();
  }).join();
}
void as_effective_user(uid_t user, const std::function<void()>& steps) {
  ASSERT_EQ(syscall(SYS_setresuid, -1, user, -1), 0);
  steps();
  ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
}

TEST_F(LinkTest, AStrangerWhoHasTakenTheNameIsNotBelieved) {
  UROCE_SKIP_UNLESS_ROOT();
  in_a_namespace([] {
    UniqueFd strangers, own;
    as_effective_user(kStranger, [&] { ASSERT_EQ(listen_at(address_of_user(0), strangers), 0); });
    for (const uid_t user : {uid_t{0}, uid_t{1}}) {
      as_effective_user(user, [] {
        UniqueFd found;
        EXPECT_EQ(find_broker("", found), ENOENT);
        EXPECT_EQ(std::get<std::shared_ptr<Link>>(Link::open("", report_nothing)), nullptr) << "as without broker";
        const auto looked = Observer::open("");
        EXPECT_EQ(std::get<io::IoError>(looked).code, ENOENT);
        EXPECT_EQ(find_broker(address_of_user(0), found), 0) << "but if told to";
      });
    }
    // It is passed over, also when it accepts nobody.
    as_effective_user(1, [&] {
      ASSERT_EQ(listen_at(address_of_user(1), own), 0);
      for (const bool full : {false, true}) {
        std::vector<UniqueFd> waiting(1);
        while (full && connect_to(address_of_user(0), waiting.back()) == 0) waiting.emplace_back();
        UniqueFd found;
        ASSERT_EQ(find_broker("", found), 0);
        EXPECT_EQ(peer_of(found.get())->uid, 1u);
      }
    });
  });
}

}  // namespace
}  // namespace uroce::broker
