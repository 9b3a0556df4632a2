// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/record.h"

#include <gtest/gtest.h>

#include "wire/bth.h"
#include "wire/icrc.h"
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

// Three packets of one size and a shorter one behind one UDP header, as a capture in front of segmentation offload has
// them.
Record batch_record(wire::Envelope& envelope) {
  const uint8_t source[] = {10, 0, 0, 1}, destination[] = {10, 0, 0, 2};
  envelope.source = wire::IpAddress::v4(source);
  envelope.destination = wire::IpAddress::v4(destination);
  envelope.source_port = 4791;
  envelope.ip_id = 7;
  std::vector<uint8_t> ib;
  for (uint16_t i = 0; i < 4; ++i) {
    std::vector<uint8_t> packet(wire::kBthSize + (i < 3 ? 256 : 8) + wire::kIcrcSize, static_cast<uint8_t>(i));
    wire::Bth{.opcode = wire::Opcode::kRcWriteMiddle, .dest_qp = wire::Qpn(5), .psn = wire::Psn(i)}.emit(packet.data());
    wire::Envelope own = envelope;
    own.ip_id = static_cast<uint16_t>(7 + i);
    const std::span covered(packet.data(), packet.size() - wire::kIcrcSize);
    wire::store_le32(packet.data() + covered.size(), wire::icrc(own, covered));
    ib.insert(ib.end(), packet.begin(), packet.end());
  }
  Record record{.number = 9, .time = Time(std::chrono::seconds(3)), .interface = 2, .direction = Direction::kOut};
  record.frame.resize(wire::frame_header_size(envelope));
  wire::emit_frame_headers(envelope, static_cast<uint32_t>(wire::kUdpSize + ib.size()), record.frame.data());
  record.frame.insert(record.frame.end(), ib.begin(), ib.end());
  record.original_length = static_cast<uint32_t>(record.frame.size());
  return record;
}

TEST(RecordOfABatch, IsItsPackets) {
  wire::Envelope envelope;
  const Record record = batch_record(envelope);
  const std::vector<Record> packets = packets_of_batch(record);
  ASSERT_EQ(packets.size(), 4u);
  for (uint16_t i = 0; i < 4; ++i) {
    RocePart part;
    ASSERT_EQ(parse_record(packets[i], part), wire::FrameError::kNone);
    EXPECT_EQ(part.ib_size, i < 3 ? 272u : 24u);
    EXPECT_EQ(part.envelope.ip_id, 7 + i);
    EXPECT_TRUE(wire::icrc_matches(part.envelope, part.ib));
    EXPECT_EQ(packets[i].number, 9u);
    EXPECT_EQ(packets[i].time, record.time);
    EXPECT_EQ(packets[i].interface, 2u);
    EXPECT_EQ(packets[i].direction, Direction::kOut);
    EXPECT_FALSE(packets[i].truncated());
    EXPECT_TRUE(packets_of_batch(packets[i]).empty());
  }
}

TEST(RecordOfABatch, ThatWasCutShortStaysOne) {
  wire::Envelope envelope;
  Record record = batch_record(envelope);
  record.frame.resize(record.frame.size() - 1);
  EXPECT_TRUE(packets_of_batch(record).empty());
}

}  // namespace
}  // namespace uroce::pcapng
