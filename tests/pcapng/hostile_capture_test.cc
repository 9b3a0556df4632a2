// SPDX-License-Identifier: BSD-2-Clause
// Files that are cut, damaged or made up: reading ends with an error that says where, and never reads or allocates
// beyond reason. Run with sanitizers.
#include <gtest/gtest.h>
#include <random>

#include "tests/pcapng/capture_bytes.h"

namespace uroce::pcapng {
namespace {

std::string pcapng_file(bool big) {
  CaptureBytes file(big);
  file.section().interface(1).interface(113);
  file.packet(0, 1, "frame of some length").packet(1, 2, std::string(30, 's'));
  file.block(3, file.body().u32(6).raw("simple"));
  return file.bytes();
}

std::string pcap_file(bool big) {
  CaptureBytes file(big);
  file.u32(0xa1b2c3d4).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(1);
  file.u32(1).u32(2).u32(5).u32(5).raw("frame").u32(1).u32(2).u32(5).u32(5).raw("again");
  return file.bytes();
}

TEST(HostileCapture, CutAnywhere) {
  for (const std::string& file : {pcapng_file(false), pcapng_file(true), pcap_file(false), pcap_file(true)}) {
    const size_t all = ReadCapture(file).records.size();
    int clean_ends = 0;
    for (size_t size = 0; size < file.size(); ++size) {
      const ReadCapture capture(file.substr(0, size));
      EXPECT_LE(capture.records.size(), all);
      if (capture.end == ReadResult::kEnd) {
        ++clean_ends;  // between two blocks
      } else {
        EXPECT_NE(capture.reader.error(), "") << size;
      }
    }
    EXPECT_LE(clean_ends, 6);
  }
}

TEST(HostileCapture, ErrorsSayWhatAndWhere) {
  const auto error = [](const std::string& bytes) { return ReadCapture(bytes).reader.error(); };
  EXPECT_EQ(error(""), "the file is empty");
  EXPECT_EQ(error("GIF89a, not a capture"), "neither pcapng nor pcap");
  EXPECT_EQ(error(pcap_file(false).substr(0, 30)), "the file ends within the packet at offset 24");
  CaptureBytes file;
  file.section().interface(1);
  const std::string at = "block at offset " + std::to_string(file.bytes().size()) + ": ";
  const auto with = [&](const CaptureBytes& more) { return error(file.bytes() + more.bytes()); };
  EXPECT_EQ(with(CaptureBytes().u32(6).u32(100)), at + "the file ends within it");
  EXPECT_EQ(with(CaptureBytes().u32(6).u32(13)), at + "length 13");
  EXPECT_EQ(with(CaptureBytes().u32(6).u32(0xfffffff0)), at + "length 4294967280");
  EXPECT_EQ(with(CaptureBytes().u32(7).u32(12).u32(16)), at + "its two lengths differ");
  EXPECT_EQ(with(CaptureBytes().packet(1, 0, "x")), at + "of an interface that was not described");
  EXPECT_EQ(with(CaptureBytes().block(6, CaptureBytes().u32(0).u32(0).u32(0).u32(9).u32(9).u32(0))),
            at + "more packet than block");
  EXPECT_EQ(with(CaptureBytes().block(6, CaptureBytes().u32(0))), at + "too short");
  EXPECT_EQ(with(CaptureBytes().block(6, CaptureBytes().u32(0).u32(0).u32(0).u32(0).u32(0).u16(1).u16(99))),
            at + "bad options");
}

TEST(HostileCapture, LyingLengthsOfClassicPcap) {
  CaptureBytes file;
  file.u32(0xa1b2c3d4).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(1).u32(0).u32(0).u32(0x7fffffff).u32(1);
  EXPECT_EQ(ReadCapture(file.bytes()).reader.error(), "a packet of 2147483647 bytes at offset 24");
}

TEST(HostileCapture, RandomDamage) {
  std::mt19937 random(4711);
  for (const std::string& file : {pcapng_file(false), pcapng_file(true), pcap_file(false)}) {
    for (int round = 0; round < 20000; ++round) {
      std::string damaged = file;
      for (uint32_t i = random() % 4; i <= 4; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
      const ReadCapture capture(damaged);
      EXPECT_EQ(capture.end == ReadResult::kError, !capture.reader.error().empty());
    }
  }
}

TEST(HostileCapture, RandomBlocks) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    CaptureBytes file;
    file.section();
    for (int block = 0; block < 8; ++block) {
      CaptureBytes body;
      for (uint32_t i = random() % 12; i > 0; --i) body.u32(random() % 3 == 0 ? random() : random() % 24);
      file.block(random() % 7, body);
    }
    const ReadCapture capture(file.bytes());
    EXPECT_LE(capture.records.size(), 8u);
  }
}

}  // namespace
}  // namespace uroce::pcapng
