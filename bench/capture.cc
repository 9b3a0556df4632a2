// SPDX-License-Identifier: BSD-2-Clause
// What the capture stage costs per packet sent and received, over a memory loop, where nothing else takes time but
// making and parsing the frame with its ICRC: bare, wrapped while nobody listens, and while a capture writes to
// /dev/null. The variants take turns, so that a slower moment of the machine is everybody's; medians, and their ratios
// to bare.
#include "capture/capture.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "capture/session.h"
#include "engine/io/memory_link.h"
#include "wire/bth.h"
#include "wire/icrc.h"

namespace uroce::io {
namespace {

constexpr size_t kBurst = 32;
constexpr int kBursts = 200;  // in one turn
constexpr int kTurns = 101;

struct Variant {
  std::string name;
  std::unique_ptr<PacketIo> io;
  std::unique_ptr<CaptureSession> session{};
  std::vector<double> turns{};  // ns per packet
};

Variant bare() {
  return {"bare", make_memory_loop()};
}

Variant wrapped(const std::string& name, bool listening, uint32_t snap) {
  const auto tap = std::make_shared<CaptureTap>(
      TapInfo{.netdev = "bench0", .device = "uroce_bench0", .description = "", .mac = {}, .addresses = {}});
  Variant variant{name, std::make_unique<Capture>(make_memory_loop(), tap)};
  if (!listening) return variant;
  CaptureSettings settings;
  settings.filter.snap = snap;
  variant.session =
      std::make_unique<CaptureSession>(settings, std::make_unique<CaptureFiles>("/dev/null", 0, 0), nullptr);
  if (variant.session->start() == 0) variant.session->add_tap(tap);
  return variant;
}

std::vector<io::TxPacket> make_burst(const wire::Envelope& envelope, const std::vector<uint8_t>& payload) {
  io::TxPacket packet;
  packet.envelope = &envelope;
  wire::Bth bth;
  bth.opcode = wire::Opcode::kRcSendOnly;
  bth.emit(packet.header.data());
  packet.header_size = wire::Bth::kSize;
  packet.payload_size = static_cast<uint32_t>(payload.size());
  packet.fragments[0] = {payload.data(), packet.payload_size};
  packet.fragment_count = 1;
  return std::vector<io::TxPacket>(kBurst, packet);
}

// As Datapath does it: send, receive, check, and say what became of each packet if somebody wants to know.
void move_packets(PacketIo& io, std::span<io::TxPacket> burst, Counters& counters) {
  std::array<RxPacket, kBurst> received;
  io.send(burst);
  io.flush();
  const size_t count = io.receive(received);
  const bool watched = io.wants_verdicts();
  std::array<uint64_t, kBurst> verdicts{};
  Counters::Snapshot before;
  for (size_t i = 0; i < count; ++i) {
    if (watched) counters.snapshot(before);
    counters.add(wire::icrc_matches(received[i].envelope, received[i].ib) ? Counter::kRxRequests
                                                                          : Counter::kDropBadIcrc);
    if (watched) verdicts[i] = counters.moved_since(before);
  }
  if (watched) io.on_verdicts(std::span(verdicts).first(count));
}

double one_turn(PacketIo& io, std::span<io::TxPacket> burst, Counters& counters) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBursts; ++i) move_packets(io, burst, counters);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / (kBursts * static_cast<double>(kBurst));
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// `variants` in turns; the first is the reference.
void compare(size_t size, std::vector<Variant> variants) {
  wire::Envelope envelope;
  const uint8_t address[4] = {192, 0, 2, 1};
  envelope.source = envelope.destination = wire::IpAddress::v4(address);
  const std::vector<uint8_t> payload(size, 7);
  std::vector<io::TxPacket> burst = make_burst(envelope, payload);
  Counters counters;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Variant& variant : variants) variant.turns.push_back(one_turn(*variant.io, burst, counters));
  }
  const double reference = median(variants[0].turns);
  for (Variant& variant : variants) {
    const double time = median(variant.turns);
    std::printf("%6zu  %-20s %9.1f  %6.3f", size, variant.name.c_str(), time, time / reference);
    const uint64_t missed = variant.io->counters().capture_dropped;
    const double packets = 2.0 * kTurns * kBursts * kBurst;
    if (variant.session) std::printf("  %.1f %% missing in the capture", 100 * static_cast<double>(missed) / packets);
    std::printf("\n");
  }
}

template <class... Variants>
std::vector<Variant> list(Variants... variants) {
  std::vector<Variant> all;
  (all.push_back(std::move(variants)), ...);
  return all;
}

// Those that listen have threads of their own, so each is measured apart from the rest.
void measure(size_t size) {
  compare(size, list(bare(), wrapped("capture off", false, 0)));
  compare(size, list(bare(), wrapped("capture on", true, 0)));
  compare(size, list(bare(), wrapped("capture on, snap 96", true, 96)));
}

}  // namespace
}  // namespace uroce::io

int main() {
  std::printf("%6s  %-20s %9s  %6s\n", "bytes", "", "ns/packet", "ratio");
  for (const size_t size : {64, 1024, 4096}) uroce::io::measure(size);
  return 0;
}
