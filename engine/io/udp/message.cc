// SPDX-License-Identifier: BSD-2-Clause
#include "engine/io/udp/message.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <netinet/udp.h>

#include "engine/io/frame_builder.h"
#include "engine/memory/memory_access.h"
#include "wire/ip_udp.h"

namespace uroce::io {
namespace {

template <class T>
T control_value(const cmsghdr* control) {
  T value;
  std::memcpy(&value, CMSG_DATA(control), sizeof(value));
  return value;
}

bool is_control(const cmsghdr* control, int level, int type, size_t size) {
  return control->cmsg_level == level && control->cmsg_type == type && control->cmsg_len >= CMSG_LEN(size);
}

// Appends control data to `message`, whose msg_control has room for it.
class ControlWriter {
 public:
  explicit ControlWriter(msghdr& message, UdpControl& control) : message_(message), next_(control.bytes.data()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = 0;
  }

  template <class T>
  void append(int level, int type, const T& value) {
    cmsghdr header{};
    header.cmsg_len = CMSG_LEN(sizeof(T));
    header.cmsg_level = level;
    header.cmsg_type = type;
    std::memcpy(next_, &header, sizeof(header));
    std::memcpy(next_ + CMSG_LEN(0), &value, sizeof(T));
    next_ += CMSG_SPACE(sizeof(T));
    message_.msg_controllen += CMSG_SPACE(sizeof(T));
  }

 private:
  msghdr& message_;
  uint8_t* next_;
};

void address_v4(const wire::Envelope& envelope, int ifindex, UdpTxSlot& slot, msghdr& message, ControlWriter& control) {
  slot.destination.v4 = {};
  slot.destination.v4.sin_family = AF_INET;
  slot.destination.v4.sin_port = htons(wire::kRoceUdpPort);
  std::memcpy(&slot.destination.v4.sin_addr, envelope.destination.v4_bytes(), 4);
  message.msg_namelen = sizeof(sockaddr_in);

  in_pktinfo info{};
  std::memcpy(&info.ipi_spec_dst, envelope.source.v4_bytes(), 4);
  info.ipi_ifindex = ifindex;
  control.append(IPPROTO_IP, IP_PKTINFO, info);
  control.append(IPPROTO_IP, IP_TOS, int{envelope.traffic_class});
  control.append(IPPROTO_IP, IP_TTL, std::max(1, int{envelope.hop_limit}));
}

void address_v6(const wire::Envelope& envelope, int ifindex, UdpTxSlot& slot, msghdr& message, ControlWriter& control) {
  slot.destination.v6 = {};
  slot.destination.v6.sin6_family = AF_INET6;
  slot.destination.v6.sin6_port = htons(wire::kRoceUdpPort);
  std::memcpy(&slot.destination.v6.sin6_addr, envelope.destination.bytes.data(), 16);
  if (envelope.destination.is_link_local()) slot.destination.v6.sin6_scope_id = static_cast<uint32_t>(ifindex);
  message.msg_namelen = sizeof(sockaddr_in6);

  in6_pktinfo info{};
  std::memcpy(&info.ipi6_addr, envelope.source.bytes.data(), 16);
  info.ipi6_ifindex = static_cast<unsigned>(ifindex);
  control.append(IPPROTO_IPV6, IPV6_PKTINFO, info);
  control.append(IPPROTO_IPV6, IPV6_TCLASS, int{envelope.traffic_class});
  control.append(IPPROTO_IPV6, IPV6_HOPLIMIT, int{envelope.hop_limit});
}

void parse_source(const UdpAddress& address, wire::Envelope& envelope) {
  if (address.v4.sin_family == AF_INET) {
    envelope.source = wire::IpAddress::v4(reinterpret_cast<const uint8_t*>(&address.v4.sin_addr));
    envelope.source_port = ntohs(address.v4.sin_port);
    envelope.ip_id_known = false;
  } else {
    envelope.source = wire::IpAddress::v6(address.v6.sin6_addr.s6_addr);
    envelope.source_port = ntohs(address.v6.sin6_port);
  }
}

}  // namespace

void prepare_receive(UdpRxSlot& slot, std::span<uint8_t> buffer, msghdr& message) {
  slot.buffer = {buffer.data(), buffer.size()};
  message = {};
  message.msg_name = &slot.source;
  message.msg_namelen = sizeof(slot.source);
  message.msg_iov = &slot.buffer;
  message.msg_iovlen = 1;
  message.msg_control = slot.control.bytes.data();
  message.msg_controllen = slot.control.bytes.size();
}

bool parse_received(const msghdr& message, size_t size, UdpArrival& arrival, uint32_t& dropped) {
  wire::Envelope& envelope = arrival.envelope;
  envelope = {};
  arrival.bytes = {static_cast<const uint8_t*>(message.msg_iov->iov_base), size};
  arrival.segment = std::max<size_t>(size, 1);
  parse_source(*static_cast<const UdpAddress*>(message.msg_name), envelope);
  bool has_destination = false;
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(c))) {
    if (is_control(c, IPPROTO_IP, IP_PKTINFO, sizeof(in_pktinfo))) {
      const auto info = control_value<in_pktinfo>(c);
      envelope.destination = wire::IpAddress::v4(reinterpret_cast<const uint8_t*>(&info.ipi_addr));
      arrival.ifindex = info.ipi_ifindex;
      has_destination = true;
    } else if (is_control(c, IPPROTO_IPV6, IPV6_PKTINFO, sizeof(in6_pktinfo))) {
      const auto info = control_value<in6_pktinfo>(c);
      envelope.destination = wire::IpAddress::v6(info.ipi6_addr.s6_addr);
      arrival.ifindex = static_cast<int>(info.ipi6_ifindex);
      has_destination = true;
    } else if (is_control(c, IPPROTO_IP, IP_TOS, sizeof(uint8_t))) {
      envelope.traffic_class = control_value<uint8_t>(c);
    } else if (is_control(c, IPPROTO_IPV6, IPV6_TCLASS, sizeof(int))) {
      envelope.traffic_class = static_cast<uint8_t>(control_value<int>(c));
    } else if (is_control(c, IPPROTO_IP, IP_TTL, sizeof(int)) ||
               is_control(c, IPPROTO_IPV6, IPV6_HOPLIMIT, sizeof(int))) {
      envelope.hop_limit = static_cast<uint8_t>(control_value<int>(c));
    } else if (is_control(c, IPPROTO_UDP, UDP_GRO, sizeof(int))) {
      if (const int segment = control_value<int>(c); segment > 0) arrival.segment = static_cast<size_t>(segment);
    } else if (is_control(c, SOL_SOCKET, SO_RXQ_OVFL, sizeof(uint32_t))) {
      dropped = control_value<uint32_t>(c);
    }
  }
  return has_destination && (message.msg_flags & MSG_TRUNC) == 0;
}

void prepare_send(UdpTxSlot& slot, const wire::Envelope& envelope, int ifindex, std::span<uint8_t> bytes,
                  size_t segment, msghdr& message) {
  message = {};
  message.msg_name = &slot.destination;
  slot.buffer = {bytes.data(), bytes.size()};
  message.msg_iov = &slot.buffer;
  message.msg_iovlen = 1;
  ControlWriter control(message, slot.control);
  if (envelope.destination.is_v4()) {
    address_v4(envelope, ifindex, slot, message, control);
  } else {
    address_v6(envelope, ifindex, slot, message, control);
  }
  if (segment < bytes.size()) control.append(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment));
}

size_t stage_packet(io::TxPacket& packet, size_t index, uint8_t* out) {
  // The header as the kernel will write it (wire.md "UDP sockets").
  packet.ip_id = static_cast<uint16_t>(index);
  wire::Envelope envelope = *packet.envelope;
  envelope.source_port = wire::kRoceUdpPort;
  envelope.ip_id = packet.ip_id;
  envelope.dont_fragment = true;
  return build_ib(packet, envelope, out);
}

// Guarded all at once: for a small packet that alone would cost as much as to copy it.
size_t stage_run(std::span<io::TxPacket> run, uint8_t* out) {
  std::atomic<size_t> staged = 0;  // in memory where the access is abandoned
  static_cast<void>(memory::guarded(
      [&] {
        uint8_t* next = out;
        for (size_t i = 0; i < run.size(); ++i) {
          next += stage_packet(run[i], i, next);
          std::atomic_signal_fence(std::memory_order_seq_cst);
          staged.store(i + 1, std::memory_order_relaxed);
          std::atomic_signal_fence(std::memory_order_seq_cst);
        }
      },
      [&](uintptr_t from, uintptr_t to) {
        const size_t current = staged.load(std::memory_order_relaxed);
        return current < run.size() && payload_covers(run[current], from, to);
      }));
  return staged.load(std::memory_order_relaxed);
}

}  // namespace uroce::io
