// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/capture_reader.h"

#include <algorithm>

#include "pcapng/capture_format.h"
#include "pcapng/pcapng.h"

namespace uroce::pcapng {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800, kEtherTypeIpv6 = 0x86dd;

// Headers of Linux "cooked" captures (www.tcpdump.org/linktypes): where their fields are.
struct Cooked {
  size_t size, type_at, type_size, address_at, protocol_at;
};
constexpr Cooked kSll = {.size = 16, .type_at = 0, .type_size = 2, .address_at = 6, .protocol_at = 14};
constexpr Cooked kSll2 = {.size = 20, .type_at = 10, .type_size = 1, .address_at = 12, .protocol_at = 0};
constexpr uint16_t kPacketOutgoing = 4;  // PACKET_OUTGOING of Linux; less is inbound

// An Ethernet header in front of `payload`, in place of what was there.
void put_ethernet(std::span<const uint8_t> payload, const uint8_t* source_mac, uint16_t ether_type, size_t removed,
                  Record& record) {
  record.frame.assign(wire::kEthernetSize, 0);
  if (source_mac != nullptr) std::copy_n(source_mac, 6, record.frame.begin() + 6);
  wire::store_be16(&record.frame[12], ether_type);
  record.frame.insert(record.frame.end(), payload.begin(), payload.end());
  const uint32_t original = std::max<uint32_t>(record.original_length, static_cast<uint32_t>(removed));
  record.original_length = static_cast<uint32_t>(original - removed + wire::kEthernetSize);
}

bool put_cooked(const Cooked& cooked, std::span<const uint8_t> bytes, Record& record) {
  if (bytes.size() < cooked.size) return false;
  const uint8_t* type = &bytes[cooked.type_at];
  const uint16_t packet_type = cooked.type_size == 2 ? wire::load_be16(type) : *type;
  if (record.direction == Direction::kUnknown) {
    record.direction = packet_type == kPacketOutgoing ? Direction::kOut : Direction::kIn;
  }
  put_ethernet(bytes.subspan(cooked.size), &bytes[cooked.address_at], wire::load_be16(&bytes[cooked.protocol_at]),
               cooked.size, record);
  return true;
}

}  // namespace

CaptureReader::CaptureReader(std::istream& in) : source_(std::make_unique<Source>(in)) {}
CaptureReader::~CaptureReader() = default;

const std::vector<Interface>& CaptureReader::interfaces() const {
  static const std::vector<Interface> kNone;
  return format_ ? format_->interfaces : kNone;
}

bool CaptureReader::detect() {
  std::array<uint8_t, 4> magic;
  const size_t got = source_->read(magic);
  if (got == magic.size() && Pcap::is_magic(magic)) {
    format_ = std::make_unique<Pcap>(*source_, magic);
  } else if (got == magic.size() && wire::load_be32(magic.data()) == pcapng::kSectionHeader) {
    format_ = std::make_unique<Pcapng>(*source_);
  } else {
    error_ = got == 0 ? "the file is empty" : "neither pcapng nor pcap";
  }
  return format_ != nullptr;
}

ReadResult CaptureReader::next(Record& record) {
  if (!error_.empty() || (!format_ && !detect())) return ReadResult::kError;
  RawPacket raw;
  for (;;) {
    const ReadResult result = format_->next(raw, error_);
    if (result != ReadResult::kRecord) return result;
    record.number = ++records_;
    if (to_ethernet(raw, record)) return ReadResult::kRecord;
    ++skipped_;
  }
}

bool CaptureReader::to_ethernet(const RawPacket& raw, Record& record) {
  record.time = raw.time;
  record.interface = raw.interface;
  record.direction = raw.direction;
  record.original_length = std::max<uint32_t>(raw.original_length, static_cast<uint32_t>(raw.bytes.size()));
  record.comment = raw.comment;
  switch (raw.link_type) {
    case pcapng::kLinkEthernet:
      record.frame.assign(raw.bytes.begin(), raw.bytes.end());
      return true;
    case pcapng::kLinkRaw:
    case pcapng::kLinkRawBsd:
    case pcapng::kLinkIpv4:
    case pcapng::kLinkIpv6:
      if (raw.bytes.empty()) return false;
      put_ethernet(raw.bytes, nullptr, raw.bytes[0] >> 4 == 6 ? kEtherTypeIpv6 : kEtherTypeIpv4, 0, record);
      return true;
    case pcapng::kLinkSll:
      return put_cooked(kSll, raw.bytes, record);
    case pcapng::kLinkSll2:
      return put_cooked(kSll2, raw.bytes, record);
    default:
      return false;
  }
}

}  // namespace uroce::pcapng
