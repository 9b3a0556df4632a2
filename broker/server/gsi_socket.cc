// SPDX-License-Identifier: BSD-2-Clause
#include "broker/server/gsi_socket.h"

#include <algorithm>

#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/icrc.h"
#include "wire/mad.h"

namespace uroce::broker {
namespace {

constexpr size_t kMessageSize = 65536;
constexpr size_t kPacketSize = wire::kGsiPacketSize + wire::kIcrcSize;
constexpr wire::Qpn kSmiQpn{0};

}  // namespace

GsiSocket::GsiSocket(net::HostNet& host, GsiCapture& capture, const std::optional<io::FaultSpec>& faults, Take take)
    : host_(host),
      capture_(capture),
      faults_(faults.value_or(io::FaultSpec{})),
      take_(std::move(take)),
      random_(faults_.seed),
      bytes_(std::make_unique_for_overwrite<uint8_t[]>(kMessages * kMessageSize)) {}

// --- from the network ------------------------------------------------------------------------------------------------

uint32_t GsiSocket::receive(int socket, Time now) {
  for (size_t i = 0; i < kMessages; ++i) {
    io::prepare_receive(slots_[i], {&bytes_[i * kMessageSize], kMessageSize}, headers_[i].msg_hdr);
  }
  const int received = recvmmsg(socket, headers_.data(), kMessages, MSG_DONTWAIT, nullptr);
  uint32_t nobodys = 0;
  for (size_t i = 0; i < static_cast<size_t>(std::max(received, 0)); ++i) {
    io::UdpArrival arrival;
    uint32_t lost = 0;
    if (!io::parse_received(headers_[i].msg_hdr, headers_[i].msg_len, arrival, lost)) {
      counters_.add(GsiCounter::kDropMalformed);
      continue;
    }
    for (auto left = arrival.bytes; !left.empty();) {
      const auto packet = left.first(std::min(left.size(), arrival.segment));
      left = left.subspan(packet.size());
      take_packet(arrival, packet, now, nobodys);
    }
  }
  return nobodys;
}

void GsiSocket::take_packet(const io::UdpArrival& arrival, std::span<const uint8_t> packet, Time now,
                            uint32_t& nobodys) {
  const auto reason = why_to_drop(arrival, packet);
  capture_.received(arrival, packet, reason);
  if (reason) {
    nobodys += *reason == GsiCounter::kDropNobody ? 1 : 0;
    return counters_.add(*reason);
  }
  cm::Datagram datagram{.netdev = static_cast<uint32_t>(arrival.ifindex),
                        .source_qpn = wire::Deth::parse(wire::DethView::at(packet.data() + wire::Bth::kSize)).source_qp,
                        .source = arrival.envelope.source,
                        .destination = arrival.envelope.destination,
                        .flow_label = arrival.envelope.flow_label,
                        .traffic_class = arrival.envelope.traffic_class,
                        .hop_limit = arrival.envelope.hop_limit};
  std::copy_n(packet.data() + wire::Bth::kSize + wire::Deth::kSize, wire::kMadSize, datagram.mad.begin());
  pass(Way::kIn, datagram, now);
}

// In the order of the engine's checks (rx_demux.cc).
std::optional<GsiCounter> GsiSocket::why_to_drop(const io::UdpArrival& arrival, std::span<const uint8_t> packet) {
  if (packet.size() < wire::Bth::kSize + wire::kIcrcSize) return GsiCounter::kDropMalformed;
  const auto bth = wire::Bth::parse(wire::BthView::at(packet.data()));
  if (bth.dest_qp != wire::kGsiQpn && bth.dest_qp != kSmiQpn) return GsiCounter::kDropNobody;
  const bool sound = bth.dest_qp == wire::kGsiQpn && packet.size() == kPacketSize &&
                     bth.opcode == wire::Opcode::kUdSendOnly && bth.tver == 0 && bth.pad == 0;
  if (!sound) return GsiCounter::kDropMalformed;
  const auto netdev = static_cast<uint32_t>(arrival.ifindex);
  const wire::Envelope& envelope = arrival.envelope;
  const bool ours = host_.guid(netdev) != wire::Guid{} && host_.has_address(netdev, envelope.destination);
  if (!ours) return GsiCounter::kDropNetdev;
  if (host_.netdev_with(envelope.source, netdev)) return GsiCounter::kDropForged;
  if ((bth.pkey & wire::kPkeyBase) != wire::kPkeyBase) return GsiCounter::kDropPkey;
  if (!wire::icrc_matches(envelope, packet)) return GsiCounter::kDropIcrc;
  const auto deth = wire::Deth::parse(wire::DethView::at(packet.data() + wire::Bth::kSize));
  return deth.qkey == wire::kGsiQkey ? std::nullopt : std::optional(GsiCounter::kDropQkey);
}

// --- faults ----------------------------------------------------------------------------------------------------------

// What would be corrupted is lost: whoever gets it finds that its ICRC is wrong.
void GsiSocket::pass(Way way, const cm::Datagram& datagram, Time now) {
  if (happens(faults_.drop) || happens(faults_.corrupt)) return counters_.add(GsiCounter::kFaultDropped);
  const bool twice = happens(faults_.duplicate);
  if (twice) counters_.add(GsiCounter::kFaultDuplicated);
  for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
    if (!happens(faults_.reorder) || delayed_.size() >= kMostWaiting) {
      go_on(way, datagram, now);
      continue;
    }
    constexpr uint64_t kLongest = 50;
    counters_.add(GsiCounter::kFaultDelayed);
    delayed_.emplace(now + std::chrono::milliseconds(1 + random_() % kLongest), Delayed{way, datagram});
  }
}

void GsiSocket::go_on(Way way, const cm::Datagram& datagram, Time now) {
  if (way == Way::kIn) return hand_in(datagram, now);
  if (!host_.netdev_with(datagram.destination, datagram.netdev)) return send_packet(datagram);
  if (within_.size() >= kMostWaiting) return counters_.add(GsiCounter::kDropNoRoom);
  counters_.add(GsiCounter::kSent);
  counters_.add(GsiCounter::kWithinHost);
  within_.push_back(datagram);
}

void GsiSocket::hand_in(const cm::Datagram& arriving, Time now) {
  cm::Datagram datagram = arriving;
  datagram.ca_guid = host_.guid(datagram.netdev);
  if (datagram.ca_guid == wire::Guid{}) return counters_.add(GsiCounter::kDropNetdev);
  counters_.add(GsiCounter::kReceived);
  take_(datagram, now);
}

void GsiSocket::work(Time now) {
  for (size_t i = 0; i < kMostInATurn && !delayed_.empty() && delayed_.begin()->first <= now; ++i) {
    const Delayed due = delayed_.extract(delayed_.begin()).mapped();
    go_on(due.way, due.datagram, now);
  }
  for (size_t left = std::min(within_.size(), kMostInATurn); left > 0; --left) {
    cm::Datagram datagram = within_.front();
    within_.pop_front();
    const auto netdev = host_.netdev_with(datagram.destination, datagram.netdev);
    if (!netdev) {
      counters_.add(GsiCounter::kDropNetdev);
      continue;
    }
    datagram.netdev = *netdev;
    capture_.within_host(datagram);
    pass(Way::kIn, datagram, now);
  }
}

Time GsiSocket::deadline() const {
  if (!within_.empty()) return Time{};
  return delayed_.empty() ? kNever : delayed_.begin()->first;
}

// --- to the network --------------------------------------------------------------------------------------------------

void GsiSocket::send(const cm::Datagram& datagram, Time now) {
  pass(Way::kOut, datagram, now);
}

void GsiSocket::send_packet(const cm::Datagram& datagram) {
  std::array<uint8_t, kPacketSize> packet;
  wire::emit_gsi_packet(wire::Psn(psn_++), datagram.mad, packet.data());
  // As the kernel will write it: ID 0 (udp-sockets.md "IP ID and ICRC").
  const wire::Envelope envelope{.source = datagram.source,
                                .destination = datagram.destination,
                                .source_port = wire::kRoceUdpPort,
                                .ip_id = 0,
                                .dont_fragment = true,
                                .traffic_class = datagram.traffic_class,
                                .hop_limit = datagram.hop_limit};
  const uint32_t crc = wire::icrc(envelope, std::span(packet).first(wire::kGsiPacketSize));
  wire::store_le32(packet.data() + wire::kGsiPacketSize, crc);
  io::UdpTxSlot slot;
  msghdr message;
  io::prepare_send(slot, envelope, static_cast<int>(datagram.netdev), packet, packet.size(), message);
  const int socket = datagram.destination.is_v4() ? sockets_.first : sockets_.second;
  const bool sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
  counters_.add(sent ? GsiCounter::kSent : GsiCounter::kDropNotSent);
  if (sent) capture_.sent(datagram.netdev, envelope, packet);
}

}  // namespace uroce::broker
