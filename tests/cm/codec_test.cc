// SPDX-License-Identifier: BSD-2-Clause
// Requests, replies and events as bytes: they come back as they were, and what is none is refused.
#include "cm/codec.h"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

#include "tests/cm/lab.h"

namespace uroce::cm::test {
namespace {

PrivateData bytes_of(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  return PrivateData(bytes);
}

const Path kPath{.netdev = 7,
                 .ca_guid = wire::Guid{0x1122334455667788},
                 .local = v4(1),
                 .remote = v6(2),
                 .flow_label = 0xabcde,
                 .traffic_class = 0x68,
                 .hop_limit = 3,
                 .mtu = 5,
                 .rate = 17,
                 .sl = 9,
                 .ack_timeout = 21};
const Parameters kParameters{.qpn = wire::Qpn(0x123456),
                             .qkey = 0x89abcdef,
                             .responder_resources = 1,
                             .initiator_depth = 2,
                             .flow_control = true,
                             .retry_count = 3,
                             .rnr_retry = 4,
                             .srq = true};
const QpAttributes kQp{.path = kPath,
                       .remote_guid = wire::Guid{99},
                       .dest_qpn = wire::Qpn(0x654321),
                       .qkey = 12,
                       .rq_psn = wire::Psn(0xffffff),
                       .sq_psn = wire::Psn(1),
                       .max_rd_atomic = 5,
                       .max_dest_rd_atomic = 6,
                       .min_rnr_timer = 7,
                       .retry_count = 8,
                       .rnr_retry = 9};
const wire::CmaHeader kNames{.v4 = false, .source_port = 4711, .source = v6(8), .destination = v6(9)};
constexpr Id kId{0xfedcba98};
constexpr BindingId kBinding{0x10203040};

// One of each kind, no field with its default value.
std::vector<Request> requests() {
  return {
      BindRequest{{.space = wire::PortSpace::kUdp,
                   .address = link_local(3),
                   .v4 = false,
                   .v6_only = true,
                   .netdev = 4,
                   .port = 4711,
                   .reuse_address = true,
                   .privileged = true}},
      ReuseRequest{kBinding, true},
      ReleaseRequest{kBinding},
      ListenRequest{kBinding,
                    {.service = wire::ServiceId{0x0123456789abcdef},
                     .service_mask = 0xff00ff00ff00ff00,
                     .ip = false,
                     .datagrams = true,
                     .address = v4(9),
                     .takes_v4 = false,
                     .takes_v6 = false,
                     .netdev = 3,
                     .backlog = 5}},
      ConnectRequest{{.transport = Transport::kXrc,
                      .service = wire::ServiceId{77},
                      .names = kNames,
                      .path = kPath,
                      .parameters = kParameters,
                      .ece = {.vendor_id = 0xabcdef, .options = 0x12345678},
                      .data = bytes_of(92)}},
      TakeRequest{kId},
      AcceptRequest{kId, {.parameters = kParameters, .ece = {1, 2}, .ack_delay = 31, .data = bytes_of(196)}},
      ConfirmRequest{kId, bytes_of(PrivateData::kMost)},
      RejectRequest{kId,
                    {.reason = wire::RejReason::kVendorOption,
                     .sidr_status = wire::SidrStatus::kVersion,
                     .additional_info = AdditionalInfo(bytes_of(AdditionalInfo::kMost).bytes()),
                     .data = bytes_of(148)}},
      EstablishRequest{kId},
      DisconnectRequest{kId, bytes_of(1)},
      DestroyRequest{kId},
      AdoptRequest{.id = kId,
                   .remote_id = Id{5},
                   .transport = Transport::kUc,
                   .service = wire::ServiceId{6},
                   .local_qpn = wire::Qpn(7),
                   .qp = kQp},
  };
}

std::vector<Answer> answers() {
  const Event event{.kind = EventKind::kTimewaitExit,
                    .id = kId,
                    .listener = Id{3},
                    .remote_id = Id{4},
                    .status = -110,
                    .transport = Transport::kUd,
                    .service = wire::ServiceId{5},
                    .names = kNames,
                    .parameters = kParameters,
                    .ece = {3, 4},
                    .qp = kQp,
                    .data = bytes_of(PrivateData::kMost)};
  return {Reply{.error = 4095, .id = kId, .binding = kBinding, .port = 65535}, event, Event{}, Reply{}};
}

Encoded bytes_of_answer(const Answer& answer) {
  return std::visit([](const auto& value) { return encode(value); }, answer);
}

TEST(CmCodec, RequestsComeBackAsTheyWere) {
  const std::vector<Request> all = requests();
  ASSERT_EQ(all.size(), std::variant_size_v<Request>);
  for (const Request& request : all) {
    const auto back = decode_request(encode(request).bytes());
    ASSERT_TRUE(back.has_value()) << request.index();
    EXPECT_TRUE(*back == request) << request.index();
  }
}

TEST(CmCodec, RepliesAndEventsComeBackAsTheyWere) {
  for (const Answer& answer : answers()) {
    const auto back = decode_answer(bytes_of_answer(answer).bytes());
    ASSERT_TRUE(back.has_value());
    EXPECT_TRUE(*back == answer);
  }
}

TEST(CmCodec, WhoseEventItIsStaysWithTheSender) {
  const auto back = decode_answer(encode(Event{.client = ClientId{5}}).bytes());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(std::get<Event>(*back).client, ClientId{});
}

// Each byte says something: two messages that differ in one value differ in bytes.
TEST(CmCodec, EveryFieldIsThere) {
  for (const Request& request : requests()) {
    const Encoded whole = encode(request);
    const std::vector<uint8_t> bytes(whole.bytes().begin(), whole.bytes().end());
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const uint8_t difference : {0x01, 0x80, 0xff}) {
        std::vector<uint8_t> other = bytes;
        other[i] ^= difference;
        const auto back = decode_request(other);
        if (!back) continue;
        EXPECT_FALSE(*back == request) << request.index() << ", byte " << i;
        const Encoded again = encode(*back);
        EXPECT_EQ(other, std::vector<uint8_t>(again.bytes().begin(), again.bytes().end()));
      }
    }
  }
}

TEST(CmCodec, PartsAndMoreThanTheWholeAreRefused) {
  const auto refuses = [](std::span<const uint8_t> whole, const auto& decode) {
    for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(decode(whole.first(size))) << size;
    std::vector<uint8_t> longer(whole.begin(), whole.end());
    longer.push_back(0);
    EXPECT_FALSE(decode(std::span<const uint8_t>(longer)));
  };
  for (const Request& request : requests()) refuses(encode(request).bytes(), decode_request);
  for (const Answer& answer : answers()) refuses(bytes_of_answer(answer).bytes(), decode_answer);
}

TEST(CmCodec, UnknownKindsAndValuesAreRefused) {
  const auto changed = [](const Encoded& whole, size_t at, uint8_t value) {
    std::vector<uint8_t> bytes(whole.bytes().begin(), whole.bytes().end());
    bytes.at(at) = value;
    return bytes;
  };
  const Encoded take = encode(Request(TakeRequest{kId}));
  EXPECT_FALSE(decode_request(changed(take, 0, std::variant_size_v<Request>)));
  EXPECT_FALSE(decode_request(changed(take, 0, 255)));
  EXPECT_FALSE(decode_answer(changed(encode(Reply{}), 0, 2)));
  EXPECT_FALSE(decode_request({}));
  // A transport, an IP version that is no bool, a port space.
  EXPECT_FALSE(decode_request(changed(encode(Request(ConnectRequest{})), 1, 4)));
  EXPECT_FALSE(decode_request(changed(encode(Request(ReuseRequest{})), 5, 2)));
  EXPECT_FALSE(decode_request(changed(encode(Request(BindRequest{})), 1, 0)));
  // A length beyond what there is room for.
  Encoded disconnect = encode(Request(DisconnectRequest{}));
  EXPECT_FALSE(decode_request(changed(disconnect, 5, PrivateData::kMost + 1)));
}

// Nothing of what a value's memory held before: equal values give equal bytes.
TEST(CmCodec, NothingElseIsSent) {
  alignas(ConnectRequest) std::array<uint8_t, sizeof(ConnectRequest)> dirty;
  dirty.fill(0xa5);
  auto* const request = new (dirty.data()) ConnectRequest{};
  const Encoded a = encode(Request(*request)), b = encode(Request(ConnectRequest{}));
  EXPECT_TRUE(std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end()));
}

TEST(CmCodec, AnyBytesAreTakenOrRefused) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint8_t> bytes(random() % 300);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (!bytes.empty()) bytes[0] %= 16;
    if (const auto request = decode_request(bytes)) {
      const Encoded again = encode(*request);
      EXPECT_EQ(bytes, std::vector<uint8_t>(again.bytes().begin(), again.bytes().end()));
    }
    decode_answer(bytes);
  }
}

}  // namespace
}  // namespace uroce::cm::test
