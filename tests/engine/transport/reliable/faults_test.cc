// SPDX-License-Identifier: BSD-2-Clause
// Faults 16 to 24 of faults.md where the other tests of the responder leave something out: what a peer may ask,
// and what memory it reaches. Tests are named after the fault; docs/faults.md names the others.
#include <string>

#include "tests/engine/transport/qp_pair.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::ElementsAre;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

std::vector<Opcode> rc_requests() {
  std::vector<Opcode> opcodes;
  for (int code = 0; code < 0x20; ++code) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<Opcode>(code));
    if (info.known && info.request) opcodes.push_back(static_cast<Opcode>(code));
  }
  return opcodes;
}

// --- 16: opcode sequence ---------------------------------------------------------------------------------------------

// Every opcode in every position; the tables say which are right (IBTA 9.7.4.1.2).
TEST(Fault16, EveryOpcodeInEveryPosition) {
  using enum Opcode;
  const std::vector<Opcode> begins = {kRcSendFirst,   kRcSendOnly,  kRcSendOnlyImmediate,  kRcSendOnlyInvalidate,
                                      kRcWriteFirst,  kRcWriteOnly, kRcWriteOnlyImmediate, kRcReadRequest,
                                      kRcCompareSwap, kRcFetchAdd,  kRcAtomicWrite};
  const std::vector<Opcode> in_send = {kRcSendMiddle, kRcSendLast, kRcSendLastImmediate, kRcSendLastInvalidate};
  const std::vector<Opcode> in_write = {kRcWriteMiddle, kRcWriteLast, kRcWriteLastImmediate};
  struct Earlier {
    Opcode opcode;
    uint32_t length = 0;  // that the RETH announces; 0: what makes the packet under test right
  };
  const Earlier write_first{kRcWriteFirst, 3 * kMtu}, write_middle{kRcWriteMiddle}, write_last{kRcWriteLast};
  const struct {
    const char* name;
    std::vector<Earlier> before;
    std::vector<Opcode> right;
  } kPositions[] = {
      {"at first", {}, begins},
      {"inside SEND", {{kRcSendFirst}}, in_send},
      {"inside WRITE", {{kRcWriteFirst}}, in_write},
      // What a message left behind must not be continued.
      {"after SEND", {{kRcSendOnly}}, begins},
      {"after WRITE", {write_first, write_middle, write_last}, begins},
      {"inside SEND after WRITE", {write_first, write_middle, write_last, {kRcSendFirst}}, in_send},
      {"inside WRITE after SEND", {{kRcSendOnly}, {kRcWriteFirst}}, in_write},
  };
  for (const auto& position : kPositions) {
    for (const Opcode opcode : rc_requests()) {
      const wire::OpcodeInfo& info = wire::opcode_info(opcode);
      SCOPED_TRACE(std::string(info.name) + " " + position.name);
      ScriptedQp host;
      const Buffer buffer = host.make_buffer(8 * kMtu);
      Buffer window{pattern(8)};
      host.add_window(window);
      host.to_rts();
      host.post_receive(1, {buffer.sge(0, 4 * kMtu)});
      host.post_receive(2, {buffer.sge(0, 4 * kMtu)});
      // Lengths are right for either a Last or a Middle, and for an Only or a First.
      const uint32_t size = info.last ? 8 : kMtu;
      const bool write = opcode == kRcWriteFirst;
      uint32_t psn = kRqPsn;
      for (const Earlier& earlier : position.before) {
        const uint32_t length = earlier.length != 0 ? earlier.length : kMtu + (info.last ? 8 : 2 * kMtu);
        host.receive(request(earlier.opcode, psn++, pattern(kMtu, 5)).reth(buffer.iova + 4 * kMtu, buffer.key, length));
      }
      ASSERT_EQ(host.qp.state(), QpState::kRts);
      const Bytes memory = buffer.bytes;
      PeerPacket packet(opcode, psn);
      packet.reth(buffer.iova + 4 * kMtu, buffer.key, write ? 2 * kMtu : 8)
          .atomic(buffer.iova + 4 * kMtu, buffer.key, 1)
          .invalidate(window.key);
      if (info.has_payload) packet.payload(pattern(size, 66));
      host.receive(packet);
      const bool right = std::find(position.right.begin(), position.right.end(), opcode) != position.right.end();
      EXPECT_EQ(host.qp.state(), right ? QpState::kRts : QpState::kErr);
      if (right) continue;
      EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, psn)));
      EXPECT_TRUE(buffer.bytes == memory);
    }
  }
}

// --- 17: RETH length -------------------------------------------------------------------------------------------------

PeerPacket with_reth(Opcode opcode, uint64_t va, uint32_t rkey, uint32_t length, uint32_t payload = 8) {
  const wire::OpcodeInfo& info = wire::opcode_info(opcode);
  PeerPacket packet = PeerPacket(opcode, kRqPsn).reth(va, rkey, length);
  return info.has_payload ? packet.payload(pattern(info.last ? payload : kMtu, 66)) : packet;
}

constexpr Opcode kWithReth[] = {Opcode::kRcWriteFirst, Opcode::kRcWriteOnly, Opcode::kRcWriteOnlyImmediate,
                                Opcode::kRcReadRequest};

TEST(Fault17, LengthAboveTwoToThe31IsInvalidAndTwoToThe31IsNot) {
  for (const Opcode opcode : kWithReth) {
    const bool only_write = wire::opcode_info(opcode).has_payload && wire::opcode_info(opcode).last;
    for (const uint32_t length : {0x80000000u, 0x80000001u, 0xc0000000u, 0xffffffffu}) {
      SCOPED_TRACE(std::string(wire::opcode_info(opcode).name) + " " + std::to_string(length));
      ScriptedQp host;
      GuardedBuffer buffer(2 * kMtu);
      const uint32_t key = host.mrs.add(buffer.region());
      host.to_rts();
      host.post_receive(1);
      host.receive(with_reth(opcode, buffer.iova, key, length));
      // 2^31 is a length, only more than the region has; but not one that an Only can carry.
      const bool invalid = length > 0x80000000u || only_write;
      EXPECT_THAT(host.drain(),
                  ElementsAre(IsNak(invalid ? NakCode::kInvalidRequest : NakCode::kRemoteAccessError, kRqPsn)));
      EXPECT_TRUE(buffer.untouched());
    }
  }
}

// The WRITE as a whole against its RETH: every split of the announced length, one byte more and less.
TEST(Fault17, TotalThatIsNotTheLengthOfTheReth) {
  for (const uint32_t last : {1u, 2u, 8u, kMtu - 1, kMtu}) {
    for (const int32_t difference : {-1, 0, 1}) {
      SCOPED_TRACE(std::to_string(last) + " " + std::to_string(difference));
      ScriptedQp host;
      GuardedBuffer buffer(4 * kMtu);
      const uint32_t key = host.mrs.add(buffer.region());
      host.to_rts();
      const uint32_t length = 2 * kMtu + last + static_cast<uint32_t>(difference);
      host.receive(with_reth(Opcode::kRcWriteFirst, buffer.iova, key, length));
      host.receive(request(Opcode::kRcWriteMiddle, kRqPsn + 1, pattern(kMtu, 66)));
      const bool middle_is_all = length == 2 * kMtu;
      EXPECT_EQ(host.qp.state(), middle_is_all ? QpState::kErr : QpState::kRts);
      const Bytes memory = buffer.bytes;
      host.receive(request(Opcode::kRcWriteLast, kRqPsn + 2, pattern(last, 67)).ack_request());
      if (difference == 0) {
        EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 2)));
        EXPECT_EQ(part(buffer.content(), 2 * kMtu, last), pattern(last, 67));
      } else {
        EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn + (middle_is_all ? 1 : 2))));
        EXPECT_TRUE(buffer.bytes == memory);
      }
      EXPECT_TRUE(buffer.guards_intact());
    }
  }
}

// --- 18: zero length -------------------------------------------------------------------------------------------------

// IBTA C9-88. The peer grants nothing at all, and its local keys are bad as well.
TEST(Fault18, ZeroLengthOfEveryKindSucceeds) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWrite,
                                WrOpcode::kRdmaWriteWithImmediate, WrOpcode::kRdmaRead}) {
    for (const uint64_t va : {uint64_t{0}, uint64_t{1}, kIova, UINT64_MAX}) {
      for (const uint32_t rkey : {0u, 0xdeadu, 0xffffffffu}) {
        QpAttributes grants_nothing = default_attributes();
        grants_nothing.access = 0;
        QpPair pair(default_attributes(), grants_nothing);
        pair.b.post_receive(7, {queue::Sge{va, 0, rkey}});
        pair.a.post(rdma(opcode, 1, va, rkey), {queue::Sge{va, 0, rkey}});
        pair.run();
        EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(1, kOk)));
        const bool receives = opcode != WrOpcode::kRdmaWrite && opcode != WrOpcode::kRdmaRead;
        EXPECT_THAT(pair.b.receives(), SizeIs(receives ? 1 : 0));
        EXPECT_EQ(pair.b.qp.state(), QpState::kRts);
      }
    }
  }
}

// --- 19: bounds near 2^64 --------------------------------------------------------------------------------------------

constexpr uint32_t kRegion = 2 * kMtu;

// Ranges that wrap around the address space, against a region at its end and one elsewhere.
TEST(Fault19, RangeThatWrapsAroundTheAddressSpace) {
  for (const uint64_t iova : {kIova, uint64_t{0}, uint64_t{0} - kRegion}) {
    for (const Opcode opcode : kWithReth) {
      const uint32_t length = opcode == Opcode::kRcWriteFirst ? kMtu + 8 : 8;
      for (const uint64_t before_end : {uint64_t{1}, uint64_t{4}, uint64_t{7}}) {
        SCOPED_TRACE(std::string(wire::opcode_info(opcode).name) + " region " + std::to_string(iova));
        ScriptedQp host;
        GuardedBuffer buffer(kRegion, iova);
        const uint32_t key = host.mrs.add(buffer.region());
        host.to_rts();
        host.post_receive(1);
        host.receive(with_reth(opcode, uint64_t{0} - before_end, key, length));
        EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
        EXPECT_TRUE(buffer.untouched());
      }
    }
  }
}

TEST(Fault19, OneByteBeforeOrAfterTheRegionNearTheEnd) {
  for (const uint64_t gap : {uint64_t{8}, uint64_t{kMtu}}) {
    const uint64_t iova = uint64_t{0} - kRegion - gap;
    for (const Opcode opcode : kWithReth) {
      const uint32_t length = opcode == Opcode::kRcWriteFirst ? kMtu + 8 : 8;
      for (const uint64_t va : {iova - 1, iova + kRegion - length + 1, iova + kRegion}) {
        ScriptedQp host;
        GuardedBuffer buffer(kRegion, iova);
        const uint32_t key = host.mrs.add(buffer.region());
        host.to_rts();
        host.post_receive(1);
        host.receive(with_reth(opcode, va, key, length));
        EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
        EXPECT_TRUE(buffer.untouched());
      }
    }
  }
}

// What ends exactly at 2^64 is inside: several packets of WRITE, several responses of READ.
TEST(Fault19, WriteAndReadUpToTheEndOfTheAddressSpace) {
  constexpr uint32_t kLength = 2 * kMtu + 5;
  QpPair pair;
  GuardedBuffer remote(3 * kMtu, uint64_t{0} - 3 * kMtu);
  const uint32_t rkey = pair.b.mrs.add(remote.region());
  Buffer local = pair.a.make_buffer(2 * kLength);
  const uint64_t va = uint64_t{0} - kLength;
  pair.a.post(sized(rdma(WrOpcode::kRdmaWrite, 1, va, rkey), kLength), {local.sge(0, kLength)});
  pair.a.post(sized(rdma(WrOpcode::kRdmaRead, 2, va, rkey), kLength), {local.sge(kLength, kLength)});
  pair.run();
  EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(2, kOk)));
  EXPECT_EQ(part(remote.content(), 3 * kMtu - kLength, kLength), part(local.bytes, 0, kLength));
  EXPECT_EQ(part(local.bytes, kLength, kLength), part(local.bytes, 0, kLength));
  EXPECT_TRUE(remote.guards_intact());
}

// --- 21, 22: atomics and depth ---------------------------------------------------------------------------------------

TEST(Fault21, AtomicWriteOfAnotherSizeThanEightBytes) {
  for (const uint32_t size : {0u, 1u, 7u, 9u, 16u, kMtu}) {
    ScriptedQp host;
    GuardedBuffer buffer(kRegion);
    const uint32_t key = host.mrs.add(buffer.region());
    host.to_rts();
    host.receive(request(Opcode::kRcAtomicWrite, kRqPsn, pattern(size, 66)).reth(buffer.iova, key, size));
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn)));
    EXPECT_TRUE(buffer.untouched());
  }
}

TEST(Fault21, MisalignedAtomicsTouchNothing) {
  for (const Opcode opcode : {Opcode::kRcCompareSwap, Opcode::kRcFetchAdd}) {
    for (uint64_t offset = 0; offset < 16; ++offset) {
      if (offset % 8 == 0) continue;
      ScriptedQp host;
      GuardedBuffer buffer(24);
      const uint32_t key = host.mrs.add(buffer.region());
      host.to_rts();
      host.receive(PeerPacket(opcode, kRqPsn).atomic(buffer.iova + offset, key, 1));
      EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn)));
      EXPECT_TRUE(buffer.untouched());
    }
  }
}

// READs and atomics share the depth (IBTA 9.7.4.1.4); those within it are still answered.
TEST(Fault22, OneMoreThanTheDepth) {
  for (const uint8_t depth : {0, 1, 3, 16}) {
    for (const bool read : {false, true}) {
      SCOPED_TRACE(int{depth});
      ScriptedQp host;
      const Buffer buffer = host.make_buffer(8);
      QpAttributes a = default_attributes();
      a.max_dest_rd_atomic = depth;
      host.to_rts(a);
      uint32_t psn = kRqPsn;
      const auto ask = [&](bool as_read) {
        host.receive(as_read ? read_request(psn++, buffer.iova, buffer.key, 8)
                             : PeerPacket(Opcode::kRcFetchAdd, psn++).atomic(buffer.iova, buffer.key, 1));
      };
      for (uint32_t n = 0; n < depth; ++n) ask(n % 2 == 0);
      ASSERT_EQ(host.qp.state(), QpState::kRts);
      const Bytes memory = buffer.bytes;
      ask(read);
      EXPECT_EQ(host.qp.state(), QpState::kErr);
      EXPECT_EQ(buffer.bytes, memory) << "executed";
      const auto sent = host.drain();
      ASSERT_THAT(sent, SizeIs(depth + 1u));
      EXPECT_THAT(sent.back(), IsNak(NakCode::kInvalidRequest, kRqPsn + depth));
    }
  }
}

// --- 23, 24: receive buffers -----------------------------------------------------------------------------------------

// Both ends of it, and not a byte past the receive buffer, in whichever packet it ends.
TEST(Fault23, SendThatIsLongerThanTheReceive) {
  for (const uint32_t room : {0u, 1u, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu}) {
    for (const uint32_t more : {1u, 3 * kMtu}) {
      SCOPED_TRACE(std::to_string(room) + " + " + std::to_string(more));
      QpPair pair;
      const Buffer out = pair.a.make_buffer(8 * kMtu);
      GuardedBuffer in(8 * kMtu);
      const uint32_t key = pair.b.mrs.add(in.region());
      pair.b.post_receive(7, {queue::Sge{in.iova, room, key}});
      pair.b.post_receive(8, {queue::Sge{in.iova, 8 * kMtu, key}});
      pair.a.post(sized(work(WrOpcode::kSend, 1), room + more), {out.sge(0, room + more)});
      pair.a.post(work(WrOpcode::kSend, 2));
      pair.run();
      EXPECT_THAT(pair.b.receives(),
                  ElementsAre(IsCompletion(7, WcStatus::kLocalLengthError), IsCompletion(8, WcStatus::kFlushError)));
      EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(1, WcStatus::kRemoteInvalidRequestError),
                                              IsCompletion(2, WcStatus::kFlushError)));
      EXPECT_EQ(part(in.bytes, GuardedBuffer::kGuard + room, 8 * kMtu - room),
                part(in.before, GuardedBuffer::kGuard + room, 8 * kMtu - room));
    }
  }
}

// Every kind that needs a receive request; after as many retries as agreed it is over, on both sides in order.
TEST(Fault24, NoReceiveUntilTheRetriesAreExhausted) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kSendWithImmediate, WrOpcode::kRdmaWriteWithImmediate}) {
    for (const uint8_t retries : {0, 1, 6}) {
      QpAttributes a = default_attributes();
      a.rnr_retry = retries;
      QpPair pair(a);
      const Buffer target = pair.b.make_buffer(8);
      pair.a.post(rdma(opcode, 1, target.iova, target.key));
      pair.a.post(work(WrOpcode::kSend, 2));
      pair.run_until_completion();
      EXPECT_THAT(pair.a.sends(),
                  ElementsAre(IsCompletion(1, WcStatus::kRnrRetryExceeded), IsCompletion(2, WcStatus::kFlushError)));
      EXPECT_EQ(pair.b.count(Counter::kTxRnrNaks), retries + 1u);
      EXPECT_EQ(pair.b.qp.state(), QpState::kRts);
    }
  }
}

TEST(Fault24, ReceiveThatIsPostedWhileThePeerWaits) {
  QpPair pair;
  const Buffer out = pair.a.make_buffer(3 * kMtu), in = pair.b.make_buffer(3 * kMtu, memory::kLocalWrite, 5);
  pair.a.post(sized(work(WrOpcode::kSend, 1), 3 * kMtu), {out.sge(0, 3 * kMtu)});
  pair.run();
  pair.a.expire();
  pair.b.now = pair.a.now;
  pair.run();
  EXPECT_EQ(pair.b.count(Counter::kTxRnrNaks), 2u);
  pair.b.post_receive(7, {in.sge(0, 3 * kMtu)});
  pair.run_until_completion();
  EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(1, kOk)));
  EXPECT_THAT(pair.b.receives(), ElementsAre(IsCompletion(7, kOk)));
  EXPECT_EQ(in.bytes, out.bytes);
}

// A SEND that has to wait for credits waits for the acknowledgement of what is in front of it, so somebody has to ask.
TEST(Fault24, SendBehindUnsignaledWritesDoesNotWaitForATimer) {
  QpPair pair;
  pair.b.post_receive(7);
  pair.a.post(work(WrOpcode::kSend, 1));
  pair.run();  // the ACK says: no more receive requests
  pair.b.post_receive(8);
  pair.a.post(rdma(WrOpcode::kRdmaWrite, 2, 0, 0, 0));
  pair.a.post(rdma(WrOpcode::kRdmaWrite, 3, 0, 0, 0));
  pair.a.post(work(WrOpcode::kSend, 4));
  pair.run();
  EXPECT_THAT(pair.a.sends(), ElementsAre(IsCompletion(1, kOk), IsCompletion(4, kOk)));
}

}  // namespace
}  // namespace uroce::transport
