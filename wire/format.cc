// SPDX-License-Identifier: BSD-2-Clause
#include "wire/format.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "wire/icrc.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

// Appends in the manner of printf; pieces of up to 127 characters.
[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char piece[128];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(piece, sizeof piece, format, arguments);
  va_end(arguments);
  text += piece;
}

const char* nak_text(uint8_t code) {
  switch (static_cast<NakCode>(code)) {
    case NakCode::kPsnSequenceError:
      return "PSN sequence error";
    case NakCode::kInvalidRequest:
      return "invalid request";
    case NakCode::kRemoteAccessError:
      return "remote access error";
    case NakCode::kRemoteOperationalError:
      return "remote operational error";
    case NakCode::kInvalidRdRequest:
      return "invalid RD request";
  }
  return nullptr;
}

void append_aeth(std::string& text, const Aeth& aeth) {
  switch (aeth.kind()) {
    case AethKind::kAck:
      if (aeth.value() == kNoCreditsCode) {
        text += " ACK credits none";
      } else {
        append(text, " ACK credits %" PRIu32, credit_count(aeth.value()));
      }
      break;
    case AethKind::kRnrNak:
      append(text, " RNR NAK %.2f ms", std::chrono::duration<double, std::milli>(rnr_delay(aeth.value())).count());
      break;
    case AethKind::kNak:
      if (const char* name = nak_text(aeth.value())) {
        append(text, " NAK %s", name);
      } else {
        append(text, " NAK code %u", aeth.value());
      }
      break;
    case AethKind::kReserved:
      append(text, " AETH syndrome 0x%02x", aeth.syndrome);
      break;
  }
  append(text, " msn %" PRIu32, aeth.msn.value());
}

void append_bth(std::string& text, const Bth& bth) {
  const OpcodeInfo& info = opcode_info(bth.opcode);
  if (!info.known) {
    append(text, " opcode 0x%02x", static_cast<unsigned>(bth.opcode));
  } else if (info.transport == Transport::kCnp) {
    append(text, " %s", info.name);
  } else {
    append(text, " %s %s", transport_name(info.transport), info.name);
  }
  append(text, " qp 0x%06" PRIx32 " psn %" PRIu32, bth.dest_qp.value(), bth.psn.value());
  if (bth.ack_request) text += " ack";
  if (bth.solicited) text += " se";
  if (bth.fecn) text += " fecn";
  if (bth.becn) text += " becn";
  if (bth.pkey != Bth::kDefaultPkey) append(text, " pkey 0x%04x", bth.pkey);
}

void append_extensions(std::string& text, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  if (info.has_payload) append(text, " len %zu", packet.payload.size());
  if (info.has_xrceth) append(text, " srq 0x%06" PRIx32, packet.xrceth.srqn);
  if (info.has_deth) {
    append(text, " from qp 0x%06" PRIx32 " qkey 0x%" PRIx32, packet.deth.source_qp.value(), packet.deth.qkey);
  }
  if (info.has_feth) {
    append(text, " flush type %u selectivity %u", packet.feth.placement_type, packet.feth.selectivity);
  }
  if (info.has_reth) {
    append(text, " va 0x%" PRIx64 " rkey 0x%" PRIx32 " dmalen %" PRIu32, packet.reth.va, packet.reth.rkey,
           packet.reth.length);
  }
  if (info.has_atomic_eth) {
    append(text, " va 0x%" PRIx64 " rkey 0x%" PRIx32, packet.atomic_eth.va, packet.atomic_eth.rkey);
    const bool add = info.operation == Operation::kFetchAdd;
    append(text, " %s 0x%" PRIx64, add ? "add" : "swap", packet.atomic_eth.swap_add);
    if (!add) append(text, " compare 0x%" PRIx64, packet.atomic_eth.compare);
  }
  if (info.has_aeth) append_aeth(text, packet.aeth);
  if (info.has_atomic_ack_eth) append(text, " original 0x%" PRIx64, packet.atomic_ack_eth.original);
  if (info.has_immdt) {
    uint8_t bytes[ImmDt::kSize];
    packet.immdt.emit(bytes);
    append(text, " imm 0x%08" PRIx32, load_be32(bytes));
  }
  if (info.has_ieth) append(text, " invalidate rkey 0x%" PRIx32, packet.ieth.rkey);
}

}  // namespace

std::string format_packet(const Envelope& envelope, std::span<const uint8_t> ib) {
  std::string text = envelope.source.text() + " > " + envelope.destination.text();
  Packet packet;
  const ParseError error = parse_packet(ib, packet);
  if (ib.size() >= Bth::kSize + kIcrcSize) append_bth(text, packet.bth);
  if (error == ParseError::kNone) {
    append_extensions(text, packet);
  } else {
    append(text, " malformed: %s (%zu bytes)", parse_error_text(error), ib.size());
  }
  if (ib.size() >= Bth::kSize + kIcrcSize && !icrc_matches(envelope, ib)) text += " ICRC bad";
  return text;
}

}  // namespace uroce::wire
