// SPDX-License-Identifier: BSD-2-Clause
// Faults 13 and 15 of faults.md: from every critical starting PSN every kind of message arrives exactly, in both roles
// at once, and READs are answered again from the middle. The other tests of PSNs are ResponderSequence, ResponderReplay
// and FirstPsn; docs/faults.md is the index.
#include <string>

#include "tests/engine/transport/qp_pair.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WcStatus;
using queue::WrOpcode;
using testing::AllOf;
using testing::ElementsAre;
using testing::SizeIs;
using wire::Opcode;

// --- 13: duplicate READs ---------------------------------------------------------------------------------------------

// The second asks for more of the packet that the first ends in. No requester we know of does so; but the answer must
// not be shorter than what was asked for last, or the peer ends its QP over a wrong length.
TEST(Fault13, PartsOfAReadThatEndInTheSamePacket) {
  ScriptedQp host;
  const Buffer buffer = host.make_buffer(4 * kMtu);
  host.to_rts();
  host.receive(read_request(kRqPsn, buffer.iova, buffer.key, 4 * kMtu));
  ASSERT_THAT(host.drain(), SizeIs(4));
  host.receive(read_request(kRqPsn + 1, buffer.iova + kMtu, buffer.key, kMtu + 20));
  host.receive(read_request(kRqPsn + 1, buffer.iova + kMtu, buffer.key, 2 * kMtu));
  EXPECT_THAT(host.drain(),
              ElementsAre(IsReadResponse(Opcode::kRcReadResponseFirst, kRqPsn + 1, part(buffer.bytes, kMtu, kMtu)),
                          IsReadResponse(Opcode::kRcReadResponseLast, kRqPsn + 2, part(buffer.bytes, 2 * kMtu, kMtu))));
}

// Every tail of a READ whose PSNs wrap, or cross the half of their space.
TEST(Fault13, TailsOfAReadFromEveryStartingPsn) {
  for (const uint32_t first : {0u, 0x7ffffeu, 0x7fffffu, 0x800000u, 0xfffffdu, 0xfffffeu, 0xffffffu}) {
    ScriptedQp host;
    const Buffer buffer = host.make_buffer(4 * kMtu);
    QpAttributes a = default_attributes();
    a.rq_psn = wire::Psn(first);
    host.to_rts(a);
    host.receive(read_request(first, buffer.iova, buffer.key, 4 * kMtu));
    ASSERT_THAT(host.drain(), SizeIs(4));
    for (uint32_t n = 0; n < 4; ++n) {
      host.receive(read_request(first + n, buffer.iova + n * kMtu, buffer.key, (4 - n) * kMtu));
      const auto sent = host.drain();
      ASSERT_THAT(sent, SizeIs(4 - n)) << "from " << first << ", tail " << n;
      for (uint32_t i = n; i < 4; ++i) {
        EXPECT_THAT(sent[i - n], AllOf(HasPsn(first + i), HasPayload(part(buffer.bytes, i * kMtu, kMtu))));
      }
    }
  }
}

// --- 15: every kind of message, both roles
// ----------------------------------------------------------------------------

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
    host.add_window(window);
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
    wqe.operands.compare_add = opcode() == WrOpcode::kCompareSwap ? to.word(kShared) : 77;
    wqe.operands.swap = 0x1122334455667788;
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

}  // namespace
}  // namespace uroce::transport
