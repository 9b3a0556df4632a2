// SPDX-License-Identifier: BSD-2-Clause
// Which way packets leave, and that both ways are looked into. The two ways are links in memory, and a stub where a
// link has nothing to sleep on.
#include "engine/io/frames_and_sockets.h"

#include <array>
#include <gtest/gtest.h>
#include <utility>

#include "engine/io/memory_link.h"
#include "engine/io/replaceable_io.h"
#include "tests/engine/io/exchange.h"
#include "tests/engine/io/stub_io.h"
#include "tests/engine/io/test_packet.h"

namespace uroce::io::test {
namespace {

wire::Envelope to_own_address() {
  wire::Envelope envelope = envelope_v4();
  envelope.destination = envelope.source;
  envelope.destination_mac = envelope.source_mac;
  return envelope;
}

wire::Envelope to_group() {
  wire::Envelope envelope = envelope_v4();
  envelope.destination = ipv4(239, 1, 2, 3);
  envelope.destination_mac = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
  return envelope;
}

Time clock_time;

// Who asks again finds that the sockets' pause is over.
Time clock_past_the_pause() {
  return clock_time += QuietTurns::kPause;
}

struct Two {
  using Copies = FramesAndSockets::Copies;
  explicit Two(uint32_t capacity = 1024, Copies copies = Copies::kNone) {
    auto frames = make_memory_link({.queue_capacity = capacity}),
         sockets = make_memory_link({.queue_capacity = capacity});
    wire = std::move(frames.second);
    kernel = std::move(sockets.second);
    io = std::make_unique<FramesAndSockets>(std::move(frames.first), std::move(sockets.first), copies,
                                            clock_past_the_pause);
  }
  std::unique_ptr<MemoryEnd> wire, kernel;  // the other ends
  std::unique_ptr<FramesAndSockets> io;
};

size_t take_all(PacketIo& io) {
  std::array<RxPacket, 32> packets;
  size_t count = 0, idle = 0;
  while (idle < 32) {
    const size_t came = io.receive(packets);
    count += came;
    idle = came > 0 ? 0 : idle + 1;
  }
  return count;
}

TEST(FramesAndSockets, OwnAddressesAndGroupsGoThroughSockets) {
  Two two;
  TestBurst burst;
  for (uint32_t psn = 0; psn < 3; ++psn) {
    burst.add(envelope_v4(), psn, 100);
    burst.add(to_own_address(), psn, 100);
    burst.add(to_group(), psn, 100);
    burst.add(envelope_v6(), psn, 100);
  }
  EXPECT_EQ(two.io->send(burst.packets()), 12u);
  EXPECT_EQ(take_all(*two.wire), 6u);
  EXPECT_EQ(take_all(*two.kernel), 6u);
  EXPECT_EQ(two.io->counters().tx_packets, 12u);
}

// What is behind a packet for which there is no room waits, wherever it goes.
TEST(FramesAndSockets, StopsWhereThereIsNoRoom) {
  Two two(4);
  TestBurst burst;
  for (uint32_t psn = 0; psn < 6; ++psn) burst.add(to_own_address(), psn, 100);
  burst.add(envelope_v4(), 6, 100);
  EXPECT_EQ(two.io->send(burst.packets()), 4u);
  EXPECT_EQ(take_all(*two.wire), 0u);
  EXPECT_EQ(take_all(*two.kernel), 4u);
  EXPECT_EQ(two.io->send(burst.packets().subspan(4)), 3u);
  EXPECT_EQ(take_all(*two.wire), 1u);
}

TEST(FramesAndSockets, BothArrive) {
  Two two;
  TestBurst burst;
  for (uint32_t psn = 0; psn < 100; ++psn) burst.add(envelope_v4(), psn, 100);
  EXPECT_EQ(two.wire->send(burst.packets()), 100u);
  EXPECT_EQ(two.kernel->send(burst.packets()), 100u);
  EXPECT_EQ(take_all(*two.io), 200u);
  exchange(*two.wire, *two.io, burst);
  exchange(*two.kernel, *two.io, burst);
}

// The kernel sees what comes as frames and gives it to sockets again; what this host sends comes only there.
TEST(FramesAndSockets, CopiesAreDroppedAndNotCounted) {
  Two two(1024, Two::Copies::kOfAll);
  TestBurst remote, own;
  for (uint32_t psn = 0; psn < 50; ++psn) {
    remote.add(envelope_v4(), psn, 100);
    own.add(envelope_v6(), psn, 100);
  }
  const wire::IpAddress local = envelope_v6().source;
  two.io->set_local_addresses({&local, 1});
  EXPECT_EQ(two.wire->send(remote.packets()), 50u);
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(two.kernel->send(remote.packets().subspan(i, 1)), 1u);
    EXPECT_EQ(two.kernel->send(own.packets().subspan(i, 1)), 1u);
  }
  EXPECT_EQ(take_all(*two.io), 100u);
  EXPECT_EQ(two.io->counters().rx_packets, 100u);
  exchange(*two.wire, *two.io, remote);
  exchange(*two.kernel, *two.io, own);
}

// What this host sends to itself comes through sockets. From the wire that is forged.
TEST(FramesAndSockets, FramesFromOwnAddressesAreDroppedAndCounted) {
  Two two;
  const std::array<wire::IpAddress, 2> local = {envelope_v6().source, ipv4(198, 51, 100, 1)};
  two.io->set_local_addresses(local);
  TestBurst mixed, remote, own;
  for (uint32_t psn = 0; psn < 50; ++psn) {
    wire::Envelope second = envelope_v4();
    second.source = local[1];
    mixed.add(envelope_v4(), psn, 100);
    remote.add(envelope_v4(), psn, 100);
    for (const wire::Envelope& forged : {envelope_v6(), second}) {
      mixed.add(forged, psn, 100);
      own.add(forged, psn, 100);
    }
  }
  ASSERT_EQ(two.wire->send(mixed.packets()), 150u);
  uint32_t next = 0;
  std::array<RxPacket, 32> packets;
  for (int look = 0; look < 20; ++look) {
    const size_t count = two.io->receive(packets);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(packets[i].envelope.source, envelope_v4().source);
      EXPECT_EQ(psn_of(packets[i]), next++);
    }
  }
  EXPECT_EQ(next, 50u);
  EXPECT_EQ(two.io->counters().rx_forged, 100u);
  exchange(*two.kernel, *two.io, own);
  two.io->set_local_addresses({});
  exchange(*two.wire, *two.io, own);
  EXPECT_EQ(two.io->counters().rx_forged, 100u);
}

// Whatever comes by one way does not keep the other one waiting.
TEST(FramesAndSockets, NeitherStarvesTheOther) {
  for (const bool flood_of_frames : {true, false}) {
    Two two;
    MemoryEnd& flood = flood_of_frames ? *two.wire : *two.kernel;
    MemoryEnd& other = flood_of_frames ? *two.kernel : *two.wire;
    TestBurst many, one;
    for (uint32_t psn = 0; psn < 32; ++psn) many.add(envelope_v4(), psn, 100);
    one.add(envelope_v4(), 1000, 100);
    std::array<RxPacket, 32> packets;
    EXPECT_EQ(two.io->receive(packets), 0u);  // the first look is the turn of the sockets
    EXPECT_EQ(other.send(one.packets()), 1u);
    bool seen = false;
    for (int look = 0; look < 32 && !seen; ++look) {
      flood.send(many.packets());
      seen = two.io->receive(packets) == 1 && psn_of(packets[0]) == 1000;
    }
    EXPECT_TRUE(seen) << flood_of_frames;
  }
}

// A spinning program looks into rings as often as it can, and not into sockets, which is a system call.
TEST(FramesAndSockets, SocketsAreLeftAloneForAWhile) {
  auto frames = make_memory_link(), sockets = make_memory_link();
  FramesAndSockets io(std::move(frames.first), std::move(sockets.first), FramesAndSockets::Copies::kNone,
                      [] { return clock_time; });
  TestBurst one;
  one.add(envelope_v4(), 1, 100);
  std::array<RxPacket, 4> packets;
  EXPECT_EQ(frames.second->send(one.packets()), 1u);
  EXPECT_EQ(io.receive(packets), 1u);  // the last packets came as frames
  EXPECT_EQ(sockets.second->send(one.packets()), 1u);
  clock_time += QuietTurns::kPause - Duration(1);
  for (int look = 0; look < 1000; ++look) EXPECT_EQ(io.receive(packets), 0u);
  clock_time += Duration(1);
  size_t looks = 1;
  while (looks < 1000 && io.receive(packets) == 0) ++looks;
  EXPECT_LE(looks, QuietTurns::kLooks);
  // Something has come by them a moment ago: no pause.
  EXPECT_EQ(frames.second->send(one.packets()), 1u);
  EXPECT_EQ(io.receive(packets), 1u);
  EXPECT_EQ(sockets.second->send(one.packets()), 1u);
  for (looks = 1; looks < 1000 && io.receive(packets) == 0;) ++looks;
  EXPECT_LE(looks, QuietTurns::kLooks);
}

// Copies of frames come by them all the time, and are worth no system calls.
TEST(FramesAndSockets, CopiesDoNotMakeSocketsBusy) {
  auto frames = make_memory_link(), sockets = make_memory_link();
  const MemoryEnd& looked_into = *sockets.first;
  FramesAndSockets io(std::move(frames.first), std::move(sockets.first), FramesAndSockets::Copies::kOfAll,
                      [] { return clock_time; });
  TestBurst one;
  one.add(envelope_v4(), 1, 100);
  std::array<RxPacket, 4> packets;
  EXPECT_EQ(sockets.second->send(one.packets()), 1u);
  EXPECT_EQ(io.receive(packets), 0u);  // the turn of the sockets
  EXPECT_EQ(looked_into.counters().rx_packets, 1u);
  EXPECT_EQ(sockets.second->send(one.packets()), 1u);
  for (int look = 0; look < 1000; ++look) EXPECT_EQ(io.receive(packets), 0u);
  EXPECT_EQ(looked_into.counters().rx_packets, 1u);
  clock_time += QuietTurns::kPause;
  for (uint32_t look = 0; look < QuietTurns::kLooks; ++look) EXPECT_EQ(io.receive(packets), 0u);
  EXPECT_EQ(looked_into.counters().rx_packets, 2u);
  EXPECT_EQ(io.counters().rx_packets, 0u);
}

TEST(FramesAndSockets, LooksIntoBothAfterASleep) {
  Two two;
  TestBurst one;
  one.add(envelope_v4(), 1, 100);
  std::array<RxPacket, 4> packets;
  EXPECT_EQ(two.io->receive(packets), 0u);  // the next look would be into the frames only
  EXPECT_TRUE(two.io->prepare_to_wait());
  for (const auto& end : {two.kernel.get(), two.wire.get()}) {
    EXPECT_EQ(end->send(one.packets()), 1u);
    EXPECT_FALSE(two.io->prepare_to_wait());
    EXPECT_EQ(two.io->receive(packets), 1u);
  }
}

// Whoever finds nothing then knows that nothing has come, by neither way; and no call takes long.
TEST(FramesAndSockets, LooksIntoBothWhereAsked) {
  for (const auto copies : {Two::Copies::kNone, Two::Copies::kOfAll, Two::Copies::kDropped}) {
    Two two(1024, copies);
    const wire::IpAddress local = envelope_v6().source;
    two.io->set_local_addresses({&local, 1});
    TestBurst of_others, own;
    for (uint32_t psn = 0; psn < 200; ++psn) of_others.add(envelope_v4(), psn, 100);
    own.add(envelope_v6(), 1000, 100);
    std::array<RxPacket, 4> packets;
    EXPECT_EQ(two.io->receive(packets), 0u);  // the next look would be into the frames only
    const size_t in_front = copies == Two::Copies::kNone ? 0 : 200;
    EXPECT_EQ(two.kernel->send(of_others.packets().first(in_front)), in_front);
    EXPECT_EQ(two.kernel->send(own.packets()), 1u);
    EXPECT_EQ(two.io->receive(packets), 0u);
    two.io->look_everywhere();
    for (size_t look = 0; look < in_front / packets.size(); ++look) {
      EXPECT_EQ(two.io->receive(packets), 0u);
      EXPECT_FALSE(two.io->looked_everywhere());
    }
    ASSERT_EQ(two.io->receive(packets), 1u);
    EXPECT_EQ(psn_of(packets[0]), 1000u);
    EXPECT_FALSE(two.io->looked_everywhere());
    EXPECT_EQ(two.io->receive(packets), 0u);
    EXPECT_TRUE(two.io->looked_everywhere());
  }
}

// While the frames' packet I/O is being replaced, nothing has to be lost; then frames are used again.
TEST(FramesAndSockets, AllGoesThroughSocketsWhileThereAreNoFrames) {
  auto first = make_memory_link(), second = make_memory_link(), sockets = make_memory_link();
  auto replaceable = std::make_unique<ReplaceableIo>(std::move(first.first));
  ReplaceableIo* const frames = replaceable.get();
  FramesAndSockets io(std::move(replaceable), std::move(sockets.first));
  TestBurst burst;
  for (uint32_t psn = 0; psn < 20; ++psn) burst.add(envelope_v4(), psn, 100);
  exchange(io, *first.second, burst);
  frames->take();
  exchange(io, *sockets.second, burst);
  exchange(*sockets.second, io, burst);
  frames->put(std::move(second.first));
  exchange(io, *second.second, burst);
  exchange(*second.second, io, burst);
  EXPECT_EQ(io.counters().tx_packets, 60u);
  EXPECT_EQ(io.counters().tx_errors, 0u);
}

TEST(FramesAndSockets, AsksAndAnswersForBoth) {
  auto frames = std::make_unique<StubIo>(3, 2000), sockets = std::make_unique<StubIo>(4, 1000);
  StubIo* const stubs[] = {frames.get(), sockets.get()};
  FramesAndSockets io(std::move(frames), std::move(sockets));
  EXPECT_EQ(io.max_udp_length(), 1000u);
  std::span<const pollfd> descriptors = io.wait_descriptors();
  ASSERT_EQ(descriptors.size(), 2u);
  EXPECT_EQ(descriptors[0].fd, 3);
  EXPECT_EQ(descriptors[1].fd, 4);
  TestBurst burst;
  burst.add(to_own_address(), 1, 100);
  EXPECT_EQ(io.send(burst.packets()), 0u);
  descriptors = io.wait_descriptors();
  ASSERT_EQ(descriptors.size(), 2u);
  EXPECT_EQ(descriptors[0].events, POLLIN);
  EXPECT_EQ(descriptors[1].events, POLLIN | POLLOUT) << "who lacks room says when there is some";
  for (StubIo* const stub : stubs) {
    EXPECT_TRUE(io.flush() && io.prepare_to_wait() && !io.left_over());
    stub->clear = false;
    EXPECT_FALSE(io.flush() || io.prepare_to_wait() || !io.left_over());
    stub->clear = true;
  }
}

// What brings nothing may have more behind, and says so.
TEST(FramesAndSockets, LooksUntilBothHaveLookedEverywhere) {
  auto frames = std::make_unique<StubIo>(3, 2000), sockets = std::make_unique<StubIo>(4, 1000);
  StubIo* const stubs[] = {frames.get(), sockets.get()};
  FramesAndSockets io(std::move(frames), std::move(sockets), FramesAndSockets::Copies::kNone,
                      [] { return clock_time; });
  for (StubIo* const stub : stubs) {
    io.look_everywhere();
    stub->clear = false;
    for (size_t look = 1; look <= 100; ++look) {
      const size_t before = stub->looks;
      EXPECT_EQ(io.receive({}), 0u);
      EXPECT_EQ(stub->looks, before + 1);
      EXPECT_FALSE(io.looked_everywhere());
    }
    stub->clear = true;
    EXPECT_EQ(io.receive({}), 0u);
    EXPECT_TRUE(io.looked_everywhere());
  }
}

// Where sockets get copies of all frames, what they lose has mostly come as frames; else nothing has it.
TEST(FramesAndSockets, LossInSocketsIsCountedUnlessTheyGetAllCopies) {
  using Copies = FramesAndSockets::Copies;
  for (const auto& [copies, lost] : {std::pair(Copies::kNone, 7u), {Copies::kOfAll, 2u}, {Copies::kDropped, 7u}}) {
    auto frames = std::make_unique<StubIo>(3, 2000), sockets = std::make_unique<StubIo>(4, 1000);
    frames->counted.rx_no_buffer = 2;
    sockets->counted.rx_no_buffer = 5;
    EXPECT_EQ(FramesAndSockets(std::move(frames), std::move(sockets), copies).counters().rx_no_buffer, lost);
  }
}

TEST(FramesAndSockets, SaysWhetherSocketsGetCopies) {
  using Copies = FramesAndSockets::Copies;
  const auto described = [](Copies copies) {
    return FramesAndSockets(std::make_unique<StubIo>(3, 2000), std::make_unique<StubIo>(4, 1000), copies).description();
  };
  EXPECT_EQ(described(Copies::kNone), "stub, and sockets");
  EXPECT_EQ(described(Copies::kOfAll), "stub, and sockets with copies of all");
  EXPECT_EQ(described(Copies::kDropped), "stub, and sockets");
}

TEST(FramesAndSockets, WaitsForTheOneThatIsThere) {
  auto replaceable = std::make_unique<ReplaceableIo>(std::make_unique<StubIo>(3, 2000));
  ReplaceableIo* const frames = replaceable.get();
  FramesAndSockets io(std::move(replaceable), std::make_unique<StubIo>(4, 1000));
  const auto waits_for = [&] {
    std::vector<int> all;
    for (const pollfd& descriptor : io.wait_descriptors()) all.push_back(descriptor.fd);
    return all;
  };
  EXPECT_EQ(waits_for(), (std::vector<int>{3, 4}));
  frames->take();
  EXPECT_EQ(waits_for(), std::vector<int>{4});
  frames->put(std::make_unique<StubIo>(5, 2000));
  EXPECT_EQ(waits_for(), (std::vector<int>{5, 4}));
}

}  // namespace
}  // namespace uroce::io::test
