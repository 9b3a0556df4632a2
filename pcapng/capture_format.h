// SPDX-License-Identifier: BSD-2-Clause
// Inside of CaptureReader: bytes with their offset, and what the two file formats have in common.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "pcapng/capture_reader.h"

namespace uroce::pcapng {

// Integers in the byte order of the file, which is that of the machine that wrote it.
class FileOrder {
 public:
  explicit FileOrder(bool big = false) : big_(big) {}
  uint16_t get16(const uint8_t* p) const { return big_ ? wire::load_be16(p) : static_cast<uint16_t>(p[0] | p[1] << 8); }
  uint32_t get32(const uint8_t* p) const { return big_ ? wire::load_be32(p) : wire::load_le32(p); }
  uint64_t get64(const uint8_t* p) const { return big_ ? wire::load_be64(p) : wire::load_le64(p); }

 private:
  bool big_;
};

class CaptureReader::Source {
 public:
  explicit Source(std::istream& in) : in_(in) {}

  uint64_t offset() const { return offset_; }
  // Fills `out`, or returns how much there was.
  size_t read(std::span<uint8_t> out) {
    in_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    const auto got = static_cast<size_t>(in_.gcount());
    offset_ += got;
    return got;
  }

 private:
  std::istream& in_;
  uint64_t offset_ = 0;
};

// A frame as it is in the file; `bytes` and `comment` are valid until the next one is read.
struct CaptureReader::RawPacket {
  uint16_t link_type = 0;
  uint32_t interface = 0;
  Time time{};
  Direction direction = Direction::kUnknown;
  std::span<const uint8_t> bytes;
  uint32_t original_length = 0;
  std::string_view comment;
};

class CaptureReader::Format {
 public:
  // Larger blocks are not believed: the largest frames are 256 KiB, and blocks with comments little more.
  static constexpr uint32_t kLargestBlock = 1u << 20;

  virtual ~Format() = default;
  // On kError `error` says what is wrong.
  virtual ReadResult next(RawPacket& packet, std::string& error) = 0;

  std::vector<Interface> interfaces;
};

// Classic pcap; the first four bytes have been read.
class CaptureReader::Pcap final : public CaptureReader::Format {
 public:
  static bool is_magic(const std::array<uint8_t, 4>& magic);
  Pcap(Source& source, const std::array<uint8_t, 4>& magic);
  ReadResult next(RawPacket& packet, std::string& error) override;

 private:
  bool read_header(std::string& error);

  Source& source_;
  FileOrder order_;
  bool nanoseconds_;
  bool header_read_ = false;
  uint16_t link_type_ = 0;
  std::vector<uint8_t> bytes_;
};

// pcapng; the type of the first block has been read.
class CaptureReader::Pcapng final : public CaptureReader::Format {
 public:
  explicit Pcapng(Source& source) : source_(source) {}
  ReadResult next(RawPacket& packet, std::string& error) override;

 private:
  struct Clock {  // of an interface
    uint64_t units_per_second = 1000000;
    int64_t offset_seconds = 0;
  };
  struct Options {
    std::string_view comment;
    uint32_t flags = 0;
  };
  enum class Block : uint8_t { kPacket, kOther, kBad };

  bool read_block(std::string& error, bool& end);
  Block take_block(RawPacket& packet);
  bool begin_section();
  bool add_interface();
  bool take_enhanced(RawPacket& packet);
  bool take_obsolete(RawPacket& packet);
  bool take_simple(RawPacket& packet);
  bool finish_packet(RawPacket& packet, size_t data_at, uint32_t captured, size_t section_interface);
  template <class Visitor>
  bool visit_options(size_t at, Visitor visit) const;
  Time time(size_t interface, uint32_t high, uint32_t low) const;

  Source& source_;
  FileOrder order_;
  uint64_t block_offset_ = 0;
  uint32_t block_type_ = 0;
  std::vector<uint8_t> body_;  // without type and lengths
  const char* problem_ = "";   // of a bad block
  size_t section_base_ = 0;    // the section's first interface
  std::vector<Clock> clocks_;  // like `interfaces`
  std::vector<uint32_t> snap_lengths_;
  Time last_time_{};
};

}  // namespace uroce::pcapng
