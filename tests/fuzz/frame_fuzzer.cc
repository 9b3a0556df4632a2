// SPDX-License-Identifier: BSD-2-Clause
// Any bytes as an Ethernet frame, and as InfiniBand bytes without one: parsing, formatting and the ICRC read nothing
// outside.
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/format.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

using namespace uroce::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  Envelope envelope;
  std::span<const uint8_t> ib;
  Packet packet;
  if (parse_frame(bytes, envelope, ib) != FrameError::kNone) {
    envelope = Envelope{};
    ib = bytes;
  }
  (void)parse_packet(ib, packet);
  for (size_t headers = 0; headers <= ib.size() && headers < 64; ++headers) {
    (void)parse_packet(ib.first(headers), ib.subspan(headers), packet);
  }
  (void)icrc_matches(envelope, ib);
  envelope.ip_id_known = false;
  (void)icrc_matches(envelope, ib);
  (void)format_packet(envelope, ib);
  return 0;
}
