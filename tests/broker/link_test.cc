// A client's connection to its broker, over the broker's death.
#include "broker/link.h"

#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/time.h>
#include <vector>

#include "tests/broker/broker_rig.h"

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
  std::vector<uint32_t> ranges;
  Lease::TakePeer take() {
    return [this](uint32_t range, io::PeerEnd end) {
      EXPECT_TRUE(end.memory && end.socket);
      const std::lock_guard guard(lock);
      ranges.push_back(range);
    };
  }
  bool is(const std::vector<uint32_t>& expected) {
    const std::lock_guard guard(lock);
    return ranges == expected;
  }
};

TEST_F(LinkTest, ProcessesOfOneHostMeet) {
  auto broker = std::make_unique<RunningBroker>(kernel_, address_);
  const auto one = open(), other = open();
  const auto ours = lease(*one), theirs = lease(*other);
  Handed to_us, to_them;
  ours->take_peers(to_us.take());
  theirs->take_peers(to_them.take());
  ours->meet(theirs->range().number);
  EXPECT_TRUE(comes_true([&] { return to_us.is({theirs->range().number}); }));
  EXPECT_TRUE(comes_true([&] { return to_them.is({ours->range().number}); }));
  // Nobody takes them for the one that comes between.
  const auto deaf = lease(*one), late = lease(*one);
  late->take_peers(to_us.take());
  theirs->meet(deaf->range().number);
  theirs->meet(late->range().number);
  const std::vector<uint32_t> all{ours->range().number, deaf->range().number, late->range().number};
  EXPECT_TRUE(comes_true([&] { return to_them.is(all); }));
  EXPECT_TRUE(comes_true([&] { return to_us.is({theirs->range().number, theirs->range().number}); }));
}

}  // namespace
}  // namespace uroce::broker
