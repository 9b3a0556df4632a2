// SPDX-License-Identifier: BSD-2-Clause
// How long things take (cm.md "Timers").
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace uroce::cm {

// 4.096 us * 2^code, in the milliseconds that Linux makes of it.
constexpr Duration protocol_time(uint8_t code) {
  return std::chrono::milliseconds(int64_t{1} << (code > 8 ? code - 8 : 0));
}

inline constexpr uint8_t kResponseTimeout = 20;  // that both sides may take for an answer, as REQ says it
inline constexpr uint8_t kServiceTimeout = 24;   // that the application may take, as MRA says it
inline constexpr uint8_t kMaxRetries = 15;

// Codes come from the network and from applications. A response timeout decides how long and how often a message is
// sent again, a lifetime how long an ended connection is remembered.
inline constexpr uint8_t kLeastResponseTimeout = 16, kMostResponseTimeout = 22, kMostLifetime = 21;

// Of packets of paths over Ethernet, one way, as Linux has it: 1.07 s.
inline constexpr uint8_t kLifetime = 18;

// One way, for packets that are acknowledged within `ack_timeout`.
constexpr uint8_t lifetime_of(uint8_t ack_timeout) {
  return std::min<uint8_t>(ack_timeout > 0 ? static_cast<uint8_t>(ack_timeout - 1) : 0, kMostLifetime);
}

// Of REQ and whatever its sender sends later.
constexpr Duration requester_patience(uint8_t ack_timeout) {
  return 2 * protocol_time(lifetime_of(ack_timeout)) + protocol_time(kResponseTimeout);
}
// Of REP and whatever its sender sends later. `response_timeout`: what REQ says.
constexpr Duration responder_patience(uint8_t response_timeout) {
  return protocol_time(std::clamp(response_timeout, kLeastResponseTimeout, kMostResponseTimeout));
}
// Between two REPs to an address that is not proven, whatever its REQ says.
inline constexpr Duration kLeastApart = std::chrono::seconds(1);
inline constexpr Duration kSidrPatience = protocol_time(kResponseTimeout);

// After an MRA.
constexpr Duration mra_patience(uint8_t service_timeout, uint8_t ack_timeout) {
  return protocol_time(service_timeout) + protocol_time(std::min(ack_timeout, kMostLifetime));
}

constexpr Duration timewait(uint8_t ack_timeout) {
  return protocol_time(std::min(ack_timeout, kMostLifetime));
}
// So long an answer to a SIDR_REQ is repeated to who asks again: twice.
inline constexpr Duration kSidrMemory = 2 * kSidrPatience + std::chrono::seconds(1);

// The ACK timeout where packets take `lifetime` one way and the other side `delay` to acknowledge: the sum of
// 2^(lifetime
// + 1) and 2^delay as a power of two, rounded up only if the smaller one is at least half of the larger one.
constexpr uint8_t ack_timeout(uint8_t delay, uint8_t lifetime) {
  const int there_and_back = lifetime + 1;
  const int longer = std::max<int>(there_and_back, delay), shorter = std::min<int>(there_and_back, delay);
  return static_cast<uint8_t>(std::min(longer + (shorter >= longer - 1 ? 1 : 0), 31));
}

}  // namespace uroce::cm
