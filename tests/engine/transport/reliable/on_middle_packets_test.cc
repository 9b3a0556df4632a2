// SPDX-License-Identifier: BSD-2-Clause
// Packets that are taken several at a time leave the QP, its memory and its queues as if each had come alone.
#include <random>
#include <sys/mman.h>
#include <tuple>

#include "engine/memory/memory_access.h"
#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace test;
using queue::WrOpcode;
using wire::Opcode;

using Stream = std::vector<Bytes>;  // packets, BTH to ICRC

// They differ in payload and PSN only, and the second one's PSN is the next one.
bool continues(const Bytes& packet, const Bytes& previous) {
  const auto bth = wire::BthView::at(packet.data()), before = wire::BthView::at(previous.data());
  const auto header = static_cast<ptrdiff_t>(wire::opcode_info(bth.opcode()).header_size);
  return packet.size() == previous.size() && std::equal(&packet[0], &packet[9], &previous[0]) &&
         std::equal(packet.begin() + 12, packet.begin() + header, previous.begin() + 12) &&
         bth.psn() == before.psn() + 1;
}

// `most`: so many at a time by on_middle_packets(). Returns how many were taken together.
size_t hand_over(ScriptedQp& host, const Stream& stream, size_t most) {
  size_t all_middle = 0;
  for (size_t i = 0; i < stream.size(); ++i) {
    wire::Packet packet;
    EXPECT_EQ(wire::parse_packet(stream[i], packet), wire::ParseError::kNone);
    packet.envelope = &host.envelope;
    host.qp.on_packet(packet, host.now);
    std::vector<const uint8_t*> payloads;
    for (; payloads.size() < most && i + 1 < stream.size() && continues(stream[i + 1], stream[i]); ++i) {
      payloads.push_back(stream[i + 1].data() + packet.info->header_size);
    }
    if (!payloads.empty() && host.qp.on_middle_packets(packet, payloads, host.now)) all_middle += payloads.size();
  }
  return all_middle;
}

// All that can be seen of it. Takes what it sends and the completions.
struct Seen {
  explicit Seen(ScriptedQp& host) : state(host.qp.state()), deadline(host.qp.deadline()), events(host.events) {
    sent = host.drain();
    for (const SentPacket& packet : sent) {
      Bytes bth(wire::kBthSize);
      packet.headers.bth.emit(bth.data());
      packets.emplace_back(bth, packet.payload, packet.headers.info->has_aeth ? packet.headers.aeth.syndrome : 0,
                           packet.headers.info->has_aeth ? packet.headers.aeth.msn.value() : 0, packet.reason);
    }
    for (const std::vector<queue::Cqe>& queue : {host.sends(), host.receives()}) {
      for (const queue::Cqe& cqe : queue) completions.emplace_back(cqe.wr_id, cqe.status, cqe.byte_length);
    }
    host.counters.snapshot(counters);
  }
  std::vector<SentPacket> sent;
  std::vector<std::tuple<Bytes, Bytes, uint8_t, uint32_t, io::SendReason>> packets;
  std::vector<std::tuple<uint64_t, queue::WcStatus, uint32_t>> completions;
  Counters::Snapshot counters;
  QpState state;
  Time deadline;
  std::vector<AsyncEvent> events;
};

void expect_same(const Seen& plain, const Seen& quick) {
  ASSERT_EQ(plain.packets, quick.packets);
  ASSERT_EQ(plain.completions, quick.completions);
  ASSERT_EQ(plain.counters, quick.counters);
  ASSERT_EQ(plain.state, quick.state);
  ASSERT_EQ(plain.deadline, quick.deadline);
  ASSERT_EQ(plain.events, quick.events);
}

class OnMiddlePackets : public testing::TestWithParam<std::tuple<QpType, uint32_t>> {
 protected:
  static constexpr uint32_t kSize = 64 * kMtu;

  OnMiddlePackets() : random_(std::get<1>(GetParam())) {
    for (size_t k = 0; k < 2; ++k) {
      hosts_[k].to_rts();
      buffers_[k] = hosts_[k].make_buffer(kSize);
    }
  }

  uint32_t up_to(uint32_t most) { return std::uniform_int_distribution<uint32_t>(0, most)(random_); }
  bool one_in(uint32_t n) { return up_to(n - 1) == 0; }

  Opcode of_type(Opcode rc) const {
    return Opcode{static_cast<uint8_t>(static_cast<uint8_t>(rc) | (type_ == QpType::kUc ? 0x20 : 0))};
  }

  // First, middle ..., last; or only.
  Stream message(Opcode first, Opcode only, uint32_t psn, uint32_t length, bool asks) {
    const Bytes bytes = pattern(length, seed_++);
    const uint32_t count = (length + kMtu - 1) / kMtu;
    const uint32_t va = up_to(kSize - length);
    // What breaks a rule ends the QP, so it is rare.
    const uint32_t announced = one_in(40) ? length - std::min(length, kMtu) * up_to(2) + up_to(kMtu) : length;
    const uint32_t key = buffers_[0].key ^ (one_in(60) ? 0x100 : 0);
    Stream stream;
    for (uint32_t i = 0; i < count; ++i) {
      const Opcode opcode = count == 1      ? only
                            : i == 0        ? first
                            : i + 1 < count ? Opcode{static_cast<uint8_t>(static_cast<uint8_t>(first) + 1)}
                                            : Opcode{static_cast<uint8_t>(static_cast<uint8_t>(first) + 2)};
      PeerPacket packet(opcode, psn + i);
      packet.payload(part(bytes, i * kMtu, std::min(kMtu, length - i * kMtu))).reth(kIova + va, key, announced);
      if (wire::opcode_info(opcode).has_aeth) packet.aeth(0x1f);
      if (asks && (i + 1 == count || one_in(3))) packet.ack_request();
      stream.push_back(packet.bytes());
    }
    return stream;
  }

  Stream of_request() {
    const uint32_t length = up_to(20 * kMtu);
    if (one_in(2))
      return message(of_type(Opcode::kRcWriteFirst), of_type(Opcode::kRcWriteOnly), psn_, length, one_in(2));
    // Pieces of any size; now and then too few, or memory that nobody has.
    std::vector<std::pair<uint32_t, uint32_t>> pieces;
    uint32_t room = length - std::min(length, one_in(40) ? kMtu : 0);
    for (const bool once = one_in(2); room > 0 && pieces.size() < 4;) {
      const uint32_t size = once || pieces.size() == 3 ? room : up_to(room);
      pieces.emplace_back(up_to(kSize - size), size);
      room -= size;
    }
    const bool bad = one_in(60);
    for (size_t k = 0; k < 2; ++k) {
      std::vector<queue::Sge> sges;
      for (const auto& [at, size] : pieces) sges.push_back(buffers_[k].sge(at, size));
      if (bad && !sges.empty()) sges.back().lkey ^= 0x100;
      if (hosts_[k].qp.state() == QpState::kRts) hosts_[k].post_receive(psn_, sges);
    }
    return message(of_type(Opcode::kRcSendFirst), of_type(Opcode::kRcSendOnly), psn_, length, one_in(2));
  }

  // The answer to a READ that both have posted and sent.
  Stream of_response() {
    const uint32_t length = 1 + up_to(20 * kMtu - 1), cut = up_to(length), at = up_to(kSize - length);
    std::vector<Seen> seen;
    for (size_t k = 0; k < 2; ++k) {
      const std::vector<queue::Sge> sges{buffers_[k].sge(at, cut), buffers_[k].sge(at + cut, length - cut)};
      hosts_[k].post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), sges);
      seen.emplace_back(hosts_[k]);
    }
    expect_same(seen[0], seen[1]);
    if (seen[0].sent.empty()) return {};
    const uint32_t psn = seen[0].sent.back().headers.bth.psn.value();
    return message(Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseOnly, psn, length - (one_in(60) ? 1 : 0),
                   false);
  }

  // What a network does to it.
  void spoil(Stream& stream) {
    if (stream.empty()) return;
    const auto at = [&](uint32_t i) { return stream.begin() + i; };
    const uint32_t i = up_to(static_cast<uint32_t>(stream.size()) - 1), what = up_to(9);
    if (what == 0) stream.erase(at(i));
    if (what == 1) stream.insert(at(i), stream[up_to(static_cast<uint32_t>(stream.size()) - 1)]);
    if (what == 2) std::swap(stream[i], stream.back());
    if (what == 3) {
      const Stream again(stream.begin(), at(i));
      stream.insert(stream.end(), again.begin(), again.end());
    }
  }

  void arrive(const Stream& stream) {
    const size_t most = 1 + up_to(30);
    hand_over(hosts_[0], stream, 0);
    hand_over(hosts_[1], stream, most);
    expect_same(Seen(hosts_[0]), Seen(hosts_[1]));
    ASSERT_EQ(buffers_[0].bytes, buffers_[1].bytes);
  }

  bool goes_on() const { return hosts_[0].qp.state() == QpState::kRts && !HasFatalFailure(); }

  const QpType type_ = std::get<0>(GetParam());
  std::mt19937 random_;
  std::array<ScriptedQp, 2> hosts_{ScriptedQp({.type = type_}), ScriptedQp({.type = type_})};
  std::array<Buffer, 2> buffers_;
  uint32_t psn_ = kRqPsn;
  uint32_t seed_ = 1;
};

TEST_P(OnMiddlePackets, IsOnPacketForEach) {
  for (int step = 0; step < 100 && goes_on(); ++step) {
    SCOPED_TRACE(step);
    const bool response = type_ == QpType::kRc && one_in(3);
    const Stream whole = response ? of_response() : of_request();
    Stream stream = whole;
    spoil(stream);
    arrive(stream);
    // The peer goes back to what is missing, until all of it has come.
    while (type_ == QpType::kRc && goes_on()) {
      const auto position = hosts_[0].qp.position();
      const wire::Psn wanted = response ? position.sent : position.received;
      Stream rest;
      for (const Bytes& packet : whole) {
        if (wire::Psn::distance(wanted, wire::BthView::at(packet.data()).psn()) >= 0) rest.push_back(packet);
      }
      if (rest.empty()) break;
      arrive(rest);
      const auto after = hosts_[0].qp.position();
      if (after.received == position.received && after.sent == position.sent) break;
    }
    if (!response) psn_ += static_cast<uint32_t>(whole.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, OnMiddlePackets,
                         testing::Combine(testing::Values(QpType::kRc, QpType::kUc), testing::Range(1u, 101u)));

// Packets that are alike and break a rule are refused as if each had come alone. Of both hosts the second takes
// them together.
class OnMiddlePacketsByRule : public testing::Test {
 protected:
  OnMiddlePacketsByRule() {
    for (size_t k = 0; k < 2; ++k) {
      hosts_[k].to_rts();
      buffers_[k] = hosts_[k].make_buffer(64 * kMtu);
    }
  }
  void arrive(const Stream& stream) {
    hand_over(hosts_[0], stream, 0);
    hand_over(hosts_[1], stream, 16);
    expect_same(Seen(hosts_[0]), Seen(hosts_[1]));
    ASSERT_EQ(buffers_[0].bytes, buffers_[1].bytes);
  }
  void change_access(uint32_t access) {
    QpAttributes attributes = default_attributes();
    attributes.access = access;
    for (ScriptedQp& host : hosts_) ASSERT_EQ(host.modify(QpState::kRts, kQpState | kQpAccessFlags, attributes), 0);
  }
  PeerPacket first(uint32_t length) const {
    return request(Opcode::kRcWriteFirst, kRqPsn, pattern(kMtu)).reth(kIova, buffers_[0].key, length);
  }
  static Stream middles(Opcode opcode, uint32_t psn, uint32_t count, uint32_t size = kMtu) {
    Stream stream;
    for (uint32_t i = 0; i < count; ++i) stream.push_back(request(opcode, psn + i, pattern(size, i)).bytes());
    return stream;
  }
  // Of `length` bytes, of which the first packet has come.
  void begin_read(uint32_t length) {
    for (size_t k = 0; k < 2; ++k) {
      hosts_[k].post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffers_[k].sge(0, length)});
      hosts_[k].pull();
    }
    arrive({read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)).bytes()});
  }
  QpState state() const { return hosts_[1].qp.state(); }

  std::array<ScriptedQp, 2> hosts_;
  std::array<Buffer, 2> buffers_;
};

TEST_F(OnMiddlePacketsByRule, AreTakenTogether) {
  ScriptedQp& host = hosts_[1];
  host.receive(first(20 * kMtu));
  EXPECT_EQ(hand_over(host, middles(Opcode::kRcWriteMiddle, kRqPsn + 1, 18), 6), 15u);
  host.receive(request(Opcode::kRcWriteLast, kRqPsn + 19, pattern(kMtu)));
  host.post_receive(1, {buffers_[1].sge(0, 20 * kMtu)});
  host.receive(request(Opcode::kRcSendFirst, kRqPsn + 20, pattern(kMtu)));
  EXPECT_EQ(hand_over(host, middles(Opcode::kRcSendMiddle, kRqPsn + 21, 18), 16), 16u);
  host.post(rdma(WrOpcode::kRdmaRead, 1, kRemote, kRkey), {buffers_[1].sge(0, 20 * kMtu)});
  host.pull();
  host.receive(read_response(Opcode::kRcReadResponseFirst, kSqPsn, pattern(kMtu)));
  EXPECT_EQ(hand_over(host, middles(Opcode::kRcReadResponseMiddle, kSqPsn + 1, 18), 16), 16u);
}

TEST_F(OnMiddlePacketsByRule, MoreThanTheWriteAnnounced) {
  arrive({first(6 * kMtu + 1).bytes()});
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 1, 8));
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, AMiddlePacketThatEndsTheWrite) {
  arrive({first(6 * kMtu).bytes()});
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 1, 5));
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, WhenTheRightWasTakenAway) {
  arrive({first(20 * kMtu).bytes()});
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 1, 3));
  change_access(memory::kRemoteRead);
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 3, 4));  // the first one is a duplicate
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, OfAnotherLengthBehindADuplicateOfIt) {
  arrive({first(20 * kMtu).bytes()});
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 1, 3));
  arrive(middles(Opcode::kRcWriteMiddle, kRqPsn + 3, 4, kMtu / 2));
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, MoreThanTheReceiveRequestHasRoomFor) {
  for (size_t k = 0; k < 2; ++k) hosts_[k].post_receive(1, {buffers_[k].sge(0, 5 * kMtu)});
  arrive({request(Opcode::kRcSendFirst, kRqPsn, pattern(kMtu)).bytes()});
  arrive(middles(Opcode::kRcSendMiddle, kRqPsn + 1, 6));
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, MoreThanWasRead) {
  begin_read(6 * kMtu);
  arrive(middles(Opcode::kRcReadResponseMiddle, kSqPsn + 1, 5));
  EXPECT_EQ(state(), QpState::kErr);
}

TEST_F(OnMiddlePacketsByRule, ReadDataOfAnotherLengthBehindAnOldResponseOfIt) {
  begin_read(20 * kMtu);
  arrive(middles(Opcode::kRcReadResponseMiddle, kSqPsn + 1, 3));
  arrive(middles(Opcode::kRcReadResponseMiddle, kSqPsn + 3, 4, kMtu / 2));
  EXPECT_EQ(state(), QpState::kErr);
}

// That they all ask for an acknowledgement makes it urgent in the end.
TEST_F(OnMiddlePacketsByRule, NothingWhereEachAsksForAnAcknowledgement) {
  constexpr uint32_t kCount = Responder::kAckCoalesce;
  Stream stream{first(40 * kMtu).bytes()};
  for (uint32_t i = 1; i <= kCount; ++i) {
    stream.push_back(request(Opcode::kRcWriteMiddle, kRqPsn + i, pattern(kMtu, i)).ack_request().bytes());
  }
  for (size_t k = 0; k < 2; ++k) {
    hand_over(hosts_[k], stream, 16 * k);
    EXPECT_TRUE(hosts_[k].qp.ack_urgent());
  }
  arrive({});
}

// The memory of the sixth packet takes no writes: those before it are there, and the NAK names it.
TEST(OnMiddlePacketsFault, EndsWhereTheMemoryEnds) {
  ASSERT_EQ(memory::install_fault_handler(), 0);
  constexpr size_t kPage = 4096, kSize = 2 * kPage;
  auto* const base =
      static_cast<uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(mprotect(base + kPage, kPage, PROT_READ), 0);
  ScriptedQp host;
  host.to_rts();
  const uint32_t key = host.mrs.add({.base = base, .iova = kIova, .length = kSize, .access = kAllRemote, .pd = kPd});
  const uint64_t begin = kPage - 5 * kMtu;
  Stream stream;
  for (uint32_t i = 0; i < 10; ++i) {
    const Opcode opcode = i == 0 ? Opcode::kRcWriteFirst : i == 9 ? Opcode::kRcWriteLast : Opcode::kRcWriteMiddle;
    stream.push_back(
        PeerPacket(opcode, kRqPsn + i).payload(pattern(kMtu, i)).reth(kIova + begin, key, 10 * kMtu).bytes());
  }
  EXPECT_EQ(hand_over(host, stream, 16), 0u);
  EXPECT_THAT(host.drain(), testing::ElementsAre(IsNak(wire::NakCode::kRemoteOperationalError, kRqPsn + 5)));
  EXPECT_EQ(host.count(Counter::kMemoryFaults), 1u);
  EXPECT_EQ(host.count(Counter::kRxRequests), 6u);
  EXPECT_EQ(host.qp.state(), QpState::kErr);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Bytes(base + begin + i * kMtu, base + begin + (i + 1) * kMtu), pattern(kMtu, i)) << i;
  }
  munmap(base, kSize);
}

}  // namespace
}  // namespace uroce::transport
