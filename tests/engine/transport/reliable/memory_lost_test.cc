// SPDX-License-Identifier: BSD-2-Clause
// Fault 42: the application unmaps or protects memory that it registered, while either side uses it. The region is
// still valid, so the keys pass; the access itself fails. The work ends with an error or a NAK, and the process lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/memory/memory_access.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport::test {
namespace {

using queue::WcStatus;
using queue::WrOpcode;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

class MemoryLost : public testing::Test {
 protected:
  MemoryLost() {
    EXPECT_EQ(memory::install_fault_handler(), 0);
    host_.to_rts();
    base_ = static_cast<uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    key_ = host_.mrs.add(
        {.base = base_, .iova = kIova, .length = kSize, .access = memory::kLocalWrite | kAllRemote, .pd = kPd});
  }
  ~MemoryLost() override { munmap(base_, kSize); }

  // Not munmap(): something else may be mapped there a moment later, by a sanitizer for one.
  void take_away() { mprotect(base_, kSize, PROT_NONE); }
  void make_read_only() { mprotect(base_, kSize, PROT_READ); }
  queue::Sge sge(uint32_t offset, uint32_t size) const { return {kIova + offset, size, key_}; }

  static constexpr size_t kSize = 65536;
  ScriptedQp host_;
  uint8_t* base_;
  uint32_t key_;
};

TEST_F(MemoryLost, WriteIntoItIsARemoteOperationalError) {
  take_away();
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn, pattern(64)).reth(kIova, key_, 64));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
  EXPECT_THAT(host_.events, Contains(AsyncEvent::kQpFatal));
  EXPECT_EQ(host_.count(Counter::kMemoryFaults), 1u);
}

TEST_F(MemoryLost, ReadOnlyMemoryTakesNoWrite) {
  make_read_only();
  host_.receive(request(Opcode::kRcWriteOnly, kRqPsn, pattern(64)).reth(kIova, key_, 64));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
}

TEST_F(MemoryLost, InTheMiddleOfAWrite) {
  host_.receive(request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu)).reth(kIova, key_, 2 * kMtu));
  take_away();
  host_.receive(request(Opcode::kRcWriteLast, kRqPsn + 1, pattern(kMtu)));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn + 1)));
}

TEST_F(MemoryLost, AtomicOnIt) {
  take_away();
  host_.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(kIova, key_, 1));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(MemoryLost, SendIntoAReceiveBufferThatIsGone) {
  host_.post_receive(5, {sge(0, 1024)});
  take_away();
  host_.receive(request(Opcode::kRcSendOnly, kRqPsn, pattern(64)));
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
  EXPECT_THAT(host_.receives(), ElementsAre(IsCompletion(5, WcStatus::kLocalProtectionError)));
}

TEST_F(MemoryLost, ReadResponseIntoIt) {
  host_.post(rdma(WrOpcode::kRdmaRead, 1, 0x1000, 0x77), {sge(0, 64)});
  ASSERT_THAT(host_.pull(), SizeIs(1));
  make_read_only();
  host_.receive(read_response(Opcode::kRcReadResponseOnly, kSqPsn, pattern(64)));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(MemoryLost, AtomicResultIntoIt) {
  host_.post(rdma(WrOpcode::kFetchAdd, 1, 0x1000, 0x77), {sge(0, 8)});
  ASSERT_THAT(host_.pull(), SizeIs(1));
  take_away();
  host_.receive(atomic_response(kSqPsn, 1));
  EXPECT_THAT(host_.sends(), ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError)));
}

// From here on the packet I/O finds out, when it makes the bytes of a packet, and tells.
using MemoryLostOnSend = MemoryLost;

TEST_F(MemoryLostOnSend, TheWorkRequestFailsAndTheRestIsFlushed) {
  host_.post(work(WrOpcode::kSend, 1), {sge(0, 64)});
  host_.post(work(WrOpcode::kSend, 2), {sge(0, 64)});
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  host_.qp.on_unreadable(packet, host_.now);
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kLocalProtectionError), IsCompletion(2, WcStatus::kFlushError)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
}

TEST_F(MemoryLostOnSend, WhatPrecedesItCompletesFirst) {
  host_.post(work(WrOpcode::kSend, 1));
  host_.post(work(WrOpcode::kSend, 2), {sge(0, 2 * kMtu)});
  host_.post(work(WrOpcode::kSend, 3));
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));  // 1
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));  // 2, first
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));  // 2, last
  io::TxPacket later;
  ASSERT_TRUE(host_.qp.pull(later, host_.now));  // 3
  host_.qp.on_unreadable(packet, host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
  EXPECT_THAT(host_.pull(), IsEmpty()) << "nothing behind it is sent any more";
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalProtectionError),
                          IsCompletion(3, WcStatus::kFlushError)));
}

TEST_F(MemoryLostOnSend, TheFirstOfSeveralCounts) {
  for (uint64_t id = 1; id <= 3; ++id) host_.post(work(WrOpcode::kSend, id), {sge(0, 8)});
  io::TxPacket packets[3];
  for (io::TxPacket& packet : packets) ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  host_.qp.on_unreadable(packets[2], host_.now);
  host_.qp.on_unreadable(packets[1], host_.now);
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalProtectionError),
                          IsCompletion(3, WcStatus::kFlushError)));
}

TEST_F(MemoryLostOnSend, ThePeersRetransmissionRequestsDoNotBringItBack) {
  host_.post(work(WrOpcode::kSend, 1));
  host_.post(work(WrOpcode::kSend, 2), {sge(0, 8)});
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  host_.qp.on_unreadable(packet, host_.now);
  host_.receive(nak(NakCode::kPsnSequenceError, kSqPsn));
  EXPECT_THAT(host_.pull(), ElementsAre(IsRequest(Opcode::kRcSendOnly, kSqPsn)));
  host_.receive(ack(kSqPsn));
  EXPECT_THAT(host_.sends(),
              ElementsAre(IsCompletion(1, WcStatus::kSuccess), IsCompletion(2, WcStatus::kLocalProtectionError)));
}

TEST_F(MemoryLostOnSend, AReadResponseBecomesANak) {
  host_.receive(read_request(kRqPsn, kIova, key_, 3 * kMtu));
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  host_.qp.on_unreadable(packet, host_.now);
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn + 1)));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
  EXPECT_THAT(host_.events, Contains(AsyncEvent::kQpFatal));
}

// A later request has found it out first, and its NAK waits behind the responses.
TEST_F(MemoryLostOnSend, AReadResponseBecomesTheNakOfAQpThatHasFailedBehindIt) {
  host_.receive(read_request(kRqPsn, kIova, key_, 3 * kMtu));
  io::TxPacket packets[2];
  for (io::TxPacket& packet : packets) ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  take_away();
  host_.receive(PeerPacket(Opcode::kRcFetchAdd, kRqPsn + 3).atomic(kIova, key_, 1));
  EXPECT_EQ(host_.qp.state(), QpState::kErr);
  for (const io::TxPacket& packet : packets) host_.qp.on_unreadable(packet, host_.now);
  EXPECT_THAT(host_.drain(), ElementsAre(IsNak(NakCode::kRemoteOperationalError, kRqPsn)));
  host_.qp.on_unreadable(packets[1], host_.now);
  EXPECT_THAT(host_.drain(), IsEmpty());
}

TEST_F(MemoryLostOnSend, AReportThatComesAfterTheErrorIsIgnored) {
  host_.post(work(WrOpcode::kSend, 1), {sge(0, 8)});
  io::TxPacket packet;
  ASSERT_TRUE(host_.qp.pull(packet, host_.now));
  ASSERT_EQ(host_.modify(QpState::kErr, kQpState), 0);
  EXPECT_THAT(host_.sends(), SizeIs(1));
  host_.qp.on_unreadable(packet, host_.now);
  EXPECT_THAT(host_.sends(), IsEmpty());
}

}  // namespace
}  // namespace uroce::transport::test
