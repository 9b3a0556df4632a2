// SPDX-License-Identifier: BSD-2-Clause
#include "tests/engine/datapath/fault_rig.h"

#include <algorithm>
#include <cstring>

namespace uroce::engine::test {

using queue::Cqe;
using queue::WcStatus;
using queue::WrOpcode;
using wire::Operation;

namespace {

// One round of traffic of one side: lengths in bytes, places as offsets into FaultHost::kShared and kResult.
constexpr uint32_t kSendSize = 2 * kMtu + 100;
constexpr uint32_t kWriteSize = kMtu + 45;
constexpr uint32_t kReadSize = kMtu + 200;
constexpr uint32_t kWord = 504, kReadable = 512;
constexpr uint64_t kSendId = 1, kWriteId = 2, kReadId = 3, kAtomicId = 4, kReceiveId = 9;
// Where its requests are, counted from the first PSN of the first round.
constexpr uint32_t kReadPsn = 3 + 2, kAtomicPsn = kReadPsn + 2;

wire::Envelope envelope(bool v6, uint8_t from, uint8_t to) {
  const auto address = [v6](uint8_t last) {
    const uint8_t four[4] = {192, 0, 2, last};
    const uint8_t sixteen[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
    return v6 ? wire::IpAddress::v6(sixteen) : wire::IpAddress::v4(four);
  };
  wire::Envelope e;
  e.source_mac = {2, 0, 0, 0, 0, from};
  e.destination_mac = {2, 0, 0, 0, 0, to};
  e.source = address(from);
  e.destination = address(to);
  e.source_port = 0xc123;
  return e;
}

std::vector<Cqe> take(queue::CompletionQueue& cq) {
  return transport::test::ScriptedQp::take(cq);
}

// What changed from `before` to `after`, in words.
std::string difference(const FaultHost::Counts& before, const FaultHost::Counts& after) {
  std::string words;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    words += words.empty() ? "" : ", ";
    words += i == FaultHost::kMalformed ? "malformed frame" : Counters::text(static_cast<Counter>(i));
    words += " +" + std::to_string(after[i] - before[i]);
  }
  return words;
}

void post_round(FaultHost& from, const FaultHost& to, uint32_t seed) {
  using transport::test::rdma;
  const Bytes data = pattern(kSendSize, seed);
  std::copy(data.begin(), data.end(), from.at(FaultHost::kOutbox));
  const queue::Sge inbox = from.sge(FaultHost::kInbox, 1024);
  ASSERT_TRUE(from.qp->rq.post(kReceiveId, {&inbox, 1}));
  const auto sized = [](queue::SendWqe wqe, uint32_t size) {
    wqe.length = size;
    return wqe;
  };
  from.post(sized(transport::test::work(WrOpcode::kSend, kSendId), kSendSize), from.sge(FaultHost::kOutbox, kSendSize));
  from.post(sized(rdma(WrOpcode::kRdmaWrite, kWriteId, to.address(FaultHost::kShared), to.key), kWriteSize),
            from.sge(FaultHost::kOutbox, kWriteSize));
  from.post(sized(rdma(WrOpcode::kRdmaRead, kReadId, to.address(FaultHost::kShared + kReadable), to.key), kReadSize),
            from.sge(FaultHost::kResult, kReadSize));
  queue::SendWqe add = rdma(WrOpcode::kFetchAdd, kAtomicId, to.address(FaultHost::kShared + kWord), to.key);
  add.operands.compare_add = 1;
  from.post(sized(add, 8), from.sge(FaultHost::kResult + kReadable, 8));
}

}  // namespace

uint16_t internet_sum(std::span<const uint8_t> words, uint32_t initial) {
  uint32_t sum = initial;
  for (size_t i = 0; i < words.size(); i += 2) sum += wire::load_be16(&words[i]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

void fix_checksum(Bytes& frame) {
  uint8_t* ip = &frame[kIp];
  wire::store_be16(ip + 10, 0);
  wire::store_be16(ip + 10, static_cast<uint16_t>(~internet_sum({ip, wire::kIpv4Size})));
}

std::vector<wire::Opcode> rc_opcodes() {
  std::vector<wire::Opcode> opcodes;
  for (int code = 0; code < 256; ++code) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<wire::Opcode>(code));
    if (info.known && info.transport == wire::Transport::kRc) opcodes.push_back(static_cast<wire::Opcode>(code));
  }
  return opcodes;
}

FaultRig::FaultRig(bool v6) {
  transport::QpAttributes a = transport::test::default_attributes();
  a.dest_qpn = peer.qp->transport->qpn();
  victim.connect(*victim.qp, QpState::kRts, a, envelope(v6, 1, 2));
  a.dest_qpn = victim.qp->transport->qpn();
  std::swap(a.rq_psn, a.sq_psn);
  peer.connect(*peer.qp, QpState::kRts, a, envelope(v6, 2, 1));
  for (FaultHost* host : {&victim, &peer}) std::memset(host->at(FaultHost::kShared + kWord), 0, 8);
}

PeerPacket FaultRig::plausible(wire::Opcode opcode) const {
  const wire::OpcodeInfo& info = wire::opcode_info(opcode);
  uint32_t psn = kSqPsn;  // acknowledges the victim's first packet
  if (info.request) psn = kRqPsn + 1;
  if (info.operation == Operation::kReadResponse) psn = kSqPsn + kReadPsn;
  if (info.operation == Operation::kAtomicAcknowledge) psn = kSqPsn + kAtomicPsn;
  PeerPacket packet(opcode, psn);
  packet.reth(victim.address(FaultHost::kShared), victim.key, 18)
      .atomic(victim.address(FaultHost::kShared), victim.key, 1)
      .aeth(0x1f)
      .ack_request();
  return info.has_payload ? packet.payload(pattern(18, 77)) : packet;
}

void FaultRig::begin_traffic() {
  start_round();
  const Bytes first = peer.sent.front();
  peer.sent.erase(peer.sent.begin());
  std::vector<Bytes> held;
  held.swap(victim.sent);
  to_victim(first);
  // A QP's first packet asks for an ACK.
  ASSERT_LE(victim.sent.size(), 1u);
  victim.sent.insert(victim.sent.begin(), held.begin(), held.end());
}

void FaultRig::to_victim(Bytes frame) {
  on_the_way(frame);
  victim.receive(frame);
}

void FaultRig::start_round() {
  ++round_;
  post_round(victim, peer, round_);
  post_round(peer, victim, round_ + 100);
  victim.run();
  peer.run();
  ASSERT_FALSE(victim.sent.empty() || peer.sent.empty());
}

// Carries frames both ways until nobody sends any more.
void FaultRig::carry() {
  while (!victim.sent.empty() || !peer.sent.empty()) {
    std::vector<Bytes> forth, back;
    forth.swap(peer.sent);
    back.swap(victim.sent);
    for (Bytes& frame : forth) to_victim(std::move(frame));
    for (const Bytes& frame : back) peer.receive(frame);
  }
}

void FaultRig::expect_round(FaultHost& from, FaultHost& to) {
  const std::vector<Cqe> sends = take(from.send_cq);
  ASSERT_EQ(sends.size(), 4u);
  for (size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(sends[i].wr_id, kSendId + i);
    EXPECT_EQ(sends[i].status, WcStatus::kSuccess) << "wr_id " << sends[i].wr_id;
  }
  const std::vector<Cqe> receives = take(to.recv_cq);
  ASSERT_EQ(receives.size(), 1u);
  EXPECT_EQ(receives[0].wr_id, kReceiveId);
  EXPECT_EQ(receives[0].status, WcStatus::kSuccess);
  EXPECT_EQ(receives[0].byte_length, kSendSize);
  EXPECT_EQ(to.copy(FaultHost::kInbox, kSendSize), from.copy(FaultHost::kOutbox, kSendSize));
  EXPECT_EQ(to.copy(FaultHost::kShared, kWriteSize), from.copy(FaultHost::kOutbox, kWriteSize));
  EXPECT_EQ(from.copy(FaultHost::kResult, kReadSize), to.copy(FaultHost::kShared + kReadable, kReadSize));
  EXPECT_EQ(from.copy(FaultHost::kResult + kReadable, 8),
            (Bytes{static_cast<uint8_t>(round_ - 1), 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(to.copy(FaultHost::kShared + kWord, 8), (Bytes{static_cast<uint8_t>(round_), 0, 0, 0, 0, 0, 0, 0}));
}

void FaultRig::finish_round() {
  carry();
  expect_round(victim, peer);
  expect_round(peer, victim);
}

void FaultRig::expect_traffic_works() {
  SCOPED_TRACE("traffic after the attack");
  if (round_ > 0) finish_round();
  start_round();
  finish_round();
}

std::string FaultRig::attack(std::span<const uint8_t> bad) {
  const FaultHost::Counts before = victim.counts();
  const Bytes memory = victim.bytes;
  const size_t sent = victim.sent.size();
  victim.receive(bad);
  EXPECT_EQ(victim.sent.size(), sent) << "there was a reply";
  EXPECT_EQ(victim.qp->transport->state(), QpState::kRts);
  EXPECT_TRUE(victim.send_cq.empty() && victim.recv_cq.empty()) << "something completed";
  EXPECT_TRUE(victim.bytes == memory) << "memory changed";
  return difference(before, victim.counts());
}

}  // namespace uroce::engine::test
