// SPDX-License-Identifier: BSD-2-Clause
// pcapng files (draft-ietf-opsawg-pcapng).
#include <algorithm>
#include <limits>

#include "pcapng/capture_format.h"
#include "pcapng/pcapng.h"

namespace uroce::pcapng {
namespace {

constexpr size_t kBlockOverhead = 12;  // type and twice the length

constexpr size_t padded(size_t size) {
  return (size + 3) & ~size_t{3};
}

// Units per second of an if_tsresol; 0: finer than anybody can mean.
uint64_t units_per_second(uint8_t resolution) {
  const uint8_t exponent = resolution & 0x7f;
  if (resolution & 0x80) return exponent < 63 ? uint64_t{1} << exponent : 0;
  if (exponent > 18) return 0;
  uint64_t units = 1;
  for (uint8_t i = 0; i < exponent; ++i) units *= 10;
  return units;
}

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ReadResult CaptureReader::Pcapng::next(RawPacket& packet, std::string& error) {
  for (;;) {
    bool end = false;
    if (!read_block(error, end)) return ReadResult::kError;
    if (end) return ReadResult::kEnd;
    switch (take_block(packet)) {
      case Block::kPacket:
        return ReadResult::kRecord;
      case Block::kOther:
        break;
      case Block::kBad:
        error = "block at offset " + std::to_string(block_offset_) + ": " + problem_;
        return ReadResult::kError;
    }
  }
}

// Reads a block into body_. A section header comes in the byte order that it begins.
bool CaptureReader::Pcapng::read_block(std::string& error, bool& end) {
  const bool first = source_.offset() == sizeof block_type_;  // CaptureReader has read its type
  block_offset_ = first ? 0 : source_.offset();
  const std::string where = "block at offset " + std::to_string(block_offset_) + ": ";
  std::array<uint8_t, 12> head{};
  const size_t type_size = first ? 0 : 4;
  const size_t got = source_.read(std::span(head).first(type_size + 4));
  if (got == 0 && !first) return end = true;
  error = where + "the file ends within it";
  if (got != type_size + 4) return false;

  block_type_ = first ? pcapng::kSectionHeader : order_.get32(head.data());
  body_.clear();
  if (block_type_ == pcapng::kSectionHeader) {
    body_.resize(4);
    if (source_.read(body_) != 4) return false;
    order_ = FileOrder(wire::load_be32(body_.data()) == pcapng::kByteOrderMagic);
    if (order_.get32(body_.data()) != pcapng::kByteOrderMagic) {
      error = where + "no byte order magic: not pcapng, or damaged";
      return false;
    }
  }
  const uint32_t length = order_.get32(&head[type_size]);
  if (length % 4 != 0 || length < kBlockOverhead + body_.size() || length > kLargestBlock) {
    error = where + "length " + std::to_string(length);
    return false;
  }
  const size_t begun = body_.size();
  body_.resize(length - kBlockOverhead);
  if (source_.read(std::span(body_).subspan(begun)) != body_.size() - begun) return false;
  std::array<uint8_t, 4> tail;
  if (source_.read(tail) != tail.size()) return false;
  if (order_.get32(tail.data()) != length) {
    error = where + "its two lengths differ";
    return false;
  }
  error.clear();
  return true;
}

CaptureReader::Pcapng::Block CaptureReader::Pcapng::take_block(RawPacket& packet) {
  packet = {};
  problem_ = "too short";
  switch (block_type_) {
    case pcapng::kSectionHeader:
      return begin_section() ? Block::kOther : Block::kBad;
    case pcapng::kInterfaceDescription:
      return add_interface() ? Block::kOther : Block::kBad;
    case pcapng::kEnhancedPacket:
      return take_enhanced(packet) ? Block::kPacket : Block::kBad;
    case pcapng::kObsoletePacket:
      return take_obsolete(packet) ? Block::kPacket : Block::kBad;
    case pcapng::kSimplePacket:
      return take_simple(packet) ? Block::kPacket : Block::kBad;
    default:
      return Block::kOther;
  }
}

bool CaptureReader::Pcapng::begin_section() {
  if (body_.size() < 16) return false;
  problem_ = "a major version that is not 1";
  section_base_ = interfaces.size();
  return order_.get16(&body_[4]) == 1;
}

bool CaptureReader::Pcapng::add_interface() {
  static constexpr size_t kMostInterfaces = 1 << 16;
  if (body_.size() < 8) return false;
  problem_ = "too many interfaces";
  if (interfaces.size() == kMostInterfaces) return false;
  Interface added{.name = {}, .description = {}, .link_type = order_.get16(&body_[0])};
  Clock clock;
  problem_ = "bad options";
  const bool good = visit_options(8, [&](uint16_t code, std::span<const uint8_t> value) {
    if (code == pcapng::kIfName) added.name = text_of(value);
    if (code == pcapng::kIfDescription) added.description = text_of(value);
    if (code == pcapng::kIfTsresol && value.size() == 1) clock.units_per_second = units_per_second(value[0]);
    if (code == pcapng::kIfTsoffset && value.size() == 8) {
      clock.offset_seconds = static_cast<int64_t>(order_.get64(value.data()));
    }
  });
  if (!good) return false;
  problem_ = "time resolution finer than any clock";
  if (clock.units_per_second == 0) return false;
  interfaces.push_back(std::move(added));
  clocks_.push_back(clock);
  snap_lengths_.push_back(order_.get32(&body_[4]));
  return true;
}

bool CaptureReader::Pcapng::take_enhanced(RawPacket& packet) {
  if (body_.size() < 20) return false;
  packet.original_length = order_.get32(&body_[16]);
  if (!finish_packet(packet, 20, order_.get32(&body_[12]), order_.get32(&body_[0]))) return false;
  packet.time = last_time_ = time(packet.interface, order_.get32(&body_[4]), order_.get32(&body_[8]));
  return true;
}

bool CaptureReader::Pcapng::take_obsolete(RawPacket& packet) {
  if (body_.size() < 20) return false;
  packet.original_length = order_.get32(&body_[16]);
  if (!finish_packet(packet, 20, order_.get32(&body_[12]), order_.get16(&body_[0]))) return false;
  packet.time = last_time_ = time(packet.interface, order_.get32(&body_[4]), order_.get32(&body_[8]));
  return true;
}

// Has neither time nor options, and is of the section's first interface.
bool CaptureReader::Pcapng::take_simple(RawPacket& packet) {
  if (body_.size() < 4) return false;
  packet.original_length = order_.get32(&body_[0]);
  packet.time = last_time_;
  problem_ = "of an interface that was not described";
  if (section_base_ >= interfaces.size()) return false;
  const uint32_t snap = snap_lengths_[section_base_];
  auto captured = static_cast<uint32_t>(std::min<size_t>(packet.original_length, body_.size() - 4));
  if (snap != 0) captured = std::min(captured, snap);
  packet.interface = static_cast<uint32_t>(section_base_);
  packet.link_type = interfaces[section_base_].link_type;
  packet.bytes = std::span(body_).subspan(4, captured);
  return true;
}

// Interface, data and options of a packet block.
bool CaptureReader::Pcapng::finish_packet(RawPacket& packet, size_t data_at, uint32_t captured,
                                          size_t section_interface) {
  problem_ = "of an interface that was not described";
  if (section_interface >= interfaces.size() - section_base_) return false;
  problem_ = "more packet than block";
  if (captured > body_.size() - data_at || padded(captured) > body_.size() - data_at) return false;
  packet.interface = static_cast<uint32_t>(section_base_ + section_interface);
  packet.link_type = interfaces[packet.interface].link_type;
  packet.bytes = std::span(body_).subspan(data_at, captured);
  problem_ = "bad options";
  return visit_options(data_at + padded(captured), [&](uint16_t code, std::span<const uint8_t> value) {
    if (code == pcapng::kComment) packet.comment = text_of(value);
    if (code != pcapng::kEpbFlags || value.size() != 4) return;
    const uint32_t direction = order_.get32(value.data()) & pcapng::kFlagDirection;
    if (direction == pcapng::kFlagInbound) packet.direction = Direction::kIn;
    if (direction == pcapng::kFlagOutbound) packet.direction = Direction::kOut;
  });
}

// False: an option reaches beyond the block.
template <class Visitor>
bool CaptureReader::Pcapng::visit_options(size_t at, Visitor visit) const {
  while (at + 4 <= body_.size()) {
    const uint16_t code = order_.get16(&body_[at]);
    const uint16_t size = order_.get16(&body_[at + 2]);
    if (code == pcapng::kEndOfOptions) return true;
    at += 4;
    if (size > body_.size() - at) return false;
    visit(code, std::span(body_).subspan(at, size));
    at += padded(size);
  }
  return true;
}

Time CaptureReader::Pcapng::time(size_t interface, uint32_t high, uint32_t low) const {
  static constexpr uint64_t kNanoseconds = 1000000000;
  // Half of what Time can say, some 146 years after 1970: whoever adds an interval to a time need not think of
  // overflow.
  static constexpr int64_t kMostSeconds = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(kNanoseconds) / 2;
  const Clock& clock = clocks_[interface];
  const uint64_t ticks = uint64_t{high} << 32 | low;
  const auto whole = static_cast<int64_t>(std::min<uint64_t>(ticks / clock.units_per_second, kMostSeconds));
  const int64_t offset = std::clamp(clock.offset_seconds, -kMostSeconds, kMostSeconds);
  const int64_t seconds = std::clamp<int64_t>(
      offset > 0 ? std::min(whole, kMostSeconds - offset) + offset : whole + offset, 0, kMostSeconds);
  const long double fraction = static_cast<long double>(ticks % clock.units_per_second) *
                               static_cast<long double>(kNanoseconds) /
                               static_cast<long double>(clock.units_per_second);
  return Time(std::chrono::seconds(seconds) + Duration(static_cast<int64_t>(fraction)));
}

}  // namespace uroce::pcapng
