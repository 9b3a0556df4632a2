// SPDX-License-Identifier: BSD-2-Clause
// Writes frames as pcapng (draft-ietf-opsawg-pcapng): one section, Ethernet interfaces, nanoseconds. Called by the
// capture stage for every packet, by the simulator and by tests. Reads back with capture_reader.h, Wireshark and
// tcpdump.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "pcapng/record.h"
#include "wire/envelope.h"

namespace uroce::pcapng {

// Who wrote a file and where, for people; what is empty is left out.
struct SectionInfo {
  std::string_view application = "uroce";
  std::string_view hardware{};
  std::string_view os{};
};

struct InterfaceInfo {
  std::string_view name;
  std::string_view description{};
  std::span<const wire::IpAddress> addresses{};
  wire::MacAddress mac{};    // zero: unknown
  uint32_t snap_length = 0;  // bytes; 0: none
};

// Whole blocks go to the stream, one write each: a reader that follows a growing file sees no half block unless the
// stream splits it. After an error of the stream nothing more is written.
class PcapngWriter {
 public:
  // Writes the section header. The stream outlives the writer.
  explicit PcapngWriter(std::ostream& out, const SectionInfo& section = {});
  PcapngWriter(std::ostream& out, std::string_view application)
      : PcapngWriter(out, SectionInfo{.application = application}) {}

  // Returns its index for write(). At any time.
  uint32_t add_interface(std::string_view name, std::string_view description = {}) {
    return add_interface(InterfaceInfo{.name = name, .description = description});
  }
  uint32_t add_interface(const InterfaceInfo& info);

  // `time` since 1970. The frame is header and payload one after the other, so that a caller need not join them;
  // original_length: on the wire, 0 if that is all. A time before 1970 counts as 1970.
  void write(uint32_t interface, Time time, Direction direction, std::span<const uint8_t> header,
             std::span<const uint8_t> payload = {}, uint32_t original_length = 0, std::string_view comment = {});

  void write(const Record& record) {
    write(record.interface, record.time, record.direction, record.frame, {}, record.original_length, record.comment);
  }

  // How many packets of an interface the capture was to have until `time`, and how many of these are missing in it.
  void write_statistics(uint32_t interface, Time time, uint64_t seen, uint64_t dropped, std::string_view comment = {});

  // False once the stream has failed: disk full, pipe closed.
  bool ok() const { return ok_; }
  uint64_t bytes_written() const { return bytes_written_; }

 private:
  void begin(uint32_t block_type);
  void put16(uint16_t value) { put(&value, sizeof value); }
  void put32(uint32_t value) { put(&value, sizeof value); }
  void put(const void* data, size_t size);
  void pad();
  void option(uint16_t code, std::span<const uint8_t> value);
  void option(uint16_t code, std::string_view value);
  void option64(uint16_t code, uint64_t value);
  void put_time(Time time);
  void end();

  std::ostream& out_;
  std::vector<uint8_t> block_;  // reused
  uint32_t interfaces_ = 0;
  bool options_ = false;  // the block under way has some
  uint64_t bytes_written_ = 0;
  bool ok_ = true;
};

}  // namespace uroce::pcapng
