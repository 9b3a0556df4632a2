// SPDX-License-Identifier: BSD-2-Clause
// ARP and neighbour discovery between ports that are joined by the test, and frames of peers that mean no good.
#include "engine/net/resolution.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "wire/bytes.h"

namespace uroce::net {
namespace {

using wire::IpAddress;
using wire::MacAddress;
using Frame = std::vector<uint8_t>;
using std::chrono::seconds;

constexpr Time kStart{seconds(1000)};
constexpr MacAddress kMacA = {2, 0, 0, 0, 0, 1}, kMacB = {2, 0, 0, 0, 0, 2}, kMacC = {2, 0, 0, 0, 0, 3};

IpAddress v4(uint8_t last) {
  const uint8_t bytes[4] = {192, 0, 2, last};
  return IpAddress::v4(bytes);
}
IpAddress v6(uint8_t last) {
  const uint8_t bytes[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  return IpAddress::v6(bytes);
}

std::vector<Frame> frames_of(Resolution& from) {
  std::vector<Frame> frames;
  Frame frame(Resolution::kLongestFrame);
  while (const size_t size = from.next_frame(frame))
    frames.emplace_back(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
  EXPECT_FALSE(from.has_frames());
  return frames;
}

struct ResolutionTest : testing::Test {
  Resolution a{kMacA, {v4(1), v6(1)}}, b{kMacB, {v4(2), v6(2)}};

  // Whatever waits goes to the other one, there and back.
  void exchange(Time now) {
    for (const Frame& frame : frames_of(a)) b.take(frame, now);
    for (const Frame& frame : frames_of(b)) a.take(frame, now);
  }
  void exchange_wants(Time now) {
    for (const IpAddress& address : {v4(2), v6(2)}) {
      a.want(address, now);
      exchange(now);
    }
  }
  // The frame with which `b` answers a request of `a`.
  Frame answer_to(const IpAddress& address, Time now) {
    a.want(address, now);
    const std::vector<Frame> requests = frames_of(a);
    EXPECT_EQ(requests.size(), 1u);
    b.take(requests.at(0), now);
    const std::vector<Frame> answers = frames_of(b);
    EXPECT_EQ(answers.size(), 1u);
    return answers.at(0);
  }
};

TEST_F(ResolutionTest, NeighboursAreFoundAndConfirmed) {
  for (const IpAddress& address : {v4(2), v6(2)}) {
    SCOPED_TRACE(address.text());
    EXPECT_EQ(a.neighbour(address).state, NeighbourState::kUnknown);
    a.want(address, kStart);
    EXPECT_EQ(a.neighbour(address).state, NeighbourState::kResolving);
    exchange(kStart);
    EXPECT_EQ(a.neighbour(address), (Neighbour{NeighbourState::kUsable, kMacB}));
    EXPECT_TRUE(std::ranges::count(a.take_changed(), address));
  }
  // Unused they are not asked about.
  const Time later = kStart + seconds(31);
  EXPECT_TRUE(a.on_time(later));
  EXPECT_EQ(a.neighbour(v4(2)), (Neighbour{NeighbourState::kStale, kMacB}));
  EXPECT_FALSE(a.has_frames());
  EXPECT_EQ(a.due(), kNever);
  // Used they are, at their own MAC address.
  for (const IpAddress& address : {v4(2), v6(2)}) {
    a.want(address, later);
    const std::vector<Frame> requests = frames_of(a);
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_TRUE(std::equal(kMacB.begin(), kMacB.end(), requests[0].begin()));
    b.take(requests[0], later);
    exchange(later);
    EXPECT_EQ(a.neighbour(address).state, NeighbourState::kUsable) << address.text();
  }
}

TEST_F(ResolutionTest, WhoDoesNotAnswerIsAskedThreeTimes) {
  for (const IpAddress& address : {v4(9), v6(9)}) {
    Resolution asker{kMacA, {v4(1), v6(1)}};
    Time now = kStart;
    asker.want(address, now);
    size_t asked = frames_of(asker).size();
    while (asker.due() != kNever) {
      now = asker.due();
      asker.on_time(now);
      asked += frames_of(asker).size();
    }
    EXPECT_EQ(asked, 3u);
    EXPECT_EQ(now, kStart + seconds(3));
    EXPECT_EQ(asker.neighbour(address).state, NeighbourState::kFailed);
    // And again when there are packets, as often as these come once a second.
    for (int i = 0; i < 10; ++i) asker.want(address, now + std::chrono::milliseconds(100 * i));
    EXPECT_EQ(frames_of(asker).size(), 1u);
  }
}

TEST_F(ResolutionTest, AnswersOnlyForItsOwnAddresses) {
  a.want(v4(3), kStart);
  a.want(v6(3), kStart);
  for (const Frame& frame : frames_of(a)) b.take(frame, kStart);
  EXPECT_FALSE(b.has_frames());
}

// Who asks whether anybody has its address already gets an answer to all.
TEST_F(ResolutionTest, AnswersDuplicateAddressDetection) {
  a.want(v6(2), kStart);
  Frame probe = frames_of(a).at(0);
  std::fill_n(probe.begin() + 14 + 8, 16, uint8_t{0});  // from nobody
  wire::store_be16(probe.data() + 14 + 4, 24);          // without its option
  wire::store_be16(probe.data() + 14 + 40 + 2, 0);
  uint32_t sum = 24 + 58;
  for (size_t i = 14 + 8; i < 14 + 40 + 24; i += 2) sum += wire::load_be16(probe.data() + i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  wire::store_be16(probe.data() + 14 + 40 + 2, static_cast<uint16_t>(~sum));
  b.take(probe, kStart);
  const std::vector<Frame> answers = frames_of(b);
  ASSERT_EQ(answers.size(), 1u);
  const MacAddress all_nodes = {0x33, 0x33, 0, 0, 0, 1};
  EXPECT_TRUE(std::equal(all_nodes.begin(), all_nodes.end(), answers[0].begin()));
}

TEST_F(ResolutionTest, NobodyIsRememberedWhoIsNotWanted) {
  for (const IpAddress& address : {v4(2), v6(2)}) {
    const Frame answer = answer_to(address, kStart);
    Resolution other{kMacA, {v4(1), v6(1)}};
    EXPECT_FALSE(other.take(answer, kStart));
    EXPECT_EQ(other.neighbour(address), Neighbour{});
  }
}

TEST_F(ResolutionTest, AnAnnouncementMovesAnAddress) {
  a.take(answer_to(v4(2), kStart), kStart);
  Resolution moved{kMacC, {v4(2)}};
  moved.want(v4(2), kStart);  // an announcement asks for the sender's own address
  EXPECT_TRUE(a.take(frames_of(moved).at(0), kStart));
  EXPECT_EQ(a.neighbour(v4(2)), (Neighbour{NeighbourState::kStale, kMacC}));
}

// A port that has come to another place, or another one that has its addresses now.
TEST_F(ResolutionTest, AnnouncesItsAddressesThreeTimes) {
  exchange_wants(kStart);
  Resolution moved{kMacC, {v4(2), v6(2)}};
  Time now = kStart;
  moved.announce(now);
  std::vector<Time> times;
  for (; moved.has_frames(); now = moved.due(), moved.on_time(now)) {
    const std::vector<Frame> frames = frames_of(moved);
    ASSERT_EQ(frames.size(), 2u);
    times.push_back(now);
    for (const Frame& frame : frames) {
      EXPECT_EQ(frame[0] & 1, 1) << "to all";
      a.take(frame, now);
    }
    for (const IpAddress& address : {v4(2), v6(2)}) {
      EXPECT_EQ(a.neighbour(address), (Neighbour{NeighbourState::kStale, kMacC})) << address.text();
    }
    if (moved.due() == kNever) break;
  }
  EXPECT_EQ(times, (std::vector<Time>{kStart, kStart + seconds(1), kStart + seconds(2)}));
  EXPECT_FALSE(a.has_frames()) << "nobody answers an announcement";
}

TEST_F(ResolutionTest, ItsOwnAddressesAreNobodyElses) {
  Resolution thief{kMacC, {v4(1), v6(1)}};
  for (const IpAddress& address : {v4(2), v6(2)}) {
    thief.want(address, kStart);
    for (const Frame& frame : frames_of(thief)) EXPECT_FALSE(a.take(frame, kStart));
  }
  Frame answer = answer_to(v4(2), kStart);
  std::copy(kMacA.begin(), kMacA.end(), answer.begin() + 14 + 8);
  EXPECT_FALSE(a.take(answer, kStart)) << "a neighbour with this port's MAC address";
  answer[14 + 8] = 0xff;
  EXPECT_FALSE(a.take(answer, kStart)) << "a neighbour that is a group";
}

TEST_F(ResolutionTest, DiscoveryFromBeyondARouterOrDamagedIsIgnored) {
  const Frame answer = answer_to(v6(2), kStart);
  for (const size_t at : {size_t{14 + 7}, size_t{14 + 40 + 1}, size_t{14 + 40 + 2}, size_t{14 + 40 + 10}}) {
    Frame damaged = answer;
    damaged[at] ^= 1;
    EXPECT_FALSE(a.take(damaged, kStart)) << at;
  }
  EXPECT_TRUE(a.take(answer, kStart));
}

// Whatever the lengths in it say: the sanitizers see what is read.
TEST_F(ResolutionTest, CutChangedAndRandomFramesDoNoHarm) {
  std::mt19937 random(1);
  for (const IpAddress& address : {v4(2), v6(2)}) {
    const Frame answer = answer_to(address, kStart);
    Resolution other{kMacC, {v4(3), v6(3)}};
    other.want(address, kStart);
    for (const Frame& whole : {answer, frames_of(other).at(0)}) {
      for (size_t size = 0; size <= whole.size(); ++size) {
        const Frame cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
        b.take(cut, kStart);
        a.take(cut, kStart);
      }
      for (int i = 0; i < 20000; ++i) {
        Frame changed = whole;
        for (int n = 0; n < 3; ++n) changed[random() % changed.size()] = static_cast<uint8_t>(random());
        b.take(changed, kStart);
        a.take(changed, kStart);
      }
    }
    frames_of(a);
    frames_of(b);
  }
}

TEST_F(ResolutionTest, WhatItKeepsIsBounded) {
  for (size_t i = 0; i < 3 * Resolution::kMostNeighbours; ++i) {
    const uint8_t bytes[4] = {10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
    a.want(IpAddress::v4(bytes), kStart + std::chrono::milliseconds(i));
  }
  EXPECT_EQ(frames_of(a).size(), Resolution::kMostFrames);
  const uint8_t first[4] = {10, 0, 0, 0}, last[4] = {10, 0, 0x0b, 0xff};
  EXPECT_EQ(a.neighbour(IpAddress::v4(first)), Neighbour{});
  EXPECT_EQ(a.neighbour(IpAddress::v4(last)).state, NeighbourState::kResolving);
}

TEST_F(ResolutionTest, WithoutAnAddressOfTheVersionNothingIsAsked) {
  Resolution only_v4{kMacC, {v4(3)}};
  only_v4.want(v6(1), kStart);
  EXPECT_FALSE(only_v4.has_frames());
}

}  // namespace
}  // namespace uroce::net
