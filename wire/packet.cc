#include "wire/packet.h"

namespace uroce::wire {
namespace {

// Parses the header at `at` and moves on behind it.
template <class Header, class View>
void take(const uint8_t*& at, Header& out) {
  out = Header::parse(View::at(at));
  at += Header::kSize;
}

}  // namespace

ParseError parse_packet(std::span<const uint8_t> ib, Packet& out) {
  if (ib.size() < Bth::kSize + kIcrcSize) return ParseError::kTruncated;
  const uint8_t* at = ib.data();
  take<Bth, BthView>(at, out.bth);

  const OpcodeInfo& info = opcode_info(out.bth.opcode);
  out.info = &info;
  if (!info.known) return ParseError::kUnknownOpcode;
  if (out.bth.tver != 0) return ParseError::kBadTver;
  if (ib.size() < info.header_size + kIcrcSize) return ParseError::kTruncated;

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

  const size_t padded_size = ib.size() - info.header_size - kIcrcSize;
  if (out.bth.pad > padded_size) return ParseError::kPadExceedsPayload;
  out.payload = ib.subspan(info.header_size, padded_size - out.bth.pad);
  if (!info.has_payload && !out.payload.empty()) return ParseError::kUnexpectedPayload;
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
