// SPDX-License-Identifier: BSD-2-Clause
// Several packets behind one UDP header.
#include "wire/segment_batch.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/wire/hex.h"
#include "wire/bth.h"
#include "wire/icrc.h"

namespace uroce::wire {
namespace {

using Bytes = std::vector<uint8_t>;

Envelope envelope_of(bool v4) {
  Envelope envelope{.source = IpAddress::v4(hex("c0000201").data()),
                    .destination = IpAddress::v4(hex("c0000202").data())};
  if (!v4) {
    envelope.source = IpAddress::v6(hex("20010db8000000000000000000000001").data());
    envelope.destination = IpAddress::v6(hex("20010db8000000000000000000000002").data());
  }
  envelope.source_port = 4791;
  envelope.ip_id = 0xfffe;  // it goes over zero
  envelope.dont_fragment = true;
  return envelope;
}

// `size` bytes of payload and more, random.
void append_packet(Bytes& batch, Envelope envelope, uint16_t id, uint32_t psn, size_t size, std::mt19937& random) {
  Bth bth;
  bth.opcode = Opcode::kRcWriteMiddle;
  bth.dest_qp = Qpn(0x123456);
  bth.psn = Psn(psn);
  Bytes ib(kBthSize + size + kIcrcSize);
  bth.emit(ib.data());
  for (size_t i = kBthSize; i < ib.size(); ++i) ib[i] = static_cast<uint8_t>(random());
  envelope.ip_id = id;
  store_le32(&ib[ib.size() - kIcrcSize], icrc(envelope, std::span(ib).first(ib.size() - kIcrcSize)));
  batch.insert(batch.end(), ib.begin(), ib.end());
}

Bytes make_batch(bool v4, size_t count, size_t size, size_t last, uint16_t id_step, std::mt19937& random) {
  Bytes batch;
  const Envelope envelope = envelope_of(v4);
  uint16_t id = envelope.ip_id;
  for (uint32_t psn = 0; psn < count; ++psn, id = static_cast<uint16_t>(id + id_step)) {
    append_packet(batch, envelope, id, psn, psn + 1 == count ? last : size, random);
  }
  return batch;
}

TEST(SegmentBatch, EndsWhereTheIcrcSays) {
  std::mt19937 random(1);
  for (const bool v4 : {true, false}) {
    for (const size_t size : {0u, 4u, 252u, 1024u, 4096u}) {
      for (const size_t count : {2u, 3u, 15u}) {
        for (const size_t last : {size, size / 8 * 4}) {
          const uint16_t step = v4 ? 1 : 0;
          const Bytes batch = make_batch(v4, count, size, last, step, random);
          const auto found = find_segment_batch(envelope_of(v4), batch);
          ASSERT_TRUE(found) << size << " " << count << " " << last;
          EXPECT_EQ(found->segment, size + 16);
          EXPECT_EQ(found->id_step, step);
          EXPECT_EQ(found->packets(batch.size()), count);
        }
      }
    }
  }
}

// Sent one by one with an identification of 0 each, and joined where they came.
TEST(SegmentBatch, IdentificationsMayStayWhatTheyAre) {
  std::mt19937 random(2);
  const auto found = find_segment_batch(envelope_of(true), make_batch(true, 4, 1024, 100, 0, random));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id_step, 0);
}

TEST(SegmentBatch, OnePacketIsNone) {
  std::mt19937 random(3);
  Bytes one = make_batch(true, 1, 1024, 1024, 1, random);
  EXPECT_FALSE(find_segment_batch(envelope_of(true), one));
  one[100] ^= 1;  // and a corrupted one neither
  EXPECT_FALSE(find_segment_batch(envelope_of(true), one));
}

// What cannot be told apart stays one, with a wrong ICRC.
TEST(SegmentBatch, ACorruptedFirstPacketHidesTheOthers) {
  std::mt19937 random(4);
  Bytes batch = make_batch(true, 3, 1024, 1024, 1, random);
  batch[500] ^= 1;
  EXPECT_FALSE(find_segment_batch(envelope_of(true), batch));
}

TEST(SegmentBatch, ACorruptedLaterPacketDoesNot) {
  std::mt19937 random(5);
  Bytes batch = make_batch(true, 3, 1024, 1024, 1, random);
  batch[1500] ^= 1;
  const auto found = find_segment_batch(envelope_of(true), batch);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->segment, 1040u);
  EXPECT_EQ(found->id_step, 1);
}

TEST(SegmentBatch, ShortAndRandomBytesAreNone) {
  std::mt19937 random(6);
  for (size_t size = 0; size < 200; ++size) {
    Bytes bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    EXPECT_FALSE(find_segment_batch(envelope_of(true), bytes));
  }
}

// Headers wherever one could be: what is looked at has a limit, and nothing is found.
TEST(SegmentBatch, BytesThatAllLookLikeHeaders) {
  Bytes bytes(65504);
  for (size_t i = 0; i < bytes.size(); i += 4) store_be32(&bytes[i], 0x0700ffff);  // RC WRITE middle, P_Key 0xffff
  EXPECT_FALSE(find_segment_batch(envelope_of(true), bytes));
}

}  // namespace
}  // namespace uroce::wire
