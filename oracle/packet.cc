// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/packet.h"

#include <algorithm>
#include <cinttypes>

#include "oracle/text.h"
#include "wire/crc32.h"
#include "wire/icrc.h"

namespace uroce::oracle {
namespace {

using wire::FrameError;
using wire::ParseError;

// Frames that were meant to be RoCE v2 but are not well-formed IP or UDP.
bool is_malformed_roce(FrameError error) {
  return error == FrameError::kLengthMismatch;
}

}  // namespace

PacketState Packet::parse(const pcapng::Record& record) {
  record_ = &record;
  has_bth_ = whole_ = icrc_ok_ = false;
  error_ = ParseError::kNone;
  frame_error_ = pcapng::parse_record(record, roce_);
  if (is_malformed_roce(frame_error_)) return PacketState::kUnusable;
  if (frame_error_ != FrameError::kNone) return PacketState::kForeign;

  auto ib = roce_.ib;
  whole_ = ib.size() == roce_.ib_size;
  has_bth_ = ib.size() >= wire::Bth::kSize && roce_.ib_size >= wire::Bth::kSize + wire::kIcrcSize;
  if (!has_bth_) return whole_ ? PacketState::kUnusable : PacketState::kCut;
  if (!whole_) {
    padded_.assign(ib.begin(), ib.end());
    padded_.resize(roce_.ib_size);
    ib = padded_;
  }
  error_ = wire::parse_packet(ib, packet_);
  icrc_ok_ = !whole_ || wire::icrc_matches(roce_.envelope, ib);
  if (error_ != ParseError::kNone || !icrc_ok_) return PacketState::kUnusable;
  return roce_.ib.size() < packet_.info->header_size ? PacketState::kCut : PacketState::kUsable;
}

void Packet::judge(std::vector<Finding>& out) const {
  if (frame_error_ != FrameError::kNone) {
    out.push_back({Rule::kFrame, wire::frame_error_text(frame_error_)});
    return;
  }
  if (!has_bth_) {
    if (whole_) out.push_back({Rule::kLength, text("%zu bytes behind the UDP header", roce_.ib_size)});
    return;
  }
  if (error_ == ParseError::kUnknownOpcode) {
    out.push_back({Rule::kOpcode, text("opcode 0x%02x", static_cast<unsigned>(packet_.bth.opcode))});
  } else if (error_ == ParseError::kBadTver) {
    out.push_back({Rule::kTver, text("TVer %u", packet_.bth.tver)});
  } else if (error_ != ParseError::kNone) {
    out.push_back({Rule::kLength, text("%s: %s", packet_.info->name, wire::parse_error_text(error_))});
  }
  if (roce_.ib_size % 4 != 0) {
    out.push_back({Rule::kPad, text("%u pad bytes: the packet has %zu bytes", packet_.bth.pad, roce_.ib_size)});
  }
  if (!whole_) return;
  if (error_ == ParseError::kNone) {
    const auto behind = roce_.ib.subspan(packet_.info->header_size + packet_.payload.size());
    const auto pad = behind.first(packet_.bth.pad);
    if (std::any_of(pad.begin(), pad.end(), [](uint8_t byte) { return byte != 0; })) {
      out.push_back({Rule::kPad, "pad bytes that are not zero"});
    }
  }
  if (!icrc_ok_) {
    const auto covered = roce_.ib.first(roce_.ib.size() - wire::kIcrcSize);
    out.push_back(
        {Rule::kIcrc, text("ICRC 0x%08" PRIx32 ", should be 0x%08" PRIx32,
                           wire::load_le32(covered.data() + covered.size()), wire::icrc(roce_.envelope, covered))});
  }
}

Request Packet::request() const {
  const wire::OpcodeInfo& opcode = *packet_.info;
  return {.psn = packet_.bth.psn,
          .info = &opcode,
          .opcode = packet_.bth.opcode,
          .solicited = packet_.bth.solicited,
          .ack_request = packet_.bth.ack_request,
          .payload_size = payload_size(),
          .va = opcode.has_reth         ? packet_.reth.va
                : opcode.has_atomic_eth ? packet_.atomic_eth.va
                                        : 0,
          .rkey = opcode.has_reth         ? packet_.reth.rkey
                  : opcode.has_atomic_eth ? packet_.atomic_eth.rkey
                                          : 0,
          .length = opcode.has_reth ? packet_.reth.length : 0,
          .number = number(),
          .time = time()};
}

uint32_t Packet::digest() const {
  const auto behind = roce_.ib.subspan(wire::Bth::kSize);
  return wire::crc32_update(0xffffffff, behind.data(), behind.size() - wire::kIcrcSize);
}

}  // namespace uroce::oracle
