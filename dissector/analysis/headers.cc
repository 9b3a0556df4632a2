// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/datagram.h"

namespace uroce::dissector {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // False, and nothing more is read, once a header is not there completely.
  template <class Header, class View>
  void take(bool wanted, Header& out) {
    if (!wanted || !whole_) return;
    if (bytes_.size() - at_ < Header::kSize) {
      whole_ = false;
      return;
    }
    out = Header::parse(View::at(bytes_.data() + at_));
    at_ += Header::kSize;
  }
  bool whole() const { return whole_; }
  size_t at() const { return at_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool whole_ = true;
};

// In the order of the wire (wire/packet.cc has the same).
bool take_extensions(Reader& reader, Headers& out) {
  const wire::OpcodeInfo& info = *out.info;
  reader.take<wire::Xrceth, wire::XrcethView>(info.has_xrceth, out.xrceth);
  reader.take<wire::Deth, wire::DethView>(info.has_deth, out.deth);
  reader.take<wire::Feth, wire::FethView>(info.has_feth, out.feth);
  reader.take<wire::Reth, wire::RethView>(info.has_reth, out.reth);
  reader.take<wire::AtomicEth, wire::AtomicEthView>(info.has_atomic_eth, out.atomic_eth);
  reader.take<wire::Aeth, wire::AethView>(info.has_aeth, out.aeth);
  reader.take<wire::AtomicAckEth, wire::AtomicAckEthView>(info.has_atomic_ack_eth, out.atomic_ack_eth);
  reader.take<wire::ImmDt, wire::ImmDtView>(info.has_immdt, out.immdt);
  reader.take<wire::Ieth, wire::IethView>(info.has_ieth, out.ieth);
  return reader.whole();
}

HeaderProblem problem_of(Headers& out, Reader& reader, uint32_t ib_size) {
  if (!out.info->known) return HeaderProblem::kUnknownOpcode;
  if (out.bth.tver != 0) return HeaderProblem::kBadTver;
  const bool all = take_extensions(reader, out);
  if (ib_size < out.info->header_size + wire::kIcrcSize) return HeaderProblem::kTooShort;
  if (!all) return HeaderProblem::kNotCaptured;
  const uint32_t padded = ib_size - out.info->header_size - static_cast<uint32_t>(wire::kIcrcSize);
  if (out.bth.pad > padded) return HeaderProblem::kPadExceedsPayload;
  out.payload_size = padded - out.bth.pad;
  if (!out.info->has_payload && out.payload_size != 0) return HeaderProblem::kUnexpectedPayload;
  return HeaderProblem::kNone;
}

}  // namespace

Headers parse_headers(std::span<const uint8_t> ib, uint32_t ib_size) {
  Headers out;
  if (ib.size() > ib_size) ib = ib.first(ib_size);
  Reader reader(ib);
  reader.take<wire::Bth, wire::BthView>(true, out.bth);
  if (!reader.whole()) {
    out.problem = ib_size < wire::kBthSize ? HeaderProblem::kTooShort : HeaderProblem::kNotCaptured;
    return out;
  }
  out.has_bth = true;
  out.info = &wire::opcode_info(out.bth.opcode);
  out.problem = problem_of(out, reader, ib_size);
  out.parsed = static_cast<uint32_t>(reader.at());
  return out;
}

const char* header_problem_text(HeaderProblem problem) {
  switch (problem) {
    case HeaderProblem::kNone:
      return "none";
    case HeaderProblem::kNotCaptured:
      return "headers not captured completely";
    case HeaderProblem::kTooShort:
      return "packet ends inside its headers";
    case HeaderProblem::kUnknownOpcode:
      return "opcode that RoCE v2 does not define";
    case HeaderProblem::kBadTver:
      return "transport header version is not 0";
    case HeaderProblem::kPadExceedsPayload:
      return "pad count exceeds the payload";
    case HeaderProblem::kUnexpectedPayload:
      return "payload where the opcode has none";
  }
  return "?";
}

}  // namespace uroce::dissector
