// SPDX-License-Identifier: BSD-2-Clause
// Reads capture files: pcapng and classic pcap, as tcpdump, Wireshark and uroce write them. Called by `uroce check`.
// Not libpcap: that hides directions, interfaces and comments of pcapng.
//
// Files are not trusted: whatever is in them, reading ends with records or an error, and needs little memory.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "pcapng/record.h"

namespace uroce::pcapng {

struct Interface {
  std::string name;  // empty if the file does not say
  std::string description;
  uint16_t link_type = 0;  // as in the file
};

enum class ReadResult : uint8_t { kRecord, kEnd, kError };

class CaptureReader {
 public:
  // The stream, opened as binary, outlives the reader.
  explicit CaptureReader(std::istream& in);
  ~CaptureReader();

  // The next frame, as Ethernet whatever the link type was: IP packets and Linux "cooked" ones get an Ethernet header
  // with the addresses that are known. Frames of other link types are skipped. Reuses the record's memory.
  ReadResult next(Record& record);

  const std::string& error() const { return error_; }  // after kError: what is wrong and where
  const std::vector<Interface>& interfaces() const;    // of what has been read so far, of all sections
  uint64_t skipped() const { return skipped_; }        // frames of link types that carry no Ethernet or IP

 private:
  class Source;
  class Format;
  class Pcap;
  class Pcapng;
  struct RawPacket;
  static bool to_ethernet(const RawPacket& raw, Record& record);
  bool detect();

  std::unique_ptr<Source> source_;
  std::unique_ptr<Format> format_;
  std::string error_;
  uint64_t records_ = 0;
  uint64_t skipped_ = 0;
};

}  // namespace uroce::pcapng
