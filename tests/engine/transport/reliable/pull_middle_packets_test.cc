// SPDX-License-Identifier: BSD-2-Clause
// Packets that are made from the one before them, one or several at a time, are those that would be made from nothing.
#include <numeric>
#include <random>
#include <tuple>

#include "tests/engine/transport/scripted_qp.h"

namespace uroce::transport {
namespace {

using namespace std::chrono_literals;
using namespace test;
using queue::WrOpcode;

// All that leaves, with what it is made of. `most_repeated`: so many at a time by pull_middle_packets(), where that
// gives some.
struct Pulled {
  std::vector<Bytes> headers;
  std::vector<std::vector<std::pair<uint64_t, uint32_t>>> pieces;
  std::vector<std::tuple<bool, uint8_t, io::SendReason>> marks;
  size_t alike = 0;
};

Pulled pull_all(ScriptedQp& host, const Buffer& buffer, size_t most_repeated, size_t at_most) {
  std::vector<io::TxPacket> packets(at_most);
  Pulled pulled;
  size_t count = 0;
  while (count < at_most) {
    const std::span<io::TxPacket> places = std::span(packets).subspan(count);
    size_t alike = 0;
    if (count > 0) {
      const auto few = places.first(std::min(most_repeated, places.size()));
      alike = host.qp.pull_middle_packets(packets[count - 1], few, host.now);
      EXPECT_LE(alike, few.size());
    }
    if (alike == 0 && !host.qp.pull(places.front(), host.now)) break;
    pulled.alike += alike;
    count += std::max<size_t>(alike, 1);
  }
  for (const io::TxPacket& out : std::span(packets).first(count)) {
    pulled.headers.emplace_back(out.header.begin(), out.header.begin() + out.header_size);
    std::vector<std::pair<uint64_t, uint32_t>> pieces;
    for (size_t k = 0; k < out.fragment_count; ++k) {
      pieces.emplace_back(out.fragments[k].data - buffer.bytes.data(), out.fragments[k].size);
    }
    pulled.pieces.push_back(std::move(pieces));
    pulled.marks.emplace_back(out.alone, out.pad, out.reason);
    EXPECT_EQ(out.payload_size, std::accumulate(out.fragments.begin(), out.fragments.begin() + out.fragment_count, 0u,
                                                [](uint32_t sum, const io::Fragment& f) { return sum + f.size; }));
  }
  return pulled;
}

class PullMiddlePackets : public testing::TestWithParam<uint32_t> {};

TEST_P(PullMiddlePackets, GivesThePacketsOfPull) {
  SCOPED_TRACE(GetParam());
  std::mt19937 random(GetParam());
  const auto up_to = [&random](uint32_t most) { return std::uniform_int_distribution<uint32_t>(0, most)(random); };
  std::array<ScriptedQp, 2> hosts;
  std::array<Buffer, 2> buffers;
  std::array<RunTrial, 2> trials;
  std::array<congestion::Controller, 2> controllers;
  const bool in_runs = up_to(1) == 1, controlled = up_to(3) > 0;
  for (size_t k = 0; k < 2; ++k) {
    buffers[k] = hosts[k].make_buffer(64 * kMtu);
    if (controlled) hosts[k].qp.obey(&controllers[k]);
    hosts[k].to_rts();
    if (in_runs) hosts[k].qp.share_runs(&trials[k], 20);
  }
  size_t alike = 0;
  uint32_t sent = 0, acknowledged = 0, asked = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    const uint32_t what = up_to(9), a = up_to(0xffff), b = up_to(0xffff), c = up_to(0xffff);
    const uint32_t length = (1 + b % 12) * kMtu - c % 7;
    const uint32_t answered = acknowledged + 1 + (sent > acknowledged ? a % (sent - acknowledged) : 0);
    for (size_t k = 0; k < 2; ++k) {
      ScriptedQp& host = hosts[k];
      const Buffer& buffer = buffers[k];
      if (what < 4 && host.qp.state() == QpState::kRts && step < 250) {
        static constexpr std::array kOpcodes{WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImmediate};
        std::vector<queue::Sge> sges;
        uint32_t at = a % kMtu;
        const uint32_t pieces = 1 + b % 3;
        for (uint32_t i = 0; i < pieces; ++i) {
          const uint32_t size = (c >> i) % (20 * kMtu) + 1;
          sges.push_back(buffer.sge(at, size));
          at += size + (b % 5 == 0 ? 16 : 0);  // sometimes they adjoin
        }
        host.post(work(kOpcodes[a % 3], step), sges);
      } else if (what == 7 && sent > acknowledged) {
        host.receive(ack(kSqPsn + answered - 1));
      } else if (what == 8 && sent > acknowledged) {
        host.receive(nak(wire::NakCode::kPsnSequenceError, kSqPsn + answered - 1));
      } else if (what == 6) {  // what leaves ahead of requests: responses, a NAK, a CNP
        if (a % 3 == 0) host.receive(read_request(kRqPsn + asked, buffer.iova, buffer.key, length));
        if (a % 3 == 0 && c % 3 == 0) host.receive(read_request(kRqPsn + asked, buffer.iova, buffer.key, length));
        if (a % 3 == 1) host.receive(read_request(kRqPsn + asked + 1000, buffer.iova, buffer.key, kMtu));
        if (a % 3 == 2) host.qp.on_congestion_mark(host.now);
      } else if (what == 9) {
        host.now += std::chrono::microseconds(a);
        host.qp.on_timer(host.now);
      }
    }
    if (what == 6 && a % 3 == 0) asked += 1 + b % 12;
    const size_t at_most = 1 + up_to(150);
    const Pulled plain = pull_all(hosts[0], buffers[0], 0, at_most);
    const Pulled quick = pull_all(hosts[1], buffers[1], 1 + up_to(step % 70), at_most);
    ASSERT_EQ(plain.headers, quick.headers) << step;
    ASSERT_EQ(plain.pieces, quick.pieces) << step;
    ASSERT_EQ(plain.marks, quick.marks) << step;
    ASSERT_EQ(hosts[0].qp.deadline(), hosts[1].qp.deadline()) << step;
    ASSERT_EQ(hosts[0].qp.wants_to_send(hosts[0].now), hosts[1].qp.wants_to_send(hosts[1].now)) << step;
    ASSERT_EQ(hosts[0].count(Counter::kTxRequests), hosts[1].count(Counter::kTxRequests));
    alike += quick.alike;
    if (what == 7 && sent > acknowledged) acknowledged = answered;
    if (what == 8 && sent > acknowledged) acknowledged = answered - 1;
    for (const Bytes& header : plain.headers) {
      const auto bth = wire::BthView::at(header.data());
      if (wire::opcode_info(bth.opcode()).request) sent = std::max(sent, bth.psn().value() + 1 - kSqPsn);
    }
    ASSERT_EQ(hosts[0].sends().size(), hosts[1].sends().size());
  }
  EXPECT_GT(alike, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PullMiddlePackets, testing::Range(1u, 41u));

}  // namespace
}  // namespace uroce::transport
