// SPDX-License-Identifier: BSD-2-Clause
// One captured frame: what capture files hold, and what the simulator and the capture stage hand to the oracle.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "wire/ip_udp.h"

namespace uroce::pcapng {

enum class Direction : uint8_t { kUnknown, kIn, kOut };  // as the host sees it where the capture was taken

struct Record {
  uint64_t number = 0;     // from 1, in its file or run
  Time time{};             // since 1970 in files, virtual time in the simulator
  uint32_t interface = 0;  // index into the file's interfaces
  Direction direction = Direction::kUnknown;
  std::vector<uint8_t> frame;    // Ethernet, without FCS; shorter than original_length if the capture cut it
  uint32_t original_length = 0;  // of the frame on the wire; 0 counts as frame.size()
  std::string comment{};

  bool truncated() const { return original_length > frame.size(); }
};

// The RoCE v2 part of a record.
struct RocePart {
  wire::Envelope envelope;
  std::span<const uint8_t> ib;  // BTH to ICRC; of a truncated record as much as was kept, inside `frame`
  size_t ib_size = 0;           // on the wire, ICRC included
};

// parse_frame() for records: a frame that the capture cut short is accepted as long as its IP and UDP headers are
// there. On failure `out` is unspecified. Valid as long as the record's frame.
wire::FrameError parse_record(const Record& record, RocePart& out);

// The packets of a frame that is a segment batch (wire/segment_batch.h), each as a record of its own with headers of
// its own, as they would be on a wire. Empty: the record is what it is, or was cut short.
std::vector<Record> packets_of_batch(const Record& record);

}  // namespace uroce::pcapng
