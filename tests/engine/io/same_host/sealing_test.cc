// SPDX-License-Identifier: BSD-2-Clause
// Strangers whose memory is sealed before it is used.
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/bell.h"
#include "tests/engine/io/same_host/hostile.h"
#include "tests/engine/io/same_host/same_host_rig.h"

namespace uroce::io::test {
namespace {

template <class Condition>
bool comes_true(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class Strangers : public SameHostTest {
 protected:
  Strangers() {
    EXPECT_EQ(make_peers(one, other), 0);
    one.of_stranger = true;
  }
  void add_ours() { EXPECT_TRUE(ours.peers->add(kTheirs, std::move(one))); }
  bool arrives() {
    return comes_true([this] { return ours.peers->any_arrived(); });
  }
  bool exchange_packets() {
    ours.receive();
    theirs.receive();
    TestBurst burst = burst_of(1);
    ours.io->send(burst.packets());
    return comes_true([this] { return !theirs.receive().empty(); }) && sent_by_network() == 0;
  }

  PeerEnd one, other;
};

TEST_F(Strangers, TakeNothingOfTheMemoryAway) {
  add_ours();
  Hostile hostile(std::move(other));
  EXPECT_FALSE(ours.peers->any_arrived()) << "it has not been mapped";
  hostile.control().mapped = 1;
  ASSERT_TRUE(arrives());
  const int memory = hostile.end.memory.get();
  EXPECT_EQ(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(madvise(hostile.bytes, 4096, MADV_REMOVE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
  hostile.bytes[0] = 1;  // what it has mapped it can write to
}

TEST_F(Strangers, ExchangePacketsWithEachOther) {
  other.of_stranger = true;
  add_ours();
  EXPECT_TRUE(theirs.peers->add(kOurs, std::move(other)));
  ASSERT_TRUE(arrives());
  ASSERT_TRUE(comes_true([this] { return theirs.peers->any_arrived(); }));
  EXPECT_TRUE(exchange_packets());
}

// Root's process and one of a user: only one of them mistrusts the other.
TEST_F(Strangers, ExchangePacketsWithWhoTrustsThem) {
  EXPECT_TRUE(theirs.peers->add(kOurs, std::move(other)));
  add_ours();
  ASSERT_TRUE(arrives());
  EXPECT_TRUE(exchange_packets());
}

TEST_F(Strangers, AreLeftIfTheyDoNotMapTheMemory) {
  add_ours();
  EXPECT_TRUE(comes_true([this] { return bell_has_ended(other.bell.get()); }));
  EXPECT_FALSE(ours.peers->any_arrived());
}

TEST_F(Strangers, AreLeftIfTheyKeepOthersFromSealing) {
  Hostile hostile(std::move(other));
  EXPECT_EQ(fcntl(hostile.end.memory.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  add_ours();
  hostile.control().mapped = 1;
  EXPECT_TRUE(comes_true([&] { return bell_has_ended(hostile.end.bell.get()); }));
  EXPECT_FALSE(ours.peers->any_arrived());
}

TEST_F(Strangers, CannotBeMappedAnyMoreIfTheySealBefore) {
  EXPECT_EQ(fcntl(other.memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_FALSE(ours.peers->add(kTheirs, std::move(one)));
}

// The range is somebody else's then.
TEST_F(Strangers, FromWhomItPartedDoNotComeLater) {
  add_ours();
  ours.peers->part(kTheirs);
  EXPECT_TRUE(bell_has_ended(other.bell.get()));
  PeerEnd next, its;
  ASSERT_EQ(make_peers(next, its), 0);
  next.of_stranger = true;
  EXPECT_TRUE(ours.peers->add(kTheirs, std::move(next)));
  Hostile hostile(std::move(its));
  ours.receive();  // it has heard of the parting
  hostile.control().mapped = 1;
  EXPECT_TRUE(arrives());
}

// The broker that knew who had met is gone.
TEST_F(Strangers, AreLeftAtOnceAndOthersStay) {
  meet();  // one of the same user
  PeerEnd waits, its;
  ASSERT_EQ(make_peers(waits, its), 0);
  waits.of_stranger = true;
  one.of_stranger = true;
  EXPECT_TRUE(ours.peers->add(kTheirs + 1, std::move(one)));
  EXPECT_TRUE(ours.peers->add(kTheirs + 2, std::move(waits)));
  Hostile hostile(std::move(other)), is_slow(std::move(its));
  EXPECT_TRUE(exchange_packets());
  hostile.control().mapped = 1;
  ASSERT_TRUE(arrives());
  ours.receive();
  ours.peers->part_from_strangers();
  is_slow.control().mapped = 1;
  EXPECT_TRUE(bell_has_ended(is_slow.end.bell.get()));
  EXPECT_TRUE(exchange_packets());
  ours.peers->bury();
  EXPECT_TRUE(bell_has_ended(hostile.end.bell.get()));
}

TEST_F(Strangers, CountLikeOthers) {
  std::vector<PeerEnd> theirs_all;
  for (size_t i = 0; i <= PeerExchange::kMostPeers; ++i) {
    PeerEnd end;
    ASSERT_EQ(make_peers(end, theirs_all.emplace_back()), 0);
    end.of_stranger = true;
    EXPECT_EQ(ours.peers->add(static_cast<uint32_t>(100 + i), std::move(end)), i < PeerExchange::kMostPeers) << i;
  }
}

TEST_F(Strangers, EndWithTheExchange) {
  auto peers = std::make_unique<PeerExchange>();
  EXPECT_TRUE(peers->add(kTheirs, std::move(one)));
  Hostile hostile(std::move(other));
  hostile.control().mapped = 1;
  peers.reset();
  EXPECT_TRUE(comes_true([&] { return bell_has_ended(hostile.end.bell.get()); }));
}

}  // namespace
}  // namespace uroce::io::test
