// SPDX-License-Identifier: BSD-2-Clause
// Two engines' data paths with one RC QP each, connected to each other through frames that the test carries by hand: it
// may hold them back, and slip hostile ones in between. No threads, virtual time. For the tests of hostile packets
// (faults.md "On the wire").
//
// `victim` is under attack, `peer` is what it is connected to. Both sides send a message of every kind to the other per
// round of traffic; a round can be left half done while an attack goes on.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/datapath/datapath.h"
#include "engine/io/memory_link.h"
#include "tests/engine/transport/scripted_qp.h"
#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::engine::test {

using transport::QpState;
using transport::test::Bytes;
using transport::test::kMtu;
using transport::test::kRqPsn;
using transport::test::kSqPsn;
using transport::test::pattern;
using transport::test::PeerPacket;

// --- bytes of packets ------------------------------------------------------------------------------------------------

// Room for the ICRC is the last four bytes of `ib`. Straight from the definition, and so for any length, also one too
// short for a BTH.
inline void seal(const wire::Envelope& envelope, Bytes& ib) {
  constexpr size_t kMaskedByte = 4;  // FECN, BECN and reserved bits (IBTA 7.8.1)
  Bytes covered(ib.begin(), ib.end() - wire::kIcrcSize);
  if (covered.size() > kMaskedByte) covered[kMaskedByte] = 0xff;
  const uint32_t start = wire::icrc_start(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()));
  const uint32_t icrc = wire::icrc_finish(wire::crc32_update(start, covered.data(), covered.size()));
  wire::store_le32(ib.data() + covered.size(), icrc);
}

inline Bytes frame_of(const wire::Envelope& envelope, std::span<const uint8_t> ib) {
  Bytes frame(wire::frame_header_size(envelope));
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), frame.data());
  frame.insert(frame.end(), ib.begin(), ib.end());
  return frame;
}

inline Bytes sealed_frame(const wire::Envelope& envelope, Bytes ib) {
  seal(envelope, ib);
  return frame_of(envelope, ib);
}

// --- frames ----------------------------------------------------------------------------------------------------------

constexpr size_t kIp = wire::kEthernetSize;  // where the IP header is in an untagged frame
inline size_t udp_at(bool v6) {
  return kIp + (v6 ? wire::kIpv6Size : wire::kIpv4Size);
}
inline size_t ib_at(bool v6) {
  return udp_at(v6) + wire::kUdpSize;
}
// The one's complement sum of 16-bit words, not inverted (RFC 1071). `size` is even.
uint16_t internet_sum(std::span<const uint8_t> words, uint32_t initial = 0);
// Makes the IPv4 header checksum right for what 20 bytes of header now say, so that this is not what gives it away.
void fix_checksum(Bytes& frame);

// Every opcode of the QP's transport.
std::vector<wire::Opcode> rc_opcodes();

// --- one engine ------------------------------------------------------------------------------------------------------

class FaultHost {
 public:
  static constexpr size_t kGuard = 64;  // bytes on both sides of the region, never to be touched
  static constexpr size_t kRegion = 4096;
  // The region: where SENDs arrive, where the other side writes and reads, what is sent, where READs and atomics end.
  static constexpr uint32_t kInbox = 0, kShared = 1024, kOutbox = 2048, kResult = 3072;

  explicit FaultHost(uint32_t seed)
      : send_cq(256, nullptr),
        recv_cq(256, nullptr),
        tables([value = seed]() mutable { return value = value * 1664525 + 1013904223; }),
        datapath(tables) {
    auto [near, far] = io::make_memory_link();
    end_ = near.get();
    far_ = std::move(far);
    end_->record_sent(&sent);
    datapath.attach(std::move(near), nullptr);
    bytes = pattern(kGuard + kRegion + kGuard, seed);
    key = tables.regions.add({.base = bytes.data() + kGuard,
                              .iova = transport::test::kIova,
                              .length = kRegion,
                              .access = memory::kLocalWrite | transport::test::kAllRemote,
                              .pd = transport::test::kPd});
    qp = make_qp();
  }

  std::unique_ptr<Qp> make_qp() {
    QpInit init;
    init.pd = transport::test::kPd;
    init.max_send_wr = init.max_recv_wr = 16;
    init.send_cq = &send_cq;
    init.recv_cq = &recv_cq;
    wire::Qpn qpn;
    EXPECT_TRUE(tables.qpns[0].take(qpn));
    auto made =
        std::make_unique<Qp>(init, qpn, tables.regions, tables.srqs, datapath.completions(), datapath.counters());
    tables.qpns[0].bind(qpn, made.get());
    datapath.add(*made);
    Qp::Answers answers(transport::kMaxRdAtomic);
    made->remember_answers_in(answers);
    return made;
  }
  // From RESET as far as `state`; its packets leave in `envelope`.
  void connect(Qp& which, QpState state, const transport::QpAttributes& attributes, const wire::Envelope& envelope) {
    constexpr std::pair<QpState, uint32_t> kSteps[] = {{QpState::kInit, transport::test::kToInit},
                                                       {QpState::kRtr, transport::test::kToRtr},
                                                       {QpState::kRts, transport::test::kToRts}};
    which.path.envelope = envelope;
    transport::QpAttributes a = attributes;
    for (const auto& [next, mask] : kSteps) {
      if (next > state) break;
      a.state = next;
      ASSERT_EQ(which.transport->modify(a, mask, now), 0);
    }
    datapath.reschedule(which, now);
  }

  // Makes the frame arrive and runs the engine once.
  void receive(std::span<const uint8_t> frame) {
    ASSERT_TRUE(end_->inject_frame(frame));
    run();
  }
  void run() {
    std::array<io::RxPacket, 64> drained;
    datapath.iterate(Datapath::Caller::kBackground, now);
    while (far_->receive(drained) > 0) {
    }
  }

  uint8_t* at(uint32_t offset) { return bytes.data() + kGuard + offset; }
  Bytes copy(uint32_t offset, size_t size) { return Bytes(at(offset), at(offset) + size); }
  uint64_t address(uint32_t offset) const { return transport::test::kIova + offset; }
  queue::Sge sge(uint32_t offset, uint32_t size) const { return {address(offset), size, key}; }

  void post(queue::SendWqe wqe, const queue::Sge& sge) {
    queue::SendQueue::Slot slot;
    ASSERT_TRUE(qp->sq.reserve(0, slot));
    wqe.sge_count = 1;
    *slot.wqe = wqe;
    *slot.sges = sge;
    qp->sq.publish(1);
    datapath.ring(*qp);
  }

  // Every count the engine keeps of packets, by name.
  static constexpr size_t kMalformed = static_cast<size_t>(Counter::kCount);
  using Counts = std::array<uint64_t, kMalformed + 1>;
  Counts counts() const {
    Counts all;
    for (size_t i = 0; i < kMalformed; ++i) all[i] = datapath.counters().get(static_cast<Counter>(i));
    all[kMalformed] = end_->counters().rx_malformed;
    return all;
  }

  Time now{std::chrono::seconds(1)};
  std::vector<Bytes> sent;  // frames
  Bytes bytes;
  uint32_t key = 0;
  queue::CompletionQueue send_cq, recv_cq;
  Tables tables;
  Datapath datapath;
  std::unique_ptr<Qp> qp;

 private:
  io::MemoryEnd* end_;  // the data path has it
  std::unique_ptr<io::MemoryEnd> far_;
};

// --- both, and the attack --------------------------------------------------------------------------------------------

class FaultRig {
 public:
  explicit FaultRig(bool v6 = false);

  // What a hostile packet needs to look like one of the peer's: its envelope, and the bytes (not sealed).
  const wire::Envelope& from_peer() const { return peer.qp->path.envelope; }
  Bytes ib(const PeerPacket& packet) const {
    Bytes bytes = packet.bytes();
    wire::store_be24(&bytes[5], victim.qp->transport->qpn().value());
    return bytes;
  }
  Bytes frame(const PeerPacket& packet) const { return sealed_frame(from_peer(), ib(packet)); }
  // A packet of any RC opcode, good enough to be executed where the connection stands after begin_traffic().
  PeerPacket plausible(wire::Opcode opcode) const;
  // The next request of the peer: writes `data` to kShared.
  PeerPacket write(uint32_t psn, const Bytes& data) const {
    return PeerPacket(wire::Opcode::kRcWriteOnly, psn)
        .reth(victim.address(FaultHost::kShared), victim.key, static_cast<uint32_t>(data.size()))
        .payload(data)
        .ack_request();
  }

  // A round of traffic that stops when the victim has the first packet of a SEND, and its own requests are on the way.
  void begin_traffic();
  // Lets it end, checks every byte and completion, and does another full round.
  void expect_traffic_works();

  // Makes the frame arrive at the victim and checks that it has no effect: no reply, no completion, no state, no
  // memory. What it counts as, in words: "drop: ICRC mismatch +1".
  std::string attack(std::span<const uint8_t> bad);
  void expect_dropped(std::span<const uint8_t> bad, Counter reason) {
    EXPECT_EQ(attack(bad), std::string(Counters::text(reason)) + " +1");
  }
  void expect_malformed(std::span<const uint8_t> bad) { EXPECT_EQ(attack(bad), "malformed frame +1"); }

  // What happens to the peer's frames before the victim gets them.
  std::function<void(Bytes& frame)> on_the_way = [](Bytes&) {};

  FaultHost victim{0x5eed};
  FaultHost peer{0xbeef};

 private:
  void to_victim(Bytes frame);
  void start_round();
  void carry();
  void finish_round();
  void expect_round(FaultHost& from, FaultHost& to);

  uint32_t round_ = 0;
};

}  // namespace uroce::engine::test
