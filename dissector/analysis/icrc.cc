// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/icrc.h"

#include <algorithm>
#include <array>

#include "wire/bytes.h"
#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/ip_udp.h"

namespace uroce::dissector {
namespace {

constexpr size_t kLargestPrefix = wire::kIpv6Size + wire::kUdpSize + wire::kBthSize;

// IP, UDP and BTH, which stand one after the other in the capture, with all that may change on the way as ones
// (IBTA 7.8.1 and A17.3.3). From the captured bytes and not from values: a flag or a version that nobody sends counts.
size_t masked_prefix(const Datagram& datagram, std::array<uint8_t, kLargestPrefix>& out) {
  const size_t ip_size = datagram.ip.size();
  const size_t size = ip_size + wire::kUdpSize + wire::kBthSize;
  std::copy_n(datagram.ip.data(), size, out.data());
  if (ip_size == wire::kIpv4Size) {
    out[1] = out[8] = out[10] = out[11] = 0xff;  // TOS, TTL, checksum
  } else {
    out[0] |= 0x0f;                            // traffic class
    out[1] = out[2] = out[3] = out[7] = 0xff;  // traffic class, flow label, hop limit
  }
  out[ip_size + 6] = out[ip_size + 7] = 0xff;  // UDP checksum
  out[ip_size + wire::kUdpSize + 4] = 0xff;    // FECN, BECN, reserved
  return size;
}

}  // namespace

IcrcCheck check_icrc(const Datagram& datagram) {
  const size_t size = datagram.ib_size;
  if (datagram.ip.empty() || !datagram.captured_whole() || size < wire::kBthSize + wire::kIcrcSize) return {};
  std::array<uint8_t, kLargestPrefix> prefix;
  uint32_t state = wire::crc32_update(wire::kIcrcSeed, prefix.data(), masked_prefix(datagram, prefix));
  state = wire::crc32_update(state, datagram.ib.data() + wire::kBthSize, size - wire::kBthSize - wire::kIcrcSize);
  const uint32_t expected = wire::icrc_finish(state);
  const uint32_t found = wire::load_le32(datagram.ib.data() + size - wire::kIcrcSize);
  return {found == expected ? IcrcStatus::kGood : IcrcStatus::kBad, expected};
}

}  // namespace uroce::dissector
