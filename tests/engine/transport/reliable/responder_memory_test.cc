// SPDX-License-Identifier: BSD-2-Clause
// What a peer may touch with WRITE, READ and atomics: keys, protection domains, permissions, bounds, lengths.
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using testing::ElementsAre;
using wire::NakCode;
using wire::Opcode;

// --- keys, permissions, bounds of WRITE, READ and atomics (faults.md 19, 20) -----------------------------------------

// Asks for `length` bytes at `va`: the first packet of a WRITE, a READ, an atomic.
enum class Request { kWriteOnly, kWriteFirst, kRead, kAtomic };
constexpr Request kRequests[] = {Request::kWriteOnly, Request::kWriteFirst, Request::kRead, Request::kAtomic};

constexpr uint32_t kRegion = 2 * kMtu;

uint32_t length_of(Request kind) {
  return kind == Request::kWriteFirst ? kRegion : 8;
}

PeerPacket make(Request kind, uint64_t va, uint32_t rkey) {
  switch (kind) {
    case Request::kWriteOnly:
      return request(Opcode::kRcWriteOnly, kRqPsn, pattern(8, 66)).reth(va, rkey, 8);
    case Request::kWriteFirst:
      return request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu, 66)).reth(va, rkey, kRegion);
    case Request::kRead:
      return read_request(kRqPsn, va, rkey, 8);
    default:
      return PeerPacket(Opcode::kRcFetchAdd, kRqPsn).atomic(va, rkey, 1);
  }
}

uint32_t right_for(Request kind) {
  return kind == Request::kRead     ? memory::kRemoteRead
         : kind == Request::kAtomic ? memory::kRemoteAtomic
                                    : memory::kRemoteWrite;
}

// The request is refused with NAK remote access error, and the buffer is as it was.
void expect_refused(ScriptedQp& host, const Buffer& buffer, const PeerPacket& bad) {
  const Bytes before = buffer.bytes;
  host.receive(bad);
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
  EXPECT_EQ(buffer.bytes, before);
  EXPECT_EQ(host.qp.state(), QpState::kErr);
  EXPECT_THAT(host.events, ElementsAre(AsyncEvent::kQpAccessError));
}

class ResponderAccess : public testing::TestWithParam<Request> {};
INSTANTIATE_TEST_SUITE_P(EveryRequest, ResponderAccess, testing::ValuesIn(kRequests));

TEST_P(ResponderAccess, UnknownAndZeroKeys) {
  for (const uint32_t difference : {1u, 0x100u, 0x80000000u}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(kRegion);
    host.to_rts();
    expect_refused(host, buffer, make(GetParam(), buffer.iova, buffer.key ^ difference));
  }
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(kRegion);
  host.to_rts();
  expect_refused(host, buffer, make(GetParam(), buffer.iova, 0));
}

TEST_P(ResponderAccess, StaleKey) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(kRegion);
  host.to_rts();
  host.mrs.remove(buffer.key);
  expect_refused(host, buffer, make(GetParam(), buffer.iova, buffer.key));
}

TEST_P(ResponderAccess, KeyOfAnotherProtectionDomain) {
  ScriptedQp host;
  Buffer buffer{pattern(kRegion)};
  host.add(buffer, {.access = kAllRemote, .pd = kPd + 1});
  host.to_rts();
  expect_refused(host, buffer, make(GetParam(), buffer.iova, buffer.key));
}

TEST_P(ResponderAccess, RegionWithoutTheRight) {
  ScriptedQp host;
  const uint32_t others = (memory::kLocalWrite | kAllRemote) & ~right_for(GetParam());
  const Buffer buffer = host.make_buffer(kRegion, others);
  host.to_rts();
  expect_refused(host, buffer, make(GetParam(), buffer.iova, buffer.key));
}

TEST_P(ResponderAccess, QpWithoutTheRight) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(kRegion);
  QpAttributes a = default_attributes();
  a.access = kAllRemote & ~right_for(GetParam());
  host.to_rts(a);
  expect_refused(host, buffer, make(GetParam(), buffer.iova, buffer.key));
}

TEST_P(ResponderAccess, OnlyTheRightThatIsNeeded) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(kRegion, right_for(GetParam()) | memory::kLocalWrite);
  QpAttributes a = default_attributes();
  a.access = right_for(GetParam());
  host.to_rts(a);
  host.receive(make(GetParam(), buffer.iova, buffer.key));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

TEST_P(ResponderAccess, FirstAndLastBytesOfTheRegion) {
  for (const bool last : {false, true}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(kRegion);
    host.to_rts();
    host.receive(make(GetParam(), buffer.iova + (last ? kRegion - length_of(GetParam()) : 0), buffer.key));
    EXPECT_EQ(host.qp.state(), QpState::kRts);
  }
}

// By one byte where the operation can be there, by a word for atomics.
TEST_P(ResponderAccess, OutOfBounds) {
  const uint64_t step = GetParam() == Request::kAtomic ? 8 : 1;
  const uint64_t end = kIova + kRegion - length_of(GetParam());
  for (const uint64_t va :
       {kIova - step, end + step, kIova + kRegion, uint64_t{0}, UINT64_MAX - 7, uint64_t{1} << 63}) {
    SCOPED_TRACE(va);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(kRegion);
    host.to_rts();
    expect_refused(host, buffer, make(GetParam(), va, buffer.key));
  }
}

// A region at the end of the address space: va + length is 2^64, which is not 0.
TEST_P(ResponderAccess, EndOfTheAddressSpace) {
  ScriptedQp host;
  Buffer buffer{pattern(kRegion), UINT64_MAX - kRegion + 1};
  host.add(buffer, {.access = kAllRemote});
  host.to_rts();
  host.receive(make(GetParam(), UINT64_MAX - length_of(GetParam()) + 1, buffer.key));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

TEST(ResponderAccess, ReadLongerThanTheRegion) {
  for (const uint32_t length : {kRegion + 1, 0x80000000u}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(kRegion);
    host.to_rts();
    expect_refused(host, buffer, read_request(kRqPsn, buffer.iova, buffer.key, length));
  }
}

// wire.md "Lengths"; faults.md 18; IBTA C9-88.
TEST(ResponderAccess, ZeroLengthChecksNothing) {
  ScriptedQp host;
  QpAttributes a = default_attributes();
  a.access = 0;
  host.to_rts(a);
  host.post_receive(1);
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn).reth(UINT64_MAX, 0xdead, 0).ack_request());
  host.receive(request(Opcode::kRcWriteOnlyImmediate, kRqPsn + 1).reth(1, 0, 0).ack_request());
  EXPECT_THAT(host.drain(), ElementsAre(IsAck(kRqPsn + 1)));
  host.receive(read_request(kRqPsn + 2, 3, 0xdead, 0));
  EXPECT_THAT(host.drain(), ElementsAre(IsReadResponse(Opcode::kRcReadResponseOnly, kRqPsn + 2, {})));
  EXPECT_EQ(host.qp.state(), QpState::kRts);
}

// --- WRITE: RETH length and payload (faults.md 17) -------------------------------------------------------------------

TEST(ResponderWrite, RethLengthMustBeThePayload) {
  struct Case {
    const char* name;
    uint32_t reth_length;
    std::vector<std::pair<Opcode, uint32_t>> packets;  // the last one is wrong
  };
  using enum Opcode;
  const Case kCases[] = {
      {"Only with too much", 7, {{kRcWriteOnly, 8}}},
      {"Only with too little", 9, {{kRcWriteOnly, 8}}},
      {"Only empty", 1, {{kRcWriteOnly, 0}}},
      {"Only, RETH 0", 0, {{kRcWriteOnly, 1}}},
      {"First that is all", kMtu, {{kRcWriteFirst, kMtu}}},
      {"First beyond", kMtu - 1, {{kRcWriteFirst, kMtu}}},
      {"Middle that is all", 2 * kMtu, {{kRcWriteFirst, kMtu}, {kRcWriteMiddle, kMtu}}},
      {"Middle beyond", kMtu + 1, {{kRcWriteFirst, kMtu}, {kRcWriteMiddle, kMtu}}},
      {"Last with too much", kMtu + 7, {{kRcWriteFirst, kMtu}, {kRcWriteLast, 8}}},
      {"Last with too little", kMtu + 9, {{kRcWriteFirst, kMtu}, {kRcWriteLast, 8}}},
      {"Last Immediate with too little", kMtu + 9, {{kRcWriteFirst, kMtu}, {kRcWriteLastImmediate, 8}}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(4 * kMtu);
    host.to_rts();
    host.post_receive(1);
    Bytes before;
    uint32_t psn = kRqPsn;
    for (const auto& [opcode, size] : c.packets) {
      ASSERT_EQ(host.qp.state(), QpState::kRts);
      before = buffer.bytes;
      host.receive(request(opcode, psn++, pattern(size, 66)).reth(buffer.iova, buffer.key, c.reth_length));
    }
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, psn - 1)));
    EXPECT_EQ(buffer.bytes, before);
    EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kFlushError))) << "the receive was not used";
  }
}

// wire.md: RETH length <= 2^31.
TEST(ResponderWrite, RethLengthAboveTwoToThe31) {
  for (const bool read : {false, true}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(kMtu);
    host.to_rts();
    host.receive(read
                     ? read_request(kRqPsn, buffer.iova, buffer.key, 0x80000001)
                     : request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu)).reth(buffer.iova, buffer.key, 0x80000001));
    EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kInvalidRequest, kRqPsn)));
  }
}

// Pad is not payload (wire.md: PadCnt = (-payload) & 3).
TEST(ResponderWrite, PadIsNotWritten) {
  ScriptedQp host;
  Buffer buffer = host.make_buffer(8);
  Bytes expected = buffer.bytes;
  host.to_rts();
  host.receive(request(Opcode::kRcWriteOnly, kRqPsn, Bytes{1, 2, 3, 4, 5}).reth(buffer.iova, buffer.key, 5));
  std::copy_n(Bytes{1, 2, 3, 4, 5}.begin(), 5, expected.begin());
  EXPECT_EQ(buffer.bytes, expected);
}

// The region may be gone by the second packet.
TEST(ResponderWrite, RegionRemovedInTheMiddle) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(2 * kMtu);
  host.to_rts();
  host.receive(request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu, 66)).reth(buffer.iova, buffer.key, 2 * kMtu));
  const Bytes before = buffer.bytes;
  host.mrs.remove(buffer.key);
  host.receive(request(Opcode::kRcWriteLast, kRqPsn + 1, pattern(kMtu, 67)));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn + 1)));
  EXPECT_EQ(buffer.bytes, before);
}

// The receive that a WRITE with Immediate took completes with an error, not silently (wire.md "Completion status").
TEST(ResponderWrite, RefusedWriteWithImmediateCompletesItsReceive) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(8, memory::kRemoteRead);
  host.to_rts();
  host.post_receive(1);
  host.receive(request(Opcode::kRcWriteOnlyImmediate, kRqPsn, pattern(8)).reth(buffer.iova, buffer.key, 8));
  EXPECT_THAT(host.drain(), ElementsAre(IsNak(NakCode::kRemoteAccessError, kRqPsn)));
  EXPECT_THAT(host.receives(), ElementsAre(IsCompletion(1, WcStatus::kLocalAccessError)));
}

}  // namespace
}  // namespace uroce::transport
