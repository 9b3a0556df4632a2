// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/pcapng_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "pcapng/pcapng.h"

namespace uroce::pcapng {

PcapngWriter::PcapngWriter(std::ostream& out, const SectionInfo& section) : out_(out) {
  block_.reserve(2048);
  begin(pcapng::kSectionHeader);
  put32(pcapng::kByteOrderMagic);
  put16(1);  // version 1.0
  put16(0);
  put32(0xffffffff);  // section length: not known
  put32(0xffffffff);
  if (!section.hardware.empty()) option(pcapng::kShbHardware, section.hardware);
  if (!section.os.empty()) option(pcapng::kShbOs, section.os);
  option(pcapng::kShbApplication, section.application);
  end();
}

uint32_t PcapngWriter::add_interface(const InterfaceInfo& info) {
  static constexpr uint8_t kNanoseconds = 9;  // 10^-9 s
  begin(pcapng::kInterfaceDescription);
  put16(pcapng::kLinkEthernet);
  put16(0);
  put32(info.snap_length);
  option(pcapng::kIfName, info.name);
  if (!info.description.empty()) option(pcapng::kIfDescription, info.description);
  for (const wire::IpAddress& address : info.addresses) {
    if (address.is_v4()) {  // and its mask, which we do not know: the host's own
      option(pcapng::kIfIpv4Address,
             std::array<uint8_t, 8>{address.v4_bytes()[0], address.v4_bytes()[1], address.v4_bytes()[2],
                                    address.v4_bytes()[3], 255, 255, 255, 255});
    } else {
      std::array<uint8_t, 17> with_prefix;
      std::copy(address.bytes.begin(), address.bytes.end(), with_prefix.begin());
      with_prefix.back() = 128;
      option(pcapng::kIfIpv6Address, with_prefix);
    }
  }
  if (info.mac != wire::MacAddress{}) option(pcapng::kIfMacAddress, info.mac);
  option(pcapng::kIfTsresol, std::span(&kNanoseconds, 1));
  end();
  return interfaces_++;
}

void PcapngWriter::write(uint32_t interface, Time time, Direction direction, std::span<const uint8_t> header,
                         std::span<const uint8_t> payload, uint32_t original_length, std::string_view comment) {
  const auto captured = static_cast<uint32_t>(header.size() + payload.size());
  begin(pcapng::kEnhancedPacket);
  put32(interface);
  put_time(time);
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

void PcapngWriter::write_statistics(uint32_t interface, Time time, uint64_t seen, uint64_t dropped,
                                    std::string_view comment) {
  begin(pcapng::kInterfaceStatistics);
  put32(interface);
  put_time(time);
  option64(pcapng::kIsbReceived, seen);
  option64(pcapng::kIsbOsDropped, dropped);
  option64(pcapng::kIsbDelivered, seen - dropped);
  if (!comment.empty()) option(pcapng::kComment, comment);
  end();
}

void PcapngWriter::put_time(Time time) {
  const auto stamp = static_cast<uint64_t>(std::max<int64_t>(time.time_since_epoch().count(), 0));
  put32(static_cast<uint32_t>(stamp >> 32));
  put32(static_cast<uint32_t>(stamp));
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

void PcapngWriter::option64(uint16_t code, uint64_t value) {
  std::array<uint8_t, sizeof value> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  option(code, bytes);
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

}  // namespace uroce::pcapng
