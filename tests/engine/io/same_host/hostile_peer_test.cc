// SPDX-License-Identifier: BSD-2-Clause
// A process of this host that writes into the shared memory what it likes: nobody else suffers.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "base/message_socket.h"
#include "tests/engine/io/same_host/hostile.h"
#include "tests/engine/io/same_host/same_host_rig.h"
#include "tests/moved_together.h"
#include "tests/slow_socket.h"

namespace uroce::io::test {
namespace {

class HostilePeer : public SameHostTest {
 protected:
  HostilePeer() {
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    EXPECT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
  }
  // `count` records of `size` bytes.
  void write(size_t count, uint32_t size) {
    RingWriter writer = peer->writer();
    for (size_t i = 0; i < count; ++i) {
      uint8_t* const at = writer.reserve(size);
      ASSERT_NE(at, nullptr);
      std::fill_n(at, size, uint8_t{0xff});
      writer.add(size);
    }
    writer.publish();
  }
  void expect_network_goes_on() {
    TestBurst burst = burst_of(1);
    theirs.network.send(burst.packets());
    EXPECT_EQ(ours.receive_some().size(), 1u);
  }

  std::optional<Hostile> peer;
};

TEST_F(HostilePeer, RecordsThatAreNoPacketsAreCounted) {
  for (const uint32_t size : {1u, 40u, 55u}) {
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ASSERT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    const uint64_t before = ours.io->counters().rx_malformed;
    write(3, size);
    EXPECT_TRUE(ours.receive().empty());
    EXPECT_EQ(ours.io->counters().rx_malformed, before + 3);
  }
  write(1, 100'000);
  expect_network_goes_on();
}

TEST_F(HostilePeer, SpeaksForThisHostOnly) {
  TestBurst burst = burst_of(3);
  const wire::IpAddress local = burst.packets()[0].envelope->source, other = burst.packets()[0].envelope->destination;
  meet();
  theirs.receive();
  const auto arrive = [&] {
    TestBurst sent;
    for (uint32_t psn = 0; psn < 3; ++psn) add(sent, psn, 100, kOurs);
    theirs.io->send(sent.packets());
    size_t count = 0;
    for (int i = 0; i < 20; ++i) count += ours.receive().size();
    return count;
  };
  EXPECT_EQ(arrive(), 3u) << "before it is told";
  ours.io->set_local_addresses({&other, 1});
  EXPECT_EQ(arrive(), 0u);
  EXPECT_EQ(ours.io->counters().rx_malformed, 3u);
  const std::array both{other, local};
  ours.io->set_local_addresses(both);
  EXPECT_EQ(arrive(), 3u);
  ours.io->set_local_addresses({});
  EXPECT_EQ(arrive(), 0u);
}

// What a record says of its PSNs stands in front of the BTH.
TEST_F(HostilePeer, LongerThanTheLongestIsNoPacket) {
  ours.receive();
  const auto arrived = [this](uint32_t size, uint16_t more_psns) {
    RingWriter writer = peer->writer();
    uint8_t* const at = writer.reserve(size);
    std::fill_n(at, size, uint8_t{0});
    std::memcpy(at + 38, &more_psns, sizeof(more_psns));
    writer.add(size);
    writer.publish();
    const std::vector<RxPacket> packets = ours.receive();
    const size_t psns = packets.empty() ? 0 : packets[0].psns;
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    EXPECT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    ours.receive();
    return psns;
  };
  constexpr uint32_t kLongest = 40 + 48 + 65536 + 4;
  EXPECT_EQ(arrived(kLongest, 1), 2u);
  EXPECT_EQ(arrived(kLongest + 1, 1), 0u);
  EXPECT_EQ(arrived(kLongest + 1, 0xffff), 0u);
  EXPECT_EQ(arrived(kLongest, 0), 0u) << "too long for one packet";
  EXPECT_EQ(arrived(56, 0xffff), 65536u) << "the transport finds that it is too short";
  EXPECT_EQ(ours.io->counters().rx_malformed, 3u);
}

// The index says so as soon as what it said before has been received, which stays readable.
TEST_F(HostilePeer, PayloadStaysThoughTheRingBreaks) {
  RingWriter writer = peer->writer();
  uint8_t* const at = writer.reserve(4096);
  std::fill_n(at, 4096, uint8_t{0});
  writer.add(4096);
  writer.publish();
  peer->set_next_length(4096, UINT32_MAX);
  peer->words().tail += 64;
  const std::vector<RxPacket> arrived = ours.receive();
  ASSERT_EQ(arrived.size(), 1u);
  ASSERT_FALSE(arrived[0].apart.empty());
  EXPECT_EQ(arrived[0].apart.back(), 0);
  ours.receive();
  EXPECT_EQ(ours.io->counters().ring_errors, 1u);
}

TEST_F(HostilePeer, ManyOfThemDoNotKeepOthersWaiting) {
  write(1000, 20);
  expect_network_goes_on();
  EXPECT_LT(ours.io->counters().rx_malformed, 1000u);
}

TEST_F(HostilePeer, ABrokenRingEndsIt) {
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 0u);
  peer->words().tail = 1;
  EXPECT_TRUE(ours.receive().empty());
  EXPECT_EQ(ours.io->counters().ring_errors, 1u);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 1u);
  expect_network_goes_on();
}

// Of neither memory: whoever touches it would wait for that, or get a SIGBUS.
TEST_F(HostilePeer, TakesNoPagesAway) {
  constexpr size_t kSize = 4096 + kRingSize;
  const int memory = peer->end.memory.get();
  EXPECT_NE(ftruncate(memory, 0), 0);
  EXPECT_NE(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSize), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(pwrite(memory, &kSize, sizeof(kSize), 0), static_cast<ssize_t>(sizeof(kSize)));
  EXPECT_EQ(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
  void* const read_only = mmap(nullptr, kSize, PROT_READ, MAP_SHARED, memory, 0);
  ASSERT_NE(read_only, MAP_FAILED);
  EXPECT_NE(mprotect(read_only, kSize, PROT_READ | PROT_WRITE), 0);
  munmap(read_only, kSize);
  EXPECT_NE(madvise(&peer->words(), kSize, MADV_REMOVE), 0) << "its own";
  EXPECT_EQ(errno, EPERM);
}

TEST_F(HostilePeer, WakesDoNotPileUp) {
  for (int i = 0; i < 10'000; ++i) ring_bell(peer->end.bell.get());
  int looks = 0;
  for (; looks < 10'000 && ours.would_wake(); ++looks) ours.io->prepare_to_wait();
  EXPECT_LT(looks, 10'000);
  TestBurst burst = burst_of(1);
  ours.io->send(burst.packets());
  EXPECT_EQ(sent_by_network(), 0u) << "it is still a peer";
}

// The last close() of what it would send waits for a minute.
TEST_F(HostilePeer, NothingCanBeSentOverItsBell) {
  const int slow = uroce::test::slow_socket().release();  // nobody closes it
  const std::array<uint8_t, 1> byte{};
  EXPECT_EQ(send_message(peer->end.bell.get(), byte, std::array{slow}), EPIPE);
  EXPECT_EQ(send_message(peer->end.bell.get(), {}, std::array{slow}), EPIPE);
}

// Each that waits at its end costs each ring something.
class HostileStranger : public HostilePeer {
 protected:
  HostileStranger() { meet_stranger(); }
  void meet_stranger() {
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    one.of_stranger = true;
    EXPECT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
  }
  // Each packet rings.
  void send_to_sleeper(int count) {
    TestBurst burst = burst_of(1);
    const size_t before = sent_by_network();
    for (int i = 0; i < count && sent_by_network() == before; ++i) {
      peer->words().head = peer->theirs->words().tail.load();
      ++peer->words().sleeps;
      ours.io->send(burst.packets());
      ours.io->prepare_to_wait();
    }
  }
};

TEST_F(HostileStranger, IsLeftIfItsRingsCostMuch) {
  std::vector<UniqueFd> copies, sets;
  for (int i = 0; i < 100; ++i) {
    copies.emplace_back(fcntl(peer->end.bell.get(), F_DUPFD_CLOEXEC, 0));
    sets.emplace_back(epoll_create1(EPOLL_CLOEXEC));
  }
  for (const UniqueFd& set : sets) {
    for (const UniqueFd& copy : copies) ASSERT_EQ(wait_for_bell(set.get(), copy.get(), nullptr), 0);
  }
  send_to_sleeper(1000);
  EXPECT_EQ(sent_by_network(), 1u);
  ours.peers->bury();
  EXPECT_TRUE(bell_has_ended(peer->end.bell.get()));
  // It has given its range back, and has another one of the same number.
  meet_stranger();
  send_to_sleeper(2);
  EXPECT_EQ(sent_by_network(), 2u) << "it is left before it is woken";
  test_time += std::chrono::hours(1);
  meet_stranger();
  send_to_sleeper(2);
  EXPECT_EQ(sent_by_network(), 2u);
}

// To close its bell takes as long as it likes, and what the broker says is not to wait for many.
TEST_F(HostileStranger, IsBuriedAlone) {
  std::array<PeerEnd, 3> others;
  for (uint32_t i = 0; i < others.size(); ++i) {
    PeerEnd one;
    ASSERT_EQ(make_peers(one, others[i]), 0);
    one.of_stranger = true;
    ASSERT_TRUE(ours.peers->add(kTheirs + 1 + i, std::move(one)));
  }
  ours.receive();
  ours.peers->part_from_strangers();
  ours.receive();
  const auto ended = [&others] {
    return std::count_if(others.begin(), others.end(), [](const auto& end) { return bell_has_ended(end.bell.get()); });
  };
  std::ptrdiff_t burials = 1;
  for (std::ptrdiff_t before = 0; !ours.peers->bury(); before = ended(), ++burials) EXPECT_LE(ended(), before + 1);
  EXPECT_EQ(burials, std::ssize(others) + 1) << "and the one of the fixture";
  EXPECT_EQ(ended(), std::ssize(others));
}

// Whatever others do with the processor meanwhile.
TEST_F(HostileStranger, IsNotLeftIfItSleepsOften) {
  send_to_sleeper(20'000);
  EXPECT_EQ(sent_by_network(), 0u);
}

// The broker that knew who had met is gone.
TEST_F(HostileStranger, IsLeftAtOnceAndOthersStay) {
  meet();  // one of the same user, in its place
  PeerEnd one, other;
  ASSERT_EQ(make_peers(one, other), 0);
  one.of_stranger = true;
  EXPECT_TRUE(ours.peers->add(kTheirs + 1, std::move(one)));
  const auto exchange_packets = [this] {
    TestBurst burst = burst_of(1);
    ours.io->send(burst.packets());
    return theirs.receive().size() == 1 && sent_by_network() == 0;
  };
  ours.receive();
  theirs.receive();
  EXPECT_TRUE(exchange_packets());
  ours.peers->part_from_strangers();
  ours.receive();
  EXPECT_TRUE(exchange_packets());
  while (!ours.peers->bury()) continue;
  EXPECT_TRUE(bell_has_ended(other.bell.get()));
}

// While one is waited for, all others are. So it is not where it reads one record in each while that it is given.
TEST_F(HostilePeer, OneThatReadsARecordNowAndThenIsNotWaitedFor) {
  TestBurst burst = burst_of(1, 4096);
  const auto send = [&] { return ours.io->send(burst.packets()) == 1; };
  while (send()) continue;
  const uint64_t full = peer->theirs->words().tail;
  for (int i = 1; i <= 100; ++i) {
    test_time += std::chrono::milliseconds(5);
    peer->words().head = static_cast<uint64_t>(i) * (full / 124);
    while (send() && ours.io->counters().tx_unread == 0) continue;
    if (ours.io->counters().tx_unread > 0) {
      EXPECT_LE(i, 4);
      return;
    }
  }
  FAIL() << "it is waited for after " << 500 << " ms";
}

TEST_F(HostilePeer, ScribblesAnywhere) {
  std::mt19937 random(1);
  TestBurst burst = burst_of(8, 1024);
  for (int round = 0; round < 300; ++round) {
    write(20, 40 + random() % 200);
    auto* const bytes = reinterpret_cast<uint8_t*>(&peer->words());
    for (int i = 0; i < 20; ++i) {
      const size_t all = 4096 + kRingSize;
      const size_t place = random() % 2 == 0 ? random() % sizeof(PeerWords) : random() % all;
      const uint64_t value = random() % 4 == 0 ? random() % (2 * kRingSize) : uint64_t{random()} << 32 | random();
      std::memcpy(bytes + std::min(place, all - sizeof(value)), &value, sizeof(value));
      ours.receive();
      ours.io->send(burst.packets());
    }
    PeerEnd one, other;
    ASSERT_EQ(make_peers(one, other), 0);
    ours.peers->bury();
    ASSERT_TRUE(ours.peers->add(kTheirs, std::move(one)));
    peer.emplace(std::move(other));
    theirs.receive(theirs.network);
  }
  while (!theirs.receive(theirs.network).empty()) continue;
  expect_network_goes_on();
}

// The writer has kept what the reader would wait for.
TEST_F(HostilePeer, MemoryThatIsNotSealedIsNotTaken) {
  const auto is_taken = [this](int more_seals) {
    PeerEnd one, other;
    EXPECT_EQ(make_peers(one, other), 0);
    EXPECT_EQ(PeerMemory::make(one.memory), 0);
    EXPECT_EQ(fcntl(one.memory.get(), F_ADD_SEALS, more_seals), 0);
    return ours.peers->add(kTheirs + 1, std::move(one));
  };
  EXPECT_FALSE(is_taken(0));
  EXPECT_FALSE(is_taken(F_SEAL_SEAL));
  EXPECT_TRUE(is_taken(F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
}

TEST_F(HostilePeer, WhoHasNotPreparedForItGetsNoPeer) {
  PeerEnd one, other;
  EXPECT_EQ(make_peers(one, other), 0);
  one.own.reset();
  EXPECT_FALSE(ours.peers->add(kTheirs + 1, std::move(one)));
  EXPECT_FALSE(bell_has_ended(other.bell.get())) << "who holds a lock does not close it";
  one = {};
  EXPECT_TRUE(bell_has_ended(other.bell.get()));
}

// While that is done, who touches them waits.
TEST_F(HostilePeer, NobodyMovesThePagesOfAStranger) {
  if (!uroce::test::MovedTogether::possible()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE for files in memory";
  const uroce::test::MovedTogether pages;
  UniqueFd memory;
  ASSERT_EQ(PeerMemory::make(memory), 0);
  auto written = PeerMemory::for_writing(memory.get(), true);
  ASSERT_TRUE(written);
  EXPECT_FALSE(pages.are(memory.get()));
  auto read = PeerMemory::for_reading(memory.get(), true);
  ASSERT_TRUE(read);
  written.reset();
  EXPECT_FALSE(pages.are(memory.get()));
  read.reset();
  EXPECT_TRUE(pages.are(memory.get()));
}

// What a broker never passes on.
TEST_F(HostilePeer, OtherMemoryIsNotTaken) {
  const auto memory = [](off_t size, int seals) {
    const int fd = memfd_create("other", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, size), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return UniqueFd(fd);
  };
  const auto may_be_read = [](const UniqueFd& fd) { return PeerMemory::for_reading(fd.get()) != nullptr; };
  const auto may_be_written = [](const UniqueFd& fd) { return PeerMemory::for_writing(fd.get()) != nullptr; };
  constexpr off_t kSize = 4096 + kRingSize;
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW, kAll = kSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  EXPECT_TRUE(may_be_read(memory(kSize, kAll)));
  EXPECT_EQ(PeerMemory::for_reading(memory(kSize, kAll).get(), true), nullptr) << "its reader would make the pages";
  EXPECT_FALSE(may_be_read(memory(kSize, kAll & ~F_SEAL_SHRINK))) << "it could shrink";
  EXPECT_FALSE(may_be_read(memory(kSize - 4096, kAll)));
  EXPECT_TRUE(may_be_written(memory(kSize, kSeals)));
  EXPECT_FALSE(may_be_written(memory(kSize, F_SEAL_GROW)));
  EXPECT_FALSE(may_be_written(memory(kSize - 4096, kSeals)));
  EXPECT_FALSE(may_be_written(memory(kSize, kSeals | F_SEAL_SEAL))) << "it cannot be sealed";
  EXPECT_FALSE(may_be_written(memory(kSize, kAll)));
  const UniqueFd device(open("/dev/null", O_RDWR | O_CLOEXEC)), none;
  for (const UniqueFd* const other : {&device, &none}) {
    EXPECT_FALSE(may_be_read(*other));
    EXPECT_FALSE(may_be_written(*other));
  }
}

}  // namespace
}  // namespace uroce::io::test
