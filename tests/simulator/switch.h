// SPDX-License-Identifier: BSD-2-Clause
// A store-and-forward switch: looks at the destination address and puts the frame into the queue of the port behind
// which that host is. Marks and drops are those of the port's Link.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tests/simulator/link.h"
#include "wire/ip_udp.h"

namespace uroce::simulator {

class Switch {
 public:
  Switch(EventQueue& events, std::mt19937_64& random) : events_(events), random_(random) {}

  // The cable from the switch to the host with this address.
  Link& add_port(const wire::IpAddress& address, const LinkConfig& config) {
    return *(ports_[key(address)] = std::make_unique<Link>(events_, random_, config));
  }

  void receive(Frame frame) {
    wire::Envelope envelope;
    std::span<const uint8_t> ib;
    if (wire::parse_frame(frame, envelope, ib) != wire::FrameError::kNone) return;
    const auto port = ports_.find(key(envelope.destination));
    if (port != ports_.end()) port->second->send(std::move(frame));
  }

 private:
  static uint32_t key(const wire::IpAddress& address) { return wire::load_be32(&address.bytes[12]); }

  EventQueue& events_;
  std::mt19937_64& random_;
  std::unordered_map<uint32_t, std::unique_ptr<Link>> ports_;
};

}  // namespace uroce::simulator
