#include "trace/pcapng_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trace/pcapng.h"

namespace uroce::trace {

PcapngWriter::PcapngWriter(std::ostream& out, std::string_view application) : out_(out) {
  block_.reserve(2048);
  begin(pcapng::kSectionHeader);
  put32(pcapng::kByteOrderMagic);
  put16(1);  // version 1.0
  put16(0);
  put32(0xffffffff);  // section length: not known
  put32(0xffffffff);
  option(pcapng::kShbApplication, application);
  end();
}

uint32_t PcapngWriter::add_interface(std::string_view name, std::string_view description) {
  static constexpr uint8_t kNanoseconds = 9;  // 10^-9 s
  begin(pcapng::kInterfaceDescription);
  put16(pcapng::kLinkEthernet);
  put16(0);
  put32(0);  // no snap length
  option(pcapng::kIfName, name);
  if (!description.empty()) option(pcapng::kIfDescription, description);
  option(pcapng::kIfTsresol, std::span(&kNanoseconds, 1));
  end();
  return interfaces_++;
}

void PcapngWriter::write(uint32_t interface, Time time, Direction direction, std::span<const uint8_t> header,
                         std::span<const uint8_t> payload, uint32_t original_length, std::string_view comment) {
  const auto captured = static_cast<uint32_t>(header.size() + payload.size());
  const auto stamp = static_cast<uint64_t>(std::max<int64_t>(time.time_since_epoch().count(), 0));
  begin(pcapng::kEnhancedPacket);
  put32(interface);
  put32(static_cast<uint32_t>(stamp >> 32));
  put32(static_cast<uint32_t>(stamp));
  put32(captured);
  put32(std::max(original_length, captured));
  put(header.data(), header.size());
  put(payload.data(), payload.size());
  pad();
  if (direction != Direction::kUnknown) {
    const uint32_t flags = direction == Direction::kIn ? pcapng::kFlagInbound : pcapng::kFlagOutbound;
    std::array<uint8_t, sizeof flags> bytes;
    std::memcpy(bytes.data(), &flags, sizeof flags);
    option(pcapng::kEpbFlags, bytes);
  }
  if (!comment.empty()) option(pcapng::kComment, comment);
  end();
}

void PcapngWriter::begin(uint32_t block_type) {
  block_.clear();
  options_ = false;
  put32(block_type);
  put32(0);  // length, see end()
}

void PcapngWriter::put(const void* data, size_t size) {
  const size_t at = block_.size();
  block_.resize(at + size);
  if (size > 0) std::memcpy(&block_[at], data, size);
}

void PcapngWriter::pad() {
  block_.resize((block_.size() + 3) & ~size_t{3});
}

void PcapngWriter::option(uint16_t code, std::span<const uint8_t> value) {
  value = value.first(std::min<size_t>(value.size(), 0xffff));
  put16(code);
  put16(static_cast<uint16_t>(value.size()));
  put(value.data(), value.size());
  pad();
  options_ = true;
}

void PcapngWriter::option(uint16_t code, std::string_view value) {
  option(code, std::span(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
}

void PcapngWriter::end() {
  if (options_) put32(0);  // opt_endofopt
  const auto size = static_cast<uint32_t>(block_.size() + sizeof(uint32_t));
  put32(size);
  std::memcpy(&block_[4], &size, sizeof size);
  if (!ok_) return;
  ok_ = static_cast<bool>(out_.write(reinterpret_cast<const char*>(block_.data()), size));
  if (ok_) bytes_written_ += size;
}

}  // namespace uroce::trace
