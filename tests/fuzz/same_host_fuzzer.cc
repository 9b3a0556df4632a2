// SPDX-License-Identifier: BSD-2-Clause
// The rings between processes of one host when one of the processes is hostile: it writes what it likes to its memory,
// at any time, rings as often as it likes, and comes and goes. Input: operations, a byte each, with what they read.
//
// Checked: what arrives lies in memory that can be read and is within its bounds; with an honest process packets go
// on in both directions, whole and in order, while the hostile one is there and afterwards.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "engine/io/memory_link.h"
#include "engine/io/same_host/same_host.h"
#include "tests/engine/io/same_host/hostile.h"
#include "tests/engine/io/same_host/peer_pair.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/input.h"
#include "wire/bth.h"
#include "wire/bytes.h"
#include "wire/ip_udp.h"

namespace uroce::fuzz {
namespace {

constexpr uint32_t kRangeBits = 14;
constexpr uint32_t kVictim = 1, kHonest = 2, kHostile = 3;
constexpr size_t kPrefix = 40;  // in front of the BTH in a record
constexpr size_t kMostOperations = 400;
constexpr size_t kMostPayload = size_t{64} << 10;

Time now;

wire::IpAddress address(uint8_t last) {
  const uint8_t bytes[4] = {192, 0, 2, last};
  return wire::IpAddress::v4(bytes);
}
// All processes of a host have its addresses.
const wire::IpAddress kOwn = address(1), kOther = address(2);

uint8_t content(uint32_t psn, size_t at) {
  return static_cast<uint8_t>(psn * 31 + at);
}

// A SEND, only, to a process.
class Packet {
 public:
  Packet(uint32_t to, uint32_t psn, size_t size) : payload_(size) {
    envelope_.source = kOwn;
    envelope_.destination = kOther;
    envelope_.source_port = 0xc000;
    for (size_t i = 0; i < size; ++i) payload_[i] = content(psn, i);
    wire::Bth bth;
    bth.opcode = wire::Opcode::kRcSendOnly;
    bth.dest_qp = wire::Qpn(to << kRangeBits | 77);
    bth.psn = wire::Psn(psn);
    bth.pad = static_cast<uint8_t>((4 - size % 4) % 4);
    packet_.envelope = &envelope_;
    packet_.payload_size = static_cast<uint32_t>(size);
    packet_.header_size = wire::Bth::kSize;
    packet_.pad = bth.pad;
    packet_.to_this_host = true;
    bth.emit(packet_.header.data());
    packet_.fragments[0] = {payload_.data(), static_cast<uint32_t>(size)};
    packet_.fragment_count = 1;
  }
  std::span<io::TxPacket> burst() { return {&packet_, 1}; }

 private:
  wire::Envelope envelope_;
  std::vector<uint8_t> payload_;
  io::TxPacket packet_;
};

struct Process {
  explicit Process(std::unique_ptr<io::MemoryEnd> end) {
    io = std::make_unique<io::SameHost>(std::move(end), io::SameHost::Config{.range_bits = kRangeBits,
                                                                             .meet = [](uint32_t) {},
                                                                             .bury = [] {},
                                                                             .peers = peers,
                                                                             .now = [] { return now; }});
  }
  std::span<const io::RxPacket> receive(size_t most) {
    const std::span<const io::RxPacket> packets(received.data(), io->receive(std::span(received).first(most)));
    for (const io::RxPacket& packet : packets) look_at(packet);
    return packets;
  }
  // As whoever gets it would use it.
  void look_at(const io::RxPacket& packet) {
    check(packet.psns >= 1 && packet.psns <= 65536, "a packet takes so many PSNs");
    check(packet.ib.size() >= wire::kBthSize, "a packet has a BTH");
    check(packet.ib.size() + packet.apart.size() <= kMostPayload + io::TxPacket::kMaxHeaderSize + 4,
          "a packet is no longer than the longest");
    uint8_t sum = 0;
    for (const uint8_t byte : packet.ib) sum = static_cast<uint8_t>(sum + byte);
    for (const uint8_t byte : packet.apart) sum = static_cast<uint8_t>(sum + byte);
    seen += sum;
  }

  std::shared_ptr<io::PeerExchange> peers = std::make_shared<io::PeerExchange>();
  std::unique_ptr<io::SameHost> io;
  std::array<io::RxPacket, 64> received;
  uint64_t seen = 0;
};

bool is(const io::RxPacket& packet, uint32_t psn, size_t size) {
  if (packet.ib.size() < wire::kBthSize || wire::load_be24(&packet.ib[9]) != psn) return false;
  const size_t begun = std::min(size, packet.ib.size() - wire::kBthSize);
  if (begun + packet.apart.size() < size) return false;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = i < begun ? packet.ib[wire::kBthSize + i] : packet.apart[i - begun];
    if (byte != content(psn, i)) return false;
  }
  return true;
}

class Session {
 public:
  Session(Input& input, std::pair<std::unique_ptr<io::MemoryEnd>, std::unique_ptr<io::MemoryEnd>> link)
      : in_(input), victim_(std::move(link.first)), honest_(std::move(link.second)) {
    now = Time{};
    io::PeerEnd one, other;
    check(io::test::make_peers(one, other) == 0, "there is memory");
    check(victim_.peers->add(kHonest, std::move(one)) && honest_.peers->add(kVictim, std::move(other)), "they meet");
    hostile_comes();
  }

  void run() {
    for (size_t i = 0; i < kMostOperations && !in_.empty(); ++i) operate();
    hostile_.reset();
    victim_.peers->part(kHostile);
    victim_.io->show_packets(false);
    for (int i = 0; i < 4; ++i) exchange(true);
    victim_.io->prepare_to_wait();
    while (!victim_.peers->bury()) continue;
  }

 private:
  void operate() {
    switch (in_.byte() % 16) {
      case 0:
      case 1:
        return write_record();
      case 2:
        return lie();
      case 3:
        return scribble();
      case 4:
      case 5:
        victim_.receive(1 + in_.below(static_cast<uint32_t>(victim_.received.size())));
        return;
      case 6:
      case 7:
        return send(in_.below(8), in_.word() % 4097);
      case 8:
        return exchange(in_.flag());
      case 9:
        victim_.io->prepare_to_wait();
        return;
      case 10:
        for (uint32_t i = in_.below(20); i > 0; --i) ring_bell(hostile_->end.bell.get());
        return;
      case 11:
        return hostile_comes();
      case 12:
        return in_.flag() ? victim_.peers->part_from_strangers() : victim_.peers->part(kHostile);
      case 13:
        return victim_.io->show_packets(in_.flag());
      case 14:
        return victim_.io->set_local_addresses(std::array{kOwn, kOther});
      default:
        now += std::chrono::microseconds(in_.word());
    }
  }

  void hostile_comes() {
    io::PeerEnd one, other;
    check(io::test::make_peers(one, other) == 0, "there is memory");
    one.of_stranger = true;
    victim_.peers->bury();
    victim_.peers->add(kHostile, std::move(one));
    hostile_.emplace(std::move(other));
    writer_.emplace(hostile_->writer());
  }

  // What could be a packet, as far as the input does not say otherwise.
  void write_record() {
    const size_t size = in_.one_of({60u, 40u, 56u, 200u, 600u, 4200u, 65700u, 1u}) + in_.below(4);
    uint8_t* const at = writer_->reserve(size);
    if (at == nullptr) return;
    std::fill_n(at, size, in_.byte());
    if (size > kPrefix + wire::kBthSize) {
      std::memcpy(at, &kOwn, sizeof(kOwn));
      std::memcpy(at + sizeof(kOwn), &kOther, sizeof(kOther));
      at[kPrefix - 4] = in_.byte() & 1;                                 // it has an ICRC
      wire::store_be16(at + kPrefix - 2, in_.flag() ? in_.word() : 0);  // PSNs besides the first
      at[kPrefix] = in_.byte();                                         // its opcode
    }
    for (uint32_t i = in_.below(4); i > 0; --i) at[in_.word() % size] = in_.byte();
    writer_->add(size);
    if (writer_->publish() || in_.flag()) ring_bell(hostile_->end.bell.get());
  }

  void lie() {
    io::PeerWords& words = hostile_->words();
    const uint64_t near = in_.flag() ? words.tail.load() : hostile_->theirs->words().tail.load();
    const uint64_t value = in_.flag() ? near + in_.word() - 1000 : uint64_t{in_.dword()} << 32 | in_.dword();
    switch (in_.below(4)) {
      case 0:
        words.tail = value;
        return;
      case 1:
        words.head = value;
        return;
      case 2:
        words.sleeps = static_cast<uint32_t>(value);
        return;
      default:
        words.takes_long = static_cast<uint32_t>(value) & 1;
    }
  }

  void scribble() {
    std::array<uint8_t, 16> bytes;
    const size_t at = (in_.flag() ? in_.word() : in_.dword()) % (io::kRingSize - bytes.size());
    const std::span<uint8_t> some = std::span(bytes).first(1 + in_.below(bytes.size()));
    in_.fill(some);
    std::memcpy(hostile_->end.own->ring() + at, some.data(), some.size());
  }

  void send(uint32_t count, size_t size) {
    for (uint32_t i = 0; i < count; ++i) {
      Packet packet(kHostile, next_psn_++, size);
      victim_.io->send(packet.burst());
    }
  }

  // A packet between the victim and the honest one, in a while.
  void exchange(bool to_victim) {
    Process& from = to_victim ? honest_ : victim_;
    Process& to = to_victim ? victim_ : honest_;
    const uint32_t psn = next_psn_++;
    const size_t size = in_.word() % 4097;
    Packet packet(to_victim ? kVictim : kHonest, psn, size);
    check(from.io->send(packet.burst()) == 1, "there is room");
    for (int looks = 0; looks < 10'000; ++looks, now += std::chrono::microseconds(1)) {
      const auto arrived = to.receive(to.received.size());
      if (std::any_of(arrived.begin(), arrived.end(), [&](const auto& each) { return is(each, psn, size); })) return;
    }
    check(false, "what an honest process sends arrives");
  }

  Input& in_;
  Process victim_, honest_;
  std::optional<io::test::Hostile> hostile_;
  std::optional<io::RingWriter> writer_;
  uint32_t next_psn_ = 0;
};

}  // namespace
}  // namespace uroce::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::Session(input, uroce::io::make_memory_link()).run();
  return 0;
}
