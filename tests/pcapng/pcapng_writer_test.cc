// SPDX-License-Identifier: BSD-2-Clause
#include "pcapng/pcapng_writer.h"

#include <gtest/gtest.h>
#include <sstream>

#include "tests/pcapng/capture_bytes.h"

namespace uroce::pcapng {
namespace {

using std::chrono::nanoseconds;

std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(PcapngWriter, WhatIsWrittenReadsBack) {
  std::ostringstream out;
  PcapngWriter writer(out, "a test");
  EXPECT_EQ(writer.add_interface("eth0", "the first"), 0u);
  EXPECT_EQ(writer.add_interface("eth1"), 1u);
  const std::vector<uint8_t> header = bytes("hea"), payload = bytes("payload");
  writer.write(0, Time(nanoseconds(1'234'567'890'123'456'789)), Direction::kOut, header, payload, 5000, "a comment");
  writer.write(1, Time(nanoseconds(7)), Direction::kIn, payload);
  writer.write({.time = Time(nanoseconds(8)), .interface = 1, .frame = bytes("four")});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer.bytes_written(), out.str().size());

  const ReadCapture capture(out.str());
  EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
  ASSERT_EQ(capture.reader.interfaces().size(), 2u);
  EXPECT_EQ(capture.reader.interfaces()[0].name, "eth0");
  EXPECT_EQ(capture.reader.interfaces()[0].description, "the first");
  EXPECT_EQ(capture.reader.interfaces()[1].name, "eth1");
  ASSERT_EQ(capture.records.size(), 3u);
  const Record& first = capture.records[0];
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(first.time, Time(nanoseconds(1'234'567'890'123'456'789)));
  EXPECT_EQ(first.interface, 0u);
  EXPECT_EQ(first.direction, Direction::kOut);
  EXPECT_EQ(text(first.frame), "heapayload");
  EXPECT_EQ(first.original_length, 5000u);
  EXPECT_TRUE(first.truncated());
  EXPECT_EQ(first.comment, "a comment");
  const Record& second = capture.records[1];
  EXPECT_EQ(second.number, 2u);
  EXPECT_EQ(second.interface, 1u);
  EXPECT_EQ(second.time, Time(nanoseconds(7)));
  EXPECT_EQ(second.direction, Direction::kIn);
  EXPECT_FALSE(second.truncated());
  EXPECT_EQ(second.comment, "");
  EXPECT_EQ(capture.records[2].direction, Direction::kUnknown);
  EXPECT_EQ(text(capture.records[2].frame), "four");
}

TEST(PcapngWriter, TellsWhenTheStreamFails) {
  std::ostringstream out;
  PcapngWriter writer(out);
  writer.add_interface("eth0");
  const uint64_t before = writer.bytes_written();
  out.setstate(std::ios::badbit);
  writer.write(0, Time{}, Direction::kIn, bytes("x"));
  EXPECT_FALSE(writer.ok());
  out.clear();
  writer.write(0, Time{}, Direction::kIn, bytes("x"));  // half of a file is worse than its beginning
  EXPECT_EQ(writer.bytes_written(), before);
  EXPECT_EQ(out.str().size(), before);
}

TEST(PcapngWriter, LongTextIsCutToWhatAnOptionHolds) {
  std::ostringstream out;
  PcapngWriter writer(out);
  writer.add_interface("eth0");
  writer.write(0, Time(nanoseconds(-5)), Direction::kIn, bytes("x"), {}, 0, std::string(70000, 'c'));
  const ReadCapture capture(out.str());
  EXPECT_EQ(capture.end, ReadResult::kEnd) << capture.reader.error();
  ASSERT_EQ(capture.records.size(), 1u);
  EXPECT_EQ(capture.records[0].comment, std::string(65535, 'c'));
  EXPECT_EQ(capture.records[0].time, Time{});
}

}  // namespace
}  // namespace uroce::pcapng
