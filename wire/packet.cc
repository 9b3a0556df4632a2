// SPDX-License-Identifier: BSD-2-Clause
#include "wire/packet.h"

namespace uroce::wire {
namespace {

// Parses the header at `at` and moves on behind it.
template <class Header, class View>
void take(const uint8_t*& at, Header& out) {
  out = Header::parse(View::at(at));
  at += Header::kSize;
}

// All but where the payload lies. `bytes`: the beginning of a packet of `size` bytes.
ParseError parse_headers(std::span<const uint8_t> bytes, size_t size, Packet& out) {
  if (size < Bth::kSize + kIcrcSize || bytes.size() < Bth::kSize) return ParseError::kTruncated;
  const uint8_t* at = bytes.data();
  take<Bth, BthView>(at, out.bth);

  const OpcodeInfo& info = opcode_info(out.bth.opcode);
  out.info = &info;
  if (!info.known) return ParseError::kUnknownOpcode;
  if (out.bth.tver != 0) return ParseError::kBadTver;
  if (size < info.header_size + kIcrcSize || bytes.size() < info.header_size) return ParseError::kTruncated;

  // In the order of the wire. An opcode has few of them, and most packets none: test once.
  if (info.header_size > Bth::kSize) {
    if (info.has_xrceth) take<Xrceth, XrcethView>(at, out.xrceth);
    if (info.has_deth) take<Deth, DethView>(at, out.deth);
    if (info.has_feth) take<Feth, FethView>(at, out.feth);
    if (info.has_reth) take<Reth, RethView>(at, out.reth);
    if (info.has_atomic_eth) take<AtomicEth, AtomicEthView>(at, out.atomic_eth);
    if (info.has_aeth) take<Aeth, AethView>(at, out.aeth);
    if (info.has_atomic_ack_eth) take<AtomicAckEth, AtomicAckEthView>(at, out.atomic_ack_eth);
    if (info.has_immdt) take<ImmDt, ImmDtView>(at, out.immdt);
    if (info.has_ieth) take<Ieth, IethView>(at, out.ieth);
  }

  const size_t padded_size = size - info.header_size - kIcrcSize;
  if (out.bth.pad > padded_size) return ParseError::kPadExceedsPayload;
  if (!info.has_payload && padded_size > out.bth.pad) return ParseError::kUnexpectedPayload;
  return ParseError::kNone;
}

}  // namespace

ParseError parse_packet(std::span<const uint8_t> ib, Packet& out) {
  const ParseError error = parse_headers(ib, ib.size(), out);
  if (error != ParseError::kNone) return error;
  const size_t header_size = out.info->header_size;
  out.payload = ib.subspan(header_size, ib.size() - header_size - kIcrcSize - out.bth.pad);
  return ParseError::kNone;
}

ParseError parse_packet(std::span<const uint8_t> headers, std::span<const uint8_t> rest, Packet& out) {
  const ParseError error = parse_headers(headers, headers.size() + rest.size(), out);
  if (error != ParseError::kNone) return error;
  if (headers.size() != out.info->header_size) return ParseError::kTruncated;
  out.payload = rest.first(rest.size() - kIcrcSize - out.bth.pad);
  return ParseError::kNone;
}

const char* parse_error_text(ParseError error) {
  switch (error) {
    case ParseError::kNone:
      return "no error";
    case ParseError::kTruncated:
      return "truncated";
    case ParseError::kUnknownOpcode:
      return "unknown opcode";
    case ParseError::kBadTver:
      return "transport header version not 0";
    case ParseError::kPadExceedsPayload:
      return "pad exceeds payload";
    case ParseError::kUnexpectedPayload:
      return "payload where the opcode has none";
  }
  return "?";
}

}  // namespace uroce::wire
