// SPDX-License-Identifier: BSD-2-Clause
// Each message in bytes that were written by hand from the table (wire.md "RDMA CM"), and each field alone.
#include "wire/cm_message.h"

#include <bit>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/wire/hex.h"

namespace uroce::wire {
namespace {

const char* const kHeader = "01070203 00000000 0102030405060708 ";  // the attribute follows

IpAddress v4(uint8_t last) {
  const uint8_t four[] = {10, 0, 0, last};
  return IpAddress::v4(four);
}

template <size_t size>
std::array<uint8_t, size> data(uint8_t value) {
  std::array<uint8_t, size> bytes;
  bytes.fill(value);
  return bytes;
}

std::string repeat(const char* byte, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += byte;
  return text;
}

// `golden`: from the attribute on, 240 bytes.
void expect_golden(const CmMessage& message, const std::string& golden, uint32_t modifier = 0) {
  const CmMad mad{.transaction = TransactionId{0x0102030405060708}, .modifier = modifier, .message = message};
  const std::vector<uint8_t> expected = hex(kHeader + golden);
  ASSERT_EQ(expected.size(), kMadSize);
  const Mad emitted = emit_cm(mad);
  EXPECT_EQ(std::vector<uint8_t>(emitted.begin(), emitted.end()), expected);
  CmMad parsed;
  ASSERT_EQ(parse_cm(expected, parsed), CmParseError::kNone);
  EXPECT_EQ(parsed, mad);
}

TEST(CmMessage, Req) {
  Req req;
  req.local_id = CommId{0x11223344};
  req.vendor_id = 0xa1a2a3;
  req.service_id = ServiceId{0x01061d2f};
  req.ca_guid = Guid{0x021122fffe334455};
  req.qkey = 0x0a0b0c0d;
  req.qpn = Qpn(0x123456);
  req.responder_resources = 7;
  req.eecn = 0x654321;
  req.initiator_depth = 9;
  req.remote_eecn = 0xabcdef;
  req.remote_response_timeout = 20;
  req.transport = CmTransport::kExtended;
  req.flow_control = true;
  req.starting_psn = Psn(0xf0f1f2);
  req.local_response_timeout = 21;
  req.retry_count = 7;
  req.pkey = 0xffff;
  req.path_mtu = 5;
  req.rdc_exists = true;
  req.rnr_retry = 6;
  req.max_cm_retries = 15;
  req.srq = true;
  req.extended_transport = kExtendedTransportXrc;
  req.primary = {.local_lid = 0xffff,
                 .remote_lid = 0xfffe,
                 .local_gid = v4(1),
                 .remote_gid = v4(2),
                 .flow_label = 0xfedcb,
                 .rate = 0x1f,
                 .traffic_class = 0x68,
                 .hop_limit = 64,
                 .sl = 10,
                 .subnet_local = true,
                 .ack_timeout = 19};
  req.alternate = {.local_lid = 1,
                   .remote_lid = 2,
                   .local_gid = v4(3),
                   .remote_gid = v4(4),
                   .flow_label = 0x12345,
                   .rate = 3,
                   .traffic_class = 4,
                   .hop_limit = 5,
                   .sl = 6,
                   .subnet_local = false,
                   .ack_timeout = 7};
  req.private_data = data<92>(0x5a);
  expect_golden(req,
                "0010 0000 0000e0e1"
                "11223344 00 a1a2a3 0000000001061d2f 021122fffe334455 00000000 0a0b0c0d"  // 0..31
                "123456 07 654321 09 abcdef a7 f0f1f2 af ffff 5e f9"                      // 32..51
                "ffff fffe 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002"
                "fedcb0 1f 68 40 a8 98"  // 88..95
                "0001 0002 00000000000000000000ffff0a000003 00000000000000000000ffff0a000004"
                "123450 03 04 05 60 38" +
                    repeat("5a", 92),
                0xe0e1);
}

TEST(CmMessage, Mra) {
  Mra mra;
  mra.local_id = CommId{0x11223344};
  mra.remote_id = CommId{0x55667788};
  mra.message = CmAnswered::kRep;
  mra.service_timeout = 24;
  mra.private_data = data<222>(0x5a);
  expect_golden(mra, "0011 0000 00000000 11223344 55667788 40 c0" + repeat("5a", 222));
}

TEST(CmMessage, Rej) {
  Rej rej;
  rej.local_id = CommId{0x11223344};
  rej.remote_id = CommId{0x55667788};
  rej.message = CmAnswered::kOther;
  rej.info_length = 8;
  rej.reason = RejReason::kConsumer;
  rej.additional_info = data<72>(0xa5);
  rej.private_data = data<148>(0x5a);
  expect_golden(rej, "0012 0000 00000000 11223344 55667788 80 10 001c" + repeat("a5", 72) + repeat("5a", 148));
}

TEST(CmMessage, Rep) {
  Rep rep;
  rep.local_id = CommId{0x11223344};
  rep.remote_id = CommId{0x55667788};
  rep.qkey = 0x01020304;
  rep.qpn = Qpn(0x123456);
  rep.vendor_id_high = 0xa1;
  rep.vendor_id_middle = 0xa2;
  rep.vendor_id_low = 0xa3;
  rep.eecn = 0x654321;
  rep.starting_psn = Psn(0xf0f1f2);
  rep.responder_resources = 16;
  rep.initiator_depth = 3;
  rep.target_ack_delay = 15;
  rep.failover_accepted = 2;
  rep.flow_control = true;
  rep.rnr_retry = 7;
  rep.srq = true;
  rep.ca_guid = Guid{0x021122fffe334455};
  rep.private_data = data<196>(0x5a);
  expect_golden(rep,
                "0013 0000 00000001 11223344 55667788 01020304 123456 a1 654321 a2 f0f1f2 a3 10 03 7d f0"
                "021122fffe334455" +
                    repeat("5a", 196),
                1);
}

TEST(CmMessage, Rtu) {
  Rtu rtu;
  rtu.local_id = CommId{0x11223344};
  rtu.remote_id = CommId{0x55667788};
  rtu.private_data = data<224>(0x5a);
  expect_golden(rtu, "0014 0000 00000000 11223344 55667788" + repeat("5a", 224));
}

TEST(CmMessage, Dreq) {
  Dreq dreq;
  dreq.local_id = CommId{0x11223344};
  dreq.remote_id = CommId{0x55667788};
  dreq.remote_qpn = Qpn(0x123456);
  dreq.private_data = data<220>(0x5a);
  expect_golden(dreq, "0015 0000 00000000 11223344 55667788 123456 00" + repeat("5a", 220));
}

TEST(CmMessage, Drep) {
  Drep drep;
  drep.local_id = CommId{0x11223344};
  drep.remote_id = CommId{0x55667788};
  drep.private_data = data<224>(0x5a);
  expect_golden(drep, "0016 0000 00000000 11223344 55667788" + repeat("5a", 224));
}

TEST(CmMessage, SidrReq) {
  SidrReq req;
  req.request_id = CommId{0x11223344};
  req.pkey = 0x8001;
  req.service_id = ServiceId{0x01111d2f};
  req.private_data = data<216>(0x5a);
  expect_golden(req, "0017 0000 00000000 11223344 8001 0000 0000000001111d2f" + repeat("5a", 216));
}

TEST(CmMessage, SidrRep) {
  SidrRep rep;
  rep.request_id = CommId{0x11223344};
  rep.status = SidrStatus::kNoQp;
  rep.info_length = 71;
  rep.vendor_id_high = 0xa1a2;
  rep.qpn = Qpn(0x123456);
  rep.vendor_id_low = 0xa3;
  rep.service_id = ServiceId{0x01111d2f};
  rep.qkey = 0x01234567;
  rep.additional_info = data<72>(0xa5);
  rep.private_data = data<136>(0x5a);
  expect_golden(rep, "0018 0000 00000000 11223344 03 47 a1a2 123456 a3 0000000001111d2f 01234567" + repeat("a5", 72) +
                         repeat("5a", 136));
}

TEST(CmMessage, Lap) {
  Lap lap;
  lap.local_id = CommId{0x11223344};
  lap.remote_id = CommId{0x55667788};
  lap.remote_qpn = Qpn(0x123456);
  lap.remote_response_timeout = 20;
  lap.alternate = {.local_lid = 1,
                   .remote_lid = 2,
                   .local_gid = v4(3),
                   .remote_gid = v4(4),
                   .flow_label = 0x12345,
                   .rate = 0x3f,
                   .traffic_class = 4,
                   .hop_limit = 5,
                   .sl = 6,
                   .subnet_local = true,
                   .ack_timeout = 7};
  lap.private_data = data<168>(0x5a);
  expect_golden(lap,
                "0019 0000 00000000 11223344 55667788 00000000 123456 a0 00000000 0001 0002"
                "00000000000000000000ffff0a000003 00000000000000000000ffff0a000004 123450 04 05 3f 68 38" +
                    repeat("5a", 168));
}

TEST(CmMessage, Apr) {
  Apr apr;
  apr.local_id = CommId{0x11223344};
  apr.remote_id = CommId{0x55667788};
  apr.info_length = 16;
  apr.status = AprStatus::kUnsupported;
  apr.additional_info = data<72>(0xa5);
  apr.private_data = data<148>(0x5a);
  expect_golden(apr, "001a 0000 00000000 11223344 55667788 10 02 0000" + repeat("a5", 72) + repeat("5a", 148));
}

// How many bits of each message mean something, counted from the table: all ones, read and written again, keep as many.
TEST(CmMessage, ReservedBitsAreIgnoredAndWrittenAsZero) {
  struct Row {
    CmAttribute attribute;
    unsigned reserved;  // bits
  };
  constexpr Row kRows[] = {
      {CmAttribute::kReq, 8 + 32 + 2 * (4 + 2 + 3 + 3)},
      {CmAttribute::kMra, 6 + 3},
      {CmAttribute::kRej, 6 + 1},
      {CmAttribute::kRep, 4},
      {CmAttribute::kRtu, 0},
      {CmAttribute::kDreq, 8},
      {CmAttribute::kDrep, 0},
      {CmAttribute::kSidrReq, 16},
      {CmAttribute::kSidrRep, 0},
      {CmAttribute::kLap, 32 + 3 + 32 + 4 + 2 + 3 + 3},
      {CmAttribute::kApr, 16},
  };
  for (const Row& row : kRows) {
    Mad ones;
    ones.fill(0xff);
    MadHeader{.attribute = static_cast<uint16_t>(row.attribute)}.emit(ones.data());
    CmMad parsed;
    ASSERT_EQ(parse_cm(ones, parsed), CmParseError::kNone);
    EXPECT_EQ(attribute_of(parsed.message), row.attribute);
    const Mad again = emit_cm(parsed);
    unsigned kept = 0;
    for (size_t i = kMadHeaderSize; i < kMadSize; ++i) kept += static_cast<unsigned>(std::popcount(again[i]));
    EXPECT_EQ(kept, kMadDataSize * 8 - row.reserved) << cm_message_name(row.attribute);
  }
}

TEST(CmMessage, ValuesLongerThanTheirFieldLoseTheirFirstBits) {
  Req req;
  req.vendor_id = 0xff000000;
  req.retry_count = 0xf8;
  req.rnr_retry = 8;
  req.primary.flow_label = 0xfff00000;
  EXPECT_EQ(emit_cm({.message = req}), emit_cm({.message = Req{}}));
}

TEST(CmMessage, WhatIsNoMessageIsRefused) {
  const Mad good = emit_cm({.message = Rtu{}});
  CmMad out;
  ASSERT_EQ(parse_cm(good, out), CmParseError::kNone);
  const auto with = [&](size_t byte, uint8_t value) {
    Mad mad = good;
    mad[byte] = value;
    return parse_cm(mad, out);
  };
  EXPECT_EQ(with(0, 2), CmParseError::kVersion);
  EXPECT_EQ(with(1, 3), CmParseError::kClass);
  EXPECT_EQ(with(2, 1), CmParseError::kVersion);
  EXPECT_EQ(with(3, 0x83), CmParseError::kMethod);
  EXPECT_EQ(with(16, 1), CmParseError::kAttribute);
  for (int attribute = 0; attribute < 256; ++attribute) {
    EXPECT_EQ(with(17, static_cast<uint8_t>(attribute)) == CmParseError::kNone, attribute >= 0x10 && attribute <= 0x1a)
        << attribute;
    EXPECT_EQ(cm_message_name(CmAttribute{static_cast<uint16_t>(attribute)}) != nullptr,
              attribute >= 0x10 && attribute <= 0x1a);
  }
  EXPECT_EQ(with(5, 1), CmParseError::kNone) << "the status is nobody's business";
  for (size_t size = 0; size < kMadSize; ++size) {
    EXPECT_EQ(parse_cm(std::span(good).first(size), out), CmParseError::kLength) << size;
  }
  std::vector<uint8_t> longer(good.begin(), good.end());
  longer.push_back(0);
  EXPECT_EQ(parse_cm(longer, out), CmParseError::kLength);
}

TEST(BitFields, AnyPlace) {
  uint8_t bytes[9] = {};
  store_bits(bytes, {0, 3, 64}, 0x8000000000000001);
  EXPECT_EQ(load_bits(bytes, {0, 3, 64}), 0x8000000000000001);
  EXPECT_EQ(bytes[0], 0x10);
  EXPECT_EQ(bytes[8], 0x20);
  EXPECT_EQ(load_bits(bytes, {8, 2, 1}), 1U);
  EXPECT_EQ(load_bits(bytes, {8, 1, 3}), 2U);
}

}  // namespace
}  // namespace uroce::wire
