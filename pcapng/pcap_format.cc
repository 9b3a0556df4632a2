// SPDX-License-Identifier: BSD-2-Clause
// Classic pcap files (draft-ietf-opsawg-pcap).
#include "pcapng/capture_format.h"

namespace uroce::pcapng {
namespace {

constexpr uint32_t kMicroseconds = 0xa1b2c3d4;
constexpr uint32_t kNanoseconds = 0xa1b23c4d;
constexpr size_t kFileHeaderRest = 20;  // behind the magic number
constexpr size_t kRecordHeader = 16;

}  // namespace

bool CaptureReader::Pcap::is_magic(const std::array<uint8_t, 4>& magic) {
  for (const bool big : {false, true}) {
    const uint32_t value = FileOrder(big).get32(magic.data());
    if (value == kMicroseconds || value == kNanoseconds) return true;
  }
  return false;
}

CaptureReader::Pcap::Pcap(Source& source, const std::array<uint8_t, 4>& magic)
    : source_(source), order_(magic[0] == 0xa1), nanoseconds_(order_.get32(magic.data()) == kNanoseconds) {}

bool CaptureReader::Pcap::read_header(std::string& error) {
  std::array<uint8_t, kFileHeaderRest> header;
  if (source_.read(header) != header.size()) {
    error = "the file ends within its header";
    return false;
  }
  if (order_.get16(&header[0]) != 2) {
    error = "pcap version " + std::to_string(order_.get16(&header[0])) + ", only 2 is known";
    return false;
  }
  link_type_ = static_cast<uint16_t>(order_.get32(&header[16]));  // above are bits on the FCS
  interfaces.push_back({.name = {}, .description = {}, .link_type = link_type_});
  header_read_ = true;
  return true;
}

ReadResult CaptureReader::Pcap::next(RawPacket& packet, std::string& error) {
  if (!header_read_ && !read_header(error)) return ReadResult::kError;
  const std::string where = " at offset " + std::to_string(source_.offset());
  std::array<uint8_t, kRecordHeader> header;
  const size_t got = source_.read(header);
  if (got == 0) return ReadResult::kEnd;
  if (got != header.size()) {
    error = "the file ends within the packet" + where;
    return ReadResult::kError;
  }
  const uint32_t captured = order_.get32(&header[8]);
  if (captured > kLargestBlock) {
    error = "a packet of " + std::to_string(captured) + " bytes" + where;
    return ReadResult::kError;
  }
  bytes_.resize(captured);
  if (source_.read(bytes_) != captured) {
    error = "the file ends within the packet" + where;
    return ReadResult::kError;
  }
  const Duration fraction(uint64_t{order_.get32(&header[4])} * (nanoseconds_ ? 1 : 1000));
  packet = {.link_type = link_type_,
            .interface = 0,
            .time = Time(std::chrono::seconds(order_.get32(&header[0])) + fraction),
            .direction = Direction::kUnknown,
            .bytes = bytes_,
            .original_length = order_.get32(&header[12]),
            .comment = {}};
  return ReadResult::kRecord;
}

}  // namespace uroce::pcapng
