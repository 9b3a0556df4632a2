// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/capture_reader.h"

#include <gtest/gtest.h>

#include "tests/pcapng/capture_bytes.h"

namespace uroce::pcapng {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class CaptureReaderInOrder : public testing::TestWithParam<bool> {
 protected:
  CaptureBytes file{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(ByteOrder, CaptureReaderInOrder, testing::Values(false, true),
                         [](const auto& order) { return order.param ? "big" : "little"; });

TEST_P(CaptureReaderInOrder, PcapngPacketWithOptions) {
  file.section();
  file.block(1, file.body().u16(1).u16(0).u32(0).option(2, "eth7").option(3, "seventh").option(9, "\x09"));
  file.block(
      6, file.body().u32(0).u32(1).u32(5).u32(3).u32(9).raw("abc").u8(0).option(1, "why").u16(2).u16(4).u32(2).u32(0));
  const ReadCapture capture(file.bytes());
  EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
  ASSERT_EQ(capture.reader.interfaces().size(), 1u);
  EXPECT_EQ(capture.reader.interfaces()[0].name, "eth7");
  EXPECT_EQ(capture.reader.interfaces()[0].description, "seventh");
  ASSERT_EQ(capture.records.size(), 1u);
  const Record& record = capture.records[0];
  EXPECT_EQ(record.time, Time(nanoseconds((uint64_t{1} << 32) + 5)));
  EXPECT_EQ(text(record.frame), "abc");
  EXPECT_EQ(record.original_length, 9u);
  EXPECT_EQ(record.direction, Direction::kOut);
  EXPECT_EQ(record.comment, "why");
}

TEST_P(CaptureReaderInOrder, SimpleAndObsoletePacketsAndUnknownBlocks) {
  file.section().interface(1).packet(0, 77, "first");
  file.block(0x0bad, file.body().raw("whatever"));
  file.block(3, file.body().u32(6).raw("simple"));
  file.block(2, file.body().u16(0).u16(3).u32(0).u32(88).u32(3).u32(3).raw("old").u8(0).u16(2).u16(4).u32(1));
  const ReadCapture capture(file.bytes());
  EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
  ASSERT_EQ(capture.records.size(), 3u);
  EXPECT_EQ(text(capture.records[1].frame), "simple");
  EXPECT_EQ(capture.records[1].time, Time(microseconds(77)));  // it has none: the one before
  EXPECT_EQ(text(capture.records[2].frame), "old");
  EXPECT_EQ(capture.records[2].time, Time(microseconds(88)));
  EXPECT_EQ(capture.records[2].direction, Direction::kIn);
}

TEST_P(CaptureReaderInOrder, ClassicPcap) {
  for (const uint32_t magic : {0xa1b2c3d4u, 0xa1b23c4du}) {
    CaptureBytes pcap(GetParam());
    pcap.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(1);
    pcap.u32(1000).u32(999999).u32(5).u32(60).raw("frame");
    pcap.u32(1001).u32(1).u32(4).u32(4).raw("next");
    const ReadCapture capture(pcap.bytes());
    EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
    ASSERT_EQ(capture.records.size(), 2u);
    const Duration fraction = magic == 0xa1b2c3d4u ? Duration(microseconds(999999)) : nanoseconds(999999);
    EXPECT_EQ(capture.records[0].time, Time(seconds(1000) + fraction));
    EXPECT_EQ(text(capture.records[0].frame), "frame");
    EXPECT_EQ(capture.records[0].original_length, 60u);
    EXPECT_EQ(capture.records[0].direction, Direction::kUnknown);
    EXPECT_EQ(text(capture.records[1].frame), "next");
    EXPECT_EQ(capture.records[1].number, 2u);
  }
}

TEST(CaptureReader, SectionsHaveTheirOwnByteOrderAndInterfaces) {
  CaptureBytes first(false), second(true);
  first.section().interface(1).interface(1).packet(1, 1, "a");
  second.section().interface(1).packet(0, 2, "b");
  const ReadCapture capture(first.bytes() + second.bytes());
  EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
  ASSERT_EQ(capture.records.size(), 2u);
  EXPECT_EQ(capture.records[0].interface, 1u);
  EXPECT_EQ(capture.records[1].interface, 2u);
  EXPECT_EQ(capture.records[1].time, Time(microseconds(2)));
}

TEST(CaptureReader, TimeResolutions) {
  const struct {
    uint8_t resolution;
    uint64_t ticks;
    Duration time;
  } cases[] = {{0, 3, seconds(3)},
               {3, 1500, microseconds(1'500'000)},
               {6, 7, microseconds(7)},
               {9, 7, nanoseconds(7)},
               {12, 7999, nanoseconds(7)},
               {0x80, 2, seconds(2)},
               {0x8a, 512, microseconds(500'000)}};
  for (const auto& c : cases) {
    CaptureBytes file;
    file.section();
    file.block(1, file.body().u16(1).u16(0).u32(0).option(9, std::string(1, static_cast<char>(c.resolution))));
    const ReadCapture capture(file.packet(0, c.ticks, "x").bytes());
    ASSERT_EQ(capture.records.size(), 1u) << int{c.resolution} << " " << capture.reader.error();
    EXPECT_EQ(capture.records[0].time, Time(c.time)) << int{c.resolution};
  }
}

TEST(CaptureReader, TimeOffset) {
  CaptureBytes file;
  file.section();
  file.block(1, file.body().u16(1).u16(0).u32(0).option(14, std::string("\x0a\0\0\0\0\0\0\0", 8)));
  const ReadCapture capture(file.packet(0, 1, "x").bytes());
  ASSERT_EQ(capture.records.size(), 1u);
  EXPECT_EQ(capture.records[0].time, Time(seconds(10) + microseconds(1)));
}

// IP packets and cooked frames come out with an Ethernet header, so that one parser does for all.
TEST(CaptureReader, LinkTypes) {
  const std::string v4 = "\x45v4", v6 = "\x60v6";
  const std::string zeros(12, '\0'), ethernet4 = zeros + std::string("\x08\x00", 2), ethernet6 = zeros + "\x86\xdd";
  const std::string sll_mac = std::string(6, '\0') + "ABCDEF";
  const std::string sll_out = std::string("\0\x04\0\x01\0\x06", 6) + "ABCDEF" + std::string("\0\0\x08\0", 4);
  const std::string sll_in = std::string("\0\0\0\x01\0\x06", 6) + "ABCDEF" + std::string("\0\0\x86\xdd", 4);
  const std::string sll2 = std::string("\x08\0\0\0\0\0\0\x02\0\x01\x04\x06", 12) + "ABCDEF" + std::string(2, '\0');
  const struct {
    uint16_t link_type;
    std::string data, expected;
    Direction direction;
  } cases[] = {{1, v4, v4, Direction::kUnknown},
               {12, v4, ethernet4 + v4, Direction::kUnknown},
               {101, v6, ethernet6 + v6, Direction::kUnknown},
               {228, v4, ethernet4 + v4, Direction::kUnknown},
               {229, v6, ethernet6 + v6, Direction::kUnknown},
               {113, sll_out + v4, sll_mac + std::string("\x08\0", 2) + v4, Direction::kOut},
               {113, sll_in + v6, sll_mac + "\x86\xdd" + v6, Direction::kIn},
               {276, sll2 + v4, sll_mac + std::string("\x08\0", 2) + v4, Direction::kOut}};
  for (const auto& c : cases) {
    CaptureBytes file;
    const ReadCapture capture(file.section().interface(c.link_type).packet(0, 1, c.data).bytes());
    ASSERT_EQ(capture.records.size(), 1u) << c.link_type;
    EXPECT_EQ(text(capture.records[0].frame), c.expected) << c.link_type;
    EXPECT_EQ(capture.records[0].original_length, c.expected.size()) << c.link_type;
    EXPECT_EQ(capture.records[0].direction, c.direction) << c.link_type;
  }
}

TEST(CaptureReader, OtherLinkTypesAreSkippedAndCounted) {
  CaptureBytes file;
  file.section().interface(105).interface(1).packet(0, 1, "802.11").packet(1, 2, "ethernet");
  const ReadCapture capture(file.bytes());
  EXPECT_EQ(capture.end, ReadResult::kEnd);
  EXPECT_EQ(capture.reader.skipped(), 1u);
  ASSERT_EQ(capture.records.size(), 1u);
  EXPECT_EQ(capture.records[0].number, 2u);  // as other tools number it
}

}  // namespace
}  // namespace uroce::pcapng
