// SPDX-License-Identifier: BSD-2-Clause
#include "tests/fuzz/sealed_frame.h"

#include <span>

#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/opcode.h"

namespace uroce::fuzz {

namespace {

constexpr size_t kDestQpOffset = 5;  // in the BTH

}  // namespace

std::vector<uint8_t> sealed_frame(const wire::Envelope& envelope, wire::Qpn qpn, std::vector<uint8_t> ib) {
  wire::store_be24(&ib[kDestQpOffset], qpn.value());
  const size_t covered = ib.size() - wire::kIcrcSize;
  wire::store_le32(&ib[covered], wire::icrc(envelope, std::span(ib).first(covered)));
  std::vector<uint8_t> frame(wire::frame_header_size(envelope));
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), frame.data());
  frame.insert(frame.end(), ib.begin(), ib.end());
  return frame;
}

}  // namespace uroce::fuzz
