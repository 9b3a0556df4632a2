// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/record.h"

#include <gtest/gtest.h>

#include "wire/ip_udp.h"

namespace uroce::pcapng {
namespace {

Record roce_record(size_t ib_size) {
  wire::Envelope envelope;
  const uint8_t source[] = {10, 0, 0, 1}, destination[] = {10, 0, 0, 2};
  envelope.source = wire::IpAddress::v4(source);
  envelope.destination = wire::IpAddress::v4(destination);
  envelope.source_port = 0xc001;
  Record record;
  record.frame.resize(wire::frame_header_size(envelope) + ib_size, 0x11);
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib_size), record.frame.data());
  record.original_length = static_cast<uint32_t>(record.frame.size());
  return record;
}

TEST(Record, WholeFrame) {
  RocePart part;
  ASSERT_EQ(parse_record(roce_record(40), part), wire::FrameError::kNone);
  EXPECT_EQ(part.ib.size(), 40u);
  EXPECT_EQ(part.ib_size, 40u);
  EXPECT_EQ(part.envelope.source.text(), "10.0.0.1");
}

TEST(Record, CutFrameKeepsWhatIsThere) {
  Record record = roce_record(40);
  record.frame.resize(record.frame.size() - 25);
  ASSERT_TRUE(record.truncated());
  RocePart part;
  ASSERT_EQ(parse_record(record, part), wire::FrameError::kNone);
  EXPECT_EQ(part.ib.size(), 15u);
  EXPECT_EQ(part.ib_size, 40u);
  EXPECT_EQ(part.envelope.source_port, 0xc001);
}

TEST(Record, CutWithinTheHeadersIsNotRoce) {
  const Record whole = roce_record(40);
  for (size_t size = 0; size < 42; ++size) {
    Record record = whole;
    record.frame.resize(size);
    RocePart part;
    EXPECT_NE(parse_record(record, part), wire::FrameError::kNone) << size;
  }
}

// parse_frame() has not seen the UDP header of a frame that was cut within its IP header, as EtherType and version say
// it.
TEST(Record, CutFrameOfALengthThatUdpCannotHaveIsNotRoce) {
  for (uint16_t length = 0; length < wire::kUdpSize; ++length) {
    Record record = roce_record(40);
    wire::store_be16(&record.frame[12], 0x86dd);  // IPv6, and behind it version 4
    wire::store_be16(&record.frame[wire::kEthernetSize + wire::kIpv4Size + 4], length);
    record.frame.resize(wire::kEthernetSize + wire::kIpv4Size + wire::kUdpSize);
    record.original_length = 100000;
    RocePart part;
    EXPECT_NE(parse_record(record, part), wire::FrameError::kNone) << length << ": " << part.ib_size;
  }
}

TEST(Record, ShortFrameThatWasNotCutIsAnError) {
  Record record = roce_record(40);
  record.frame.resize(record.frame.size() - 1);
  record.original_length = static_cast<uint32_t>(record.frame.size());
  RocePart part;
  EXPECT_EQ(parse_record(record, part), wire::FrameError::kTruncated);
  record.original_length = static_cast<uint32_t>(record.frame.size());  // UDP says more than there was on the wire
  record.frame.pop_back();
  EXPECT_EQ(parse_record(record, part), wire::FrameError::kTruncated);
}

}  // namespace
}  // namespace uroce::pcapng
