// SPDX-License-Identifier: BSD-2-Clause
// Two processes of one host, whose QPs have the same address and different numbers from the broker: what stays in the
// process and what leaves it. No threads, virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/io/closed_io.h"
#include "engine/io/same_host/same_host.h"
#include "tests/engine/datapath/cable_rig.h"
#include "tests/engine/datapath/fault_rig.h"
#include "tests/engine/io/same_host/peer_pair.h"

namespace uroce::engine::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

const wire::IpAddress kSharedAddress = v4(192, 0, 2, 1), kJoinedGroup = v4(239, 1, 2, 3);

class SharedAddress : public testing::Test {
 protected:
  SharedAddress() : SharedAddress(io::make_memory_link({.queue_capacity = 1024})) {}
  explicit SharedAddress(std::pair<std::unique_ptr<io::MemoryEnd>, std::unique_ptr<io::MemoryEnd>> link)
      : a(1, kSharedAddress, std::move(link.first)), b(2, kSharedAddress, std::move(link.second)) {
    a.tables.number_qps({1u << 14, 1u << 14}, 1);
    b.tables.number_qps({2u << 14, 1u << 14}, 1);
  }
  void run() {
    for (int idle = 0; idle < 3; ++idle) {
      if (a.run()) idle = 0;
      if (b.run()) idle = 0;
    }
  }
  void connect(Host& host, Station& from, Host& other, Station& to) {
    host.connect(from, kSharedAddress, to.qpn());
    other.connect(to, kSharedAddress, from.qpn());
  }
  static uint64_t sent_to_wire(const Host& host) { return host.datapath.wire()->counters().tx_packets; }

  Host a, b;
};

TEST_F(SharedAddress, ConnectedQpsOfTwoProcessesTalk) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    Station &ours = a.add(type), &theirs = b.add(type);
    connect(a, ours, b, theirs);
    b.post_receive(theirs, 7, 4096, 1024);
    a.post(ours, work(WrOpcode::kSend, 1), 0, 1000);
    run();
    EXPECT_THAT(ours.sends(), SizeIs(1));
    ASSERT_THAT(theirs.receives(), SizeIs(1));
    EXPECT_EQ(Bytes(&b.bytes[4096], &b.bytes[5096]), Bytes(&a.bytes[0], &a.bytes[1000]));
  }
}

TEST_F(SharedAddress, WhatIsForTheSameProcessStaysThere) {
  Station &ours = a.add(QpType::kRc), &near = a.add(QpType::kRc);
  connect(a, ours, a, near);
  a.post_receive(near, 7, 4096, 1024);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 1000);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
  EXPECT_THAT(near.receives(), SizeIs(1));
  EXPECT_EQ(sent_to_wire(a), 0u);
}

// One address handle leads to QPs of both.
TEST_F(SharedAddress, DatagramsGoByTheirQpNumber) {
  Station &ours = a.add(QpType::kUd), &near = a.add(QpType::kUd), &far = b.add(QpType::kUd);
  for (Station* const station : {&ours, &near}) a.connect(*station);
  b.connect(far);
  a.post_receive(near, 7, 0, 1024);
  b.post_receive(far, 8, 0, 1024);
  const uint32_t handle = a.handle_to(kSharedAddress);
  a.datagram(ours, 1, handle, near.qpn(), 4096, 100);
  a.datagram(ours, 2, handle, far.qpn(), 4096, 100);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(2));
  EXPECT_THAT(near.receives(), SizeIs(1));
  ASSERT_THAT(far.receives(), SizeIs(1));
  EXPECT_EQ(sent_to_wire(a), 1u);
}

// The kernel makes the copies for the members of the host, the sender's process included.
TEST_F(SharedAddress, MulticastCopiesAreTheKernels) {
  Station &sender = a.add(QpType::kUd), &near = a.add(QpType::kUd), &far = b.add(QpType::kUd);
  for (Station* const station : {&sender, &near}) {
    a.connect(*station);
    ASSERT_TRUE(a.tables.groups.attach(kJoinedGroup, *station->qp));
    a.post_receive(*station, 1, 0, 1024);
  }
  b.connect(far);
  ASSERT_TRUE(b.tables.groups.attach(kJoinedGroup, *far.qp));
  b.post_receive(far, 1, 0, 1024);
  a.datagram(sender, 1, a.handle_to(kJoinedGroup), wire::kMulticastQpn.value(), 4096, 100);
  run();
  EXPECT_THAT(far.receives(), SizeIs(1));
  EXPECT_THAT(near.receives(), IsEmpty()) << "nothing has come from the kernel";
  EXPECT_THAT(sender.receives(), IsEmpty());
}

TEST_F(SharedAddress, WhoBlocksItsOwnMulticastGetsNoneBack) {
  QpInit blocks;
  blocks.block_own_multicast = true;
  Station &sender = b.add(QpType::kUd), &blocking = a.add(QpType::kUd, blocks), &near = a.add(QpType::kUd);
  for (Station* const station : {&blocking, &near}) {
    a.connect(*station);
    ASSERT_TRUE(a.tables.groups.attach(kJoinedGroup, *station->qp));
    a.post_receive(*station, 1, 0, 1024);
  }
  b.connect(sender);
  // What the kernel brings back to the sender's own process has its number.
  transport::test::PeerPacket packet(wire::Opcode::kUdSendOnly, 1);
  Bytes ib = packet.datagram(kQkey, blocking.qpn()).bytes();
  wire::store_be24(&ib[5], wire::kMulticastQpn.value());
  ASSERT_TRUE(a.end->inject_frame(sealed_frame(b.path_to(kJoinedGroup).envelope, ib)));
  run();
  EXPECT_THAT(blocking.receives(), IsEmpty());
  EXPECT_THAT(near.receives(), SizeIs(1));
}

// The same when they exchange packets by memory.
class SameHostProcesses : public SharedAddress {
 protected:
  static constexpr uint32_t kRangeBits = 14;

  SameHostProcesses() {
    for (Host* const host : {&a, &b}) put_around(*host);
    io::PeerEnd one, other;
    EXPECT_EQ(io::test::make_peers(one, other), 0);
    EXPECT_TRUE(arrivals_.at(&a)->add(2, std::move(one)));
    EXPECT_TRUE(arrivals_.at(&b)->add(1, std::move(other)));
  }
  static uint64_t by_memory(const Host& host) { return host.datapath.wire()->counters().tx_by_memory; }
  static uint64_t by_network(const Host& host) { return host.end->counters().tx_packets; }
  void end(Host& host) {
    host.datapath.attach(std::make_unique<io::ClosedIo>(*host.datapath.wire()), nullptr);
    arrivals_.erase(&host);
  }

 private:
  void put_around(Host& host) {
    const auto arrivals = arrivals_[&host] = std::make_shared<io::PeerExchange>();
    auto network = host.datapath.attach(std::make_unique<io::ClosedIo>(*host.datapath.wire()), nullptr);
    host.datapath.attach(std::make_unique<io::SameHost>(
                             std::move(network), io::SameHost::Config{kRangeBits, [](uint32_t) {}, [] {}, arrivals}),
                         nullptr);
  }

  std::map<const Host*, std::shared_ptr<io::PeerExchange>> arrivals_;
};

// In packets as on a wire, of 256 bytes each, and in long ones.
class EveryOperation : public SameHostProcesses, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(AsOnAWire, EveryOperation, testing::Bool());

TEST_P(EveryOperation, OfARcQp) {
  for (Host* const host : {&a, &b}) host->datapath.wire()->show_packets(GetParam());
  run();
  Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc);
  connect(a, ours, b, theirs);
  b.post_receive(theirs, 7, 0, 1000);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 1000);
  queue::SendWqe write = work(WrOpcode::kRdmaWrite, 2), read = work(WrOpcode::kRdmaRead, 3);
  write.remote_address = 1000;
  read.remote_address = 5000;
  write.rkey = read.rkey = b.key;
  a.post(ours, write, 1000, 3000);
  a.post(ours, read, 5000, 3000);
  run();
  EXPECT_THAT(ours.sends(), Each(Field(&Cqe::status, queue::WcStatus::kSuccess)));
  EXPECT_THAT(theirs.receives(), SizeIs(1));
  EXPECT_EQ(Bytes(&b.bytes[0], &b.bytes[4000]), Bytes(&a.bytes[0], &a.bytes[4000]));
  EXPECT_EQ(Bytes(&b.bytes[5000], &b.bytes[8000]), Bytes(&a.bytes[5000], &a.bytes[8000]));
  EXPECT_GE(by_memory(a), GetParam() ? 4u + 12u + 1u : 3u);
  EXPECT_GE(by_memory(b), GetParam() ? 12u : 1u);
  EXPECT_EQ(by_network(a) + by_network(b), 0u);
}

// Of 16 packets each, by their path MTU.
TEST_F(SameHostProcesses, LongMessagesAreFewPackets) {
  Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc);
  connect(a, ours, b, theirs);
  run();
  b.post_receive(theirs, 7, 0, 4000);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 4000);
  run();
  queue::SendWqe read = work(WrOpcode::kRdmaRead, 2);
  read.remote_address = 4096;
  read.rkey = b.key;
  a.post(ours, read, 4096, 4000);
  run();
  EXPECT_THAT(ours.sends(), Each(Field(&Cqe::status, queue::WcStatus::kSuccess)));
  EXPECT_THAT(theirs.receives(), ElementsAre(Field(&Cqe::byte_length, 4000)));
  EXPECT_EQ(Bytes(&b.bytes[0], &b.bytes[4000]), Bytes(&a.bytes[0], &a.bytes[4000]));
  EXPECT_EQ(Bytes(&b.bytes[4096], &b.bytes[8096]), Bytes(&a.bytes[4096], &a.bytes[8096]));
  EXPECT_EQ(by_memory(a), 2u) << "the SEND and the READ request";
  EXPECT_EQ(by_memory(b), 2u) << "an acknowledgement and the response";
  EXPECT_EQ(by_network(a) + by_network(b), 0u);
}

// The same process takes packets of both kinds, in turn.
TEST_F(SameHostProcesses, PacketsOfTheOwnProcessAreNoLongOnes) {
  Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc), &one = b.add(QpType::kRc),
          &other = b.add(QpType::kRc);
  connect(a, ours, b, theirs);
  connect(b, one, b, other);
  run();
  for (uint64_t id = 1; id <= 3; ++id) {
    b.post_receive(theirs, id, 0, 4000);
    a.post(ours, work(WrOpcode::kSend, id), 0, 4000);
    run();
    b.post_receive(other, id, 4096, 1000);
    b.post(one, work(WrOpcode::kSend, id), 0, 1000);
    run();
    EXPECT_THAT(theirs.receives(), ElementsAre(Field(&Cqe::status, queue::WcStatus::kSuccess)));
    EXPECT_THAT(one.sends(), ElementsAre(Field(&Cqe::status, queue::WcStatus::kSuccess)));
  }
}

TEST_F(SameHostProcesses, AWrongKeyIsRefused) {
  Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc);
  connect(a, ours, b, theirs);
  queue::SendWqe write = work(WrOpcode::kRdmaWrite, 1);
  write.rkey = b.key + 1;
  const Bytes before = b.bytes;
  a.post(ours, write, 0, 1000);
  run();
  EXPECT_THAT(ours.sends(), ElementsAre(Field(&Cqe::status, queue::WcStatus::kRemoteAccessError)));
  EXPECT_EQ(b.bytes, before);
}

TEST_F(SameHostProcesses, UnreliableQps) {
  Station &ours = a.add(QpType::kUc), &theirs = b.add(QpType::kUc);
  Station &datagrams = a.add(QpType::kUd), &far = b.add(QpType::kUd);
  connect(a, ours, b, theirs);
  a.connect(datagrams);
  b.connect(far);
  b.post_receive(theirs, 7, 4096, 1024);
  b.post_receive(far, 8, 0, 1024);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 1000);
  a.datagram(datagrams, 2, a.handle_to(kSharedAddress), far.qpn(), 4096, 100);
  run();
  EXPECT_THAT(theirs.receives(), SizeIs(1));
  EXPECT_THAT(far.receives(), SizeIs(1));
  EXPECT_EQ(by_memory(a), 5u) << "four packets, and a datagram";
}

TEST_F(SameHostProcesses, APeerThatDiesIsAnErrorWithinTheRetryBudget) {
  Station &ours = a.add(QpType::kRc), &theirs = b.add(QpType::kRc);
  connect(a, ours, b, theirs);
  b.post_receive(theirs, 7, 0, 1000);
  a.post(ours, work(WrOpcode::kSend, 1), 0, 1000);
  run();
  EXPECT_THAT(ours.sends(), SizeIs(1));
  end(b);
  a.post(ours, work(WrOpcode::kSend, 2), 0, 1000);
  std::vector<Cqe> sends;
  for (int i = 0; i < 10'000 && sends.empty(); ++i) {
    a.now += std::chrono::milliseconds(10);
    a.run();
    sends = ours.sends();
  }
  EXPECT_THAT(sends, ElementsAre(Field(&Cqe::status, queue::WcStatus::kRetryExceeded)));
}

}  // namespace
}  // namespace uroce::engine::test
