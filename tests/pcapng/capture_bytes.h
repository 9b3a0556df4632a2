// SPDX-License-Identifier: BSD-2-Clause
// Capture files made by hand, in either byte order, for tests of the reader.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "pcapng/capture_reader.h"

namespace uroce::pcapng {

class CaptureBytes {
 public:
  explicit CaptureBytes(bool big = false) : big_(big) {}

  CaptureBytes& u8(uint8_t v) {
    bytes_ += static_cast<char>(v);
    return *this;
  }
  CaptureBytes& u16(uint16_t v) { return number(v, 2); }
  CaptureBytes& u32(uint32_t v) { return number(v, 4); }
  CaptureBytes& u64(uint64_t v) { return number(v, 8); }
  CaptureBytes& raw(std::string_view v) {
    bytes_ += v;
    return *this;
  }
  CaptureBytes& option(uint16_t code, std::string_view value) {
    u16(code).u16(static_cast<uint16_t>(value.size())).raw(value);
    while (bytes_.size() % 4 != 0) u8(0);
    return *this;
  }
  // A pcapng block around `body`.
  CaptureBytes& block(uint32_t type, const CaptureBytes& body) {
    std::string padded = body.bytes_;
    while (padded.size() % 4 != 0) padded += '\0';
    const auto length = static_cast<uint32_t>(padded.size() + 12);
    return u32(type).u32(length).raw(padded).u32(length);
  }
  CaptureBytes body() const { return CaptureBytes(big_); }

  // Blocks of their usual form.
  CaptureBytes& section() { return block(0x0a0d0d0a, body().u32(0x1a2b3c4d).u16(1).u16(0).u64(~uint64_t{0})); }
  CaptureBytes& interface(uint16_t link_type) { return block(1, body().u16(link_type).u16(0).u32(0)); }
  CaptureBytes& packet(uint32_t interface_id, uint64_t ticks, std::string_view data) {
    const auto size = static_cast<uint32_t>(data.size());
    return block(6, body()
                        .u32(interface_id)
                        .u32(static_cast<uint32_t>(ticks >> 32))
                        .u32(static_cast<uint32_t>(ticks))
                        .u32(size)
                        .u32(size)
                        .raw(data));
  }

  const std::string& bytes() const { return bytes_; }

 private:
  CaptureBytes& number(uint64_t v, int size) {
    for (int i = 0; i < size; ++i) u8(static_cast<uint8_t>(v >> 8 * (big_ ? size - 1 - i : i)));
    return *this;
  }

  bool big_;
  std::string bytes_;
};

// All records of a file, and how reading it ended.
struct ReadCapture {
  explicit ReadCapture(const std::string& bytes) : in(bytes), reader(in) {
    Record record;
    while ((end = reader.next(record)) == ReadResult::kRecord) records.push_back(record);
  }

  std::istringstream in;
  CaptureReader reader;
  std::vector<Record> records;
  ReadResult end{};
};

inline std::string text(const std::vector<uint8_t>& frame) {
  return {frame.begin(), frame.end()};
}

}  // namespace uroce::pcapng
