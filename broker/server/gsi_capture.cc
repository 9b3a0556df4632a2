// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/gsi_capture.h"

#include <algorithm>
#include <array>

#include "base/counters.h"
#include "capture/capture.h"
#include "capture/hub.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/mad.h"

namespace uroce::broker {
namespace {

// In the words in which an engine's capture says it.
uint64_t verdict(std::optional<GsiCounter> dropped) {
  const auto bit = [](Counter counter) { return uint64_t{1} << static_cast<uint8_t>(counter); };
  if (!dropped) return 0;
  switch (*dropped) {
    case GsiCounter::kDropNobody:
      return bit(Counter::kDropUnknownQp);
    case GsiCounter::kDropPkey:
      return bit(Counter::kDropWrongPkey);
    case GsiCounter::kDropQkey:
      return bit(Counter::kDropWrongQkey);
    case GsiCounter::kDropIcrc:
      return bit(Counter::kDropBadIcrc);
    case GsiCounter::kDropNetdev:
    case GsiCounter::kDropForged:
      return bit(Counter::kDropWrongAddress);
    default:
      return bit(Counter::kDropParse);
  }
}

}  // namespace

GsiCapture::~GsiCapture() {
  for (const auto& [netdev, tap] : taps_) io::CaptureHub::instance().remove_tap(*tap);
}

void GsiCapture::follow() {
  const uint64_t generation = view_.generation();
  if (generation_ == generation) return;
  generation_ = generation;
  std::map<uint32_t, std::shared_ptr<io::CaptureTap>> now;
  for (const net::Netdev& netdev : view_.netdevs()) {
    const auto index = static_cast<uint32_t>(netdev.index);
    const auto known = taps_.find(index);
    const bool same = known != taps_.end() && known->second->info().netdev == netdev.name &&
                      known->second->info().mac == netdev.mac && known->second->info().addresses == netdev.addresses;
    now[index] = same
                     ? known->second
                     : std::make_shared<io::CaptureTap>(io::TapInfo{.netdev = netdev.name,
                                                                    .device = "QP1",
                                                                    .description = "the connection manager's datagrams",
                                                                    .mac = netdev.mac,
                                                                    .addresses = netdev.addresses,
                                                                    .kernel_routes = true});
  }
  for (const auto& [index, tap] : taps_) {
    const auto left = now.find(index);
    if (left == now.end() || left->second != tap) io::CaptureHub::instance().remove_tap(*tap);
  }
  for (const auto& [index, tap] : now) {
    const auto known = taps_.find(index);
    if (known == taps_.end() || known->second != tap) io::CaptureHub::instance().add_tap(tap);
  }
  taps_ = std::move(now);
}

io::CaptureTap* GsiCapture::listener(uint32_t netdev) const {
  const auto found = taps_.find(netdev);
  return found != taps_.end() && found->second->listening() ? found->second.get() : nullptr;
}

void GsiCapture::sent(uint32_t netdev, const wire::Envelope& envelope, std::span<const uint8_t> packet) {
  io::CaptureTap* const tap = listener(netdev);
  constexpr size_t kHeader = wire::Bth::kSize + wire::Deth::kSize;
  if (tap == nullptr || packet.size() < kHeader + wire::kMadSize) return;
  io::TxPacket shown;
  shown.envelope = &envelope;
  shown.source_qpn = wire::kGsiQpn;
  shown.header_size = kHeader;
  std::copy_n(packet.begin(), kHeader, shown.header.begin());
  shown.fragments[0] = {packet.data() + kHeader, static_cast<uint32_t>(wire::kMadSize)};
  shown.fragment_count = 1;
  shown.payload_size = wire::kMadSize;
  tap->sent({&shown, 1}, io::Capture::wall_clock());
}

void GsiCapture::received(const io::UdpArrival& arrival, std::span<const uint8_t> packet,
                          std::optional<GsiCounter> dropped) {
  io::CaptureTap* const tap = listener(static_cast<uint32_t>(arrival.ifindex));
  if (tap == nullptr) return;
  const io::RxPacket shown{.envelope = arrival.envelope, .ib = packet};
  const uint64_t why = verdict(dropped);
  tap->received({&shown, 1}, {&why, 1}, io::Capture::wall_clock());
}

void GsiCapture::within_host(const cm::Datagram& datagram) {
  io::CaptureTap* const tap = listener(datagram.netdev);
  if (tap == nullptr) return;
  std::array<uint8_t, wire::kGsiPacketSize + 4> packet{};  // the last four bytes become the ICRC
  wire::emit_gsi_packet(wire::Psn(0), datagram.mad, packet.data());
  const io::RxPacket shown{.envelope = {.source = datagram.source,
                                        .destination = datagram.destination,
                                        .source_port = wire::kRoceUdpPort,
                                        .dont_fragment = true,
                                        .traffic_class = datagram.traffic_class,
                                        .hop_limit = datagram.hop_limit},
                           .ib = packet,
                           .without_icrc = true,
                           .source_qpn = wire::kGsiQpn};
  const uint64_t fine = 0;
  tap->looped({&shown, 1}, {&fine, 1}, io::Capture::wall_clock());
}

}  // namespace uroce::broker
