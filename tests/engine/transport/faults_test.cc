// Faults 12 to 24 of faults.md where the other tests of the responder leave something out: what a peer may ask, and
// what memory it reaches. Tests are named after the fault; docs/faults.md names the others.
#include <string>

#include "tests/engine/transport/qp_pair.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::Cqe;
using queue::WcStatus;
using queue::WrOpcode;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using wire::NakCode;
using wire::Opcode;

constexpr auto kOk = WcStatus::kSuccess;

std::vector<Opcode> rc_requests() {
  std::vector<Opcode> opcodes;
  for (int code = 0; code < 0x20; ++code) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<Opcode>(code));
    if (info.known && info.request) opcodes.push_back(static_cast<Opcode>(code));
  }
  return opcodes;
}

// --- 15: starting PSNs, both roles -----------------------------------------------------------------------------------

// Offsets into a buffer of each side: where SENDs arrive, where the peer writes, what is sent, where READs end.
constexpr uint32_t kInbox = 0, kShared = 1024, kOutbox = 2048, kResult = 3072, kAll = 4096;

struct Work {
  const char* name;
  WrOpcode opcode;
};
constexpr Work kWorks[] = {
    {"Send", WrOpcode::kSend},
    {"SendImmediate", WrOpcode::kSendWithImmediate},
    {"SendInvalidate", WrOpcode::kSendWithInvalidate},
    {"Write", WrOpcode::kRdmaWrite},
    {"WriteImmediate", WrOpcode::kRdmaWriteWithImmediate},
    {"Read", WrOpcode::kRdmaRead},
    {"CompareSwap", WrOpcode::kCompareSwap},
    {"FetchAdd", WrOpcode::kFetchAdd},
};

void PrintTo(const Work& w, std::ostream* out) {
  *out << w.name;
}

// One side of the connection: its memory, a region that the peer may invalidate, what it expects to happen.
struct Side {
  Side(ScriptedQp& qp, uint32_t seed) : host(qp), buffer(qp.make_buffer(kAll, memory::kLocalWrite | kAllRemote, seed)) {
    window.bytes = pattern(8);
    host.add(window, {.invalidatable = true});
  }
  uint64_t word(uint32_t offset) const {
    uint64_t value;
    std::memcpy(&value, &buffer.bytes[offset], 8);
    return value;
  }
  Bytes at(uint32_t offset, uint32_t length) const { return part(buffer.bytes, offset, length); }

  ScriptedQp& host;
  Buffer buffer, window;
};

bool is_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
}
bool is_send(WrOpcode opcode) {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImmediate || opcode == WrOpcode::kSendWithInvalidate;
}

class Fault15 : public testing::TestWithParam<std::tuple<Work, uint32_t>> {
 protected:
  static WrOpcode opcode() { return std::get<0>(GetParam()).opcode; }
  static uint32_t psn() { return std::get<1>(GetParam()); }

  static void post(Side& from, const Side& to, uint32_t length) {
    queue::SendWqe wqe = sized(rdma(opcode(), length, to.buffer.iova + kShared, to.buffer.key), length);
    wqe.immediate_or_rkey = opcode() == WrOpcode::kSendWithInvalidate ? to.window.key : 0x01020304;
    wqe.compare_add = opcode() == WrOpcode::kCompareSwap ? to.word(kShared) : 77;
    wqe.swap = 0x1122334455667788;
    const bool returns = opcode() == WrOpcode::kRdmaRead || is_atomic(opcode());
    from.host.post_receive(length, {from.buffer.sge(kInbox, 1024)});
    from.host.post(wqe, {from.buffer.sge(returns ? kResult : kOutbox, length)});
  }
  static void expect_done(Side& from, Side& to, uint32_t length, const Bytes& shared) {
    EXPECT_THAT(from.host.sends(), ElementsAre(IsCompletion(length, kOk)));
    const Bytes sent = from.at(kOutbox, length);
    if (is_send(opcode())) {
      EXPECT_EQ(to.at(kInbox, length), sent);
    } else if (opcode() == WrOpcode::kRdmaWrite || opcode() == WrOpcode::kRdmaWriteWithImmediate) {
      EXPECT_EQ(to.at(kShared, length), sent);
    } else {
      EXPECT_EQ(from.at(kResult, length), shared);
    }
    uint64_t word;
    std::memcpy(&word, shared.data(), 8);
    if (is_atomic(opcode())) {
      EXPECT_EQ(to.word(kShared), opcode() == WrOpcode::kFetchAdd ? word + 77 : 0x1122334455667788);
    }
    const auto received = to.host.receives();
    const bool receives = is_send(opcode()) || opcode() == WrOpcode::kRdmaWriteWithImmediate;
    ASSERT_THAT(received, SizeIs(receives ? 1 : 0));
    if (!receives) return;
    EXPECT_THAT(received[0], IsCompletion(length, kOk));
    EXPECT_EQ(received[0].byte_length, length);
    if (opcode() != WrOpcode::kSend) {
      EXPECT_EQ(received[0].immediate_or_rkey, opcode() == WrOpcode::kSendWithInvalidate ? to.window.key : 0x01020304);
    }
  }
};

// Both sides ask the same of each other, in one packet and in four; the PSNs wrap in front of, in and behind messages.
TEST_P(Fault15, ExactDataInBothRoles) {
  for (const uint32_t length : {kMtu, 3 * kMtu + 5}) {
    QpAttributes attributes = default_attributes();
    attributes.sq_psn = attributes.rq_psn = wire::Psn(psn());
    QpPair pair(attributes);
    Side a(pair.a, 1), b(pair.b, 2);
    const uint32_t size = is_atomic(opcode()) ? 8 : length;
    const Bytes shared_a = a.at(kShared, std::max(size, 8u)), shared_b = b.at(kShared, std::max(size, 8u));
    post(a, b, size);
    post(b, a, size);
    pair.run();
    expect_done(a, b, size, shared_b);
    expect_done(b, a, size, shared_a);
    EXPECT_EQ(pair.a.count(Counter::kTxRetransmissions) + pair.b.count(Counter::kTxRetransmissions), 0u);
    EXPECT_EQ(pair.a.count(Counter::kRxDuplicates) + pair.a.count(Counter::kRxOutOfSequence), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOpcode, Fault15,
                         testing::Combine(testing::ValuesIn(kWorks),
                                          testing::Values(0u, 0x7fffffu, 0x800000u, 0xfffffeu, 0xffffffu)),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param).name) + "_" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

// --- 16: opcode sequence ---------------------------------------------------------------------------------------------

// Every opcode in every position; the tables say which are right (IBTA 9.7.4.1.2).
TEST(Fault16, EveryOpcodeOutsideInsideSendAndInsideWrite) {
  using enum Opcode;
  const struct {
    const char* name;
    std::vector<Opcode> before, right;
  } kPositions[] = {
      {"outside",
       {},
       {kRcSendFirst, kRcSendOnly, kRcSendOnlyImmediate, kRcSendOnlyInvalidate, kRcWriteFirst, kRcWriteOnly,
        kRcWriteOnlyImmediate, kRcReadRequest, kRcCompareSwap, kRcFetchAdd}},
      {"inside SEND", {kRcSendFirst}, {kRcSendMiddle, kRcSendLast, kRcSendLastImmediate, kRcSendLastInvalidate}},
      {"inside WRITE", {kRcWriteFirst}, {kRcWriteMiddle, kRcWriteLast, kRcWriteLastImmediate}},
  };
  for (const auto& position : kPositions) {
    for (const Opcode opcode : rc_requests()) {
      const wire::OpcodeInfo& info = wire::opcode_info(opcode);
      SCOPED_TRACE(std::string(info.name) + " " + position.name);
      ScriptedQp host;
      Side side(host, 1);
      host.to_rts();
      host.post_receive(1, {side.buffer.sge(kInbox, 1024)});
      // Lengths are right for either a Last or a Middle, and for an Only or a First.
      const uint32_t size = info.last ? 8 : kMtu;
      const bool write = opcode == kRcWriteFirst;
      uint32_t psn = kRqPsn;
      for (const Opcode first : position.before) {
        host.receive(request(first, psn++, pattern(kMtu, 5))
                         .reth(side.buffer.iova + kShared, side.buffer.key, kMtu + (info.last ? 8 : 2 * kMtu)));
      }
      ASSERT_EQ(host.qp.state(), QpState::kRts);
      const Bytes memory = side.buffer.bytes;
      PeerPacket packet(opcode, psn);
      packet.reth(side.buffer.iova + kShared, side.buffer.key, write ? 2 * kMtu : 8)
          .atomic(side.buffer.iova + kShared, side.buffer.key, 1)
          .invalidate(side.window.key);
      if (info.has_payload) packet.payload(pattern(size, 66));
      host.receive(packet);
      const bool right = std::find(position.right.begin(), position.right.end(), opcode) != position.right.end();
      EXPECT_EQ(host.qp.state(), right ? QpState::kRts : QpState::kErr);
      if (right) continue;
      EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, psn)));
      EXPECT_TRUE(side.buffer.bytes == memory);
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

// ATOMIC_WRITE is not offered: invalid at any size and address.
TEST(Fault21, AtomicWriteOfAnySize) {
  for (const uint32_t size : {0u, 1u, 7u, 8u, 9u, 16u, kMtu}) {
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

}  // namespace
}  // namespace uroce::transport
