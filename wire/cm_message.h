// SPDX-License-Identifier: BSD-2-Clause
// The messages of the connection manager (IBTA 12.6 to 12.11, wire.md "RDMA CM"), each as a value with all of its
// fields, and the MAD around it. A message says in layout() where its fields are, counted from the end of the MAD's
// header: what is not named there is written as 0 and ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "wire/bit_fields.h"
#include "wire/envelope.h"
#include "wire/mad.h"
#include "wire/psn.h"

namespace uroce::wire {

enum class CommId : uint32_t {};  // names a connection at one side; SIDR: the request
enum class ServiceId : uint64_t {};
enum class Guid : uint64_t {};

enum class CmAttribute : uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
  kLap = 0x19,
  kApr = 0x1a,
};

enum class CmTransport : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr uint8_t kExtendedTransportXrc = 1;

// Which message an MRA or a REJ is about. REJ has 2 for all others, MRA for LAP.
enum class CmAnswered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

enum class RejReason : uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kCommId = 6,
  kCommInstance = 7,
  kServiceId = 8,  // nobody listens
  kTransport = 9,
  kStale = 10,
  kRdcMissing = 11,
  kGid = 12,
  kLid = 13,
  kSl = 14,
  kTrafficClass = 15,
  kHopLimit = 16,
  kPacketRate = 17,
  kAlternateGid = 18,
  kAlternateLid = 19,
  kAlternateSl = 20,
  kAlternateTrafficClass = 21,
  kAlternateHopLimit = 22,
  kAlternatePacketRate = 23,
  kRedirect = 24,
  kPortRedirect = 25,
  kMtu = 26,
  kResponderResources = 27,
  kConsumer = 28,
  kRnrRetry = 29,
  kDuplicateCommId = 30,
  kClassVersion = 31,
  kFlowLabel = 32,
  kAlternateFlowLabel = 33,
  kVendorOption = 35,
};

enum class SidrStatus : uint8_t { kOk = 0, kUnsupported = 1, kReject = 2, kNoQp = 3, kRedirect = 4, kVersion = 5 };

enum class AprStatus : uint8_t { kOk = 0, kCommId = 1, kUnsupported = 2, kReject = 3 };

// A path as REQ describes it, from the requester's point of view. All 0: there is none.
struct ReqPath {
  uint16_t local_lid = 0, remote_lid = 0;  // RoCE: 0xffff where there may be routers
  IpAddress local_gid, remote_gid;
  uint32_t flow_label = 0;  // 20 bits
  uint8_t rate = 0;         // 6
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t sl = 0;  // 4
  bool subnet_local = false;
  uint8_t ack_timeout = 0;  // 5

  // From byte `at` on, 44 of them.
  template <class Path, class Codec>
  static void layout(Path& p, const Codec& c, size_t at) {
    c(FieldPlace{at, 0, 16}, p.local_lid);
    c(FieldPlace{at + 2, 0, 16}, p.remote_lid);
    c(at + 4, p.local_gid);
    c(at + 20, p.remote_gid);
    c(FieldPlace{at + 36, 0, 20}, p.flow_label);
    c(FieldPlace{at + 39, 2, 6}, p.rate);
    c(FieldPlace{at + 40, 0, 8}, p.traffic_class);
    c(FieldPlace{at + 41, 0, 8}, p.hop_limit);
    c(FieldPlace{at + 42, 0, 4}, p.sl);
    c(FieldPlace{at + 42, 4, 1}, p.subnet_local);
    c(FieldPlace{at + 43, 0, 5}, p.ack_timeout);
  }
  friend bool operator==(const ReqPath&, const ReqPath&) = default;
};

// Request for communication.
struct Req {
  static constexpr CmAttribute kAttribute = CmAttribute::kReq;

  CommId local_id{};
  uint32_t vendor_id = 0;  // 24 bits; with the MAD's modifier: ECE
  ServiceId service_id{};
  Guid ca_guid{};
  uint32_t qkey = 0;
  Qpn qpn{};
  uint8_t responder_resources = 0;
  uint32_t eecn = 0;  // 24
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;             // 24
  uint8_t remote_response_timeout = 0;  // 5: the receiver's, between REQ and REP
  CmTransport transport{};
  bool flow_control = false;
  Psn starting_psn{};                  // that the receiver sends with
  uint8_t local_response_timeout = 0;  // 5: the sender's, between REP and RTU
  uint8_t retry_count = 0;             // 3
  uint16_t pkey = 0;
  uint8_t path_mtu = 0;  // 4: 1 is 256 bytes, 5 is 4096
  bool rdc_exists = false;
  uint8_t rnr_retry = 0;       // 3
  uint8_t max_cm_retries = 0;  // 4
  bool srq = false;
  uint8_t extended_transport = 0;  // 3
  ReqPath primary, alternate;
  std::array<uint8_t, 92> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({5, 0, 24}, m.vendor_id);
    c({8, 0, 64}, m.service_id);
    c({16, 0, 64}, m.ca_guid);
    c({28, 0, 32}, m.qkey);
    c({32, 0, 24}, m.qpn);
    c({35, 0, 8}, m.responder_resources);
    c({36, 0, 24}, m.eecn);
    c({39, 0, 8}, m.initiator_depth);
    c({40, 0, 24}, m.remote_eecn);
    c({43, 0, 5}, m.remote_response_timeout);
    c({43, 5, 2}, m.transport);
    c({43, 7, 1}, m.flow_control);
    c({44, 0, 24}, m.starting_psn);
    c({47, 0, 5}, m.local_response_timeout);
    c({47, 5, 3}, m.retry_count);
    c({48, 0, 16}, m.pkey);
    c({50, 0, 4}, m.path_mtu);
    c({50, 4, 1}, m.rdc_exists);
    c({50, 5, 3}, m.rnr_retry);
    c({51, 0, 4}, m.max_cm_retries);
    c({51, 4, 1}, m.srq);
    c({51, 5, 3}, m.extended_transport);
    ReqPath::layout(m.primary, c, 52);
    ReqPath::layout(m.alternate, c, 96);
    c(140, m.private_data);
  }
  friend bool operator==(const Req&, const Req&) = default;
};

// Message receipt acknowledgement: the answer takes longer.
struct Mra {
  static constexpr CmAttribute kAttribute = CmAttribute::kMra;

  CommId local_id{}, remote_id{};
  CmAnswered message{};
  uint8_t service_timeout = 0;  // 5 bits
  std::array<uint8_t, 222> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({8, 0, 2}, m.message);
    c({9, 0, 5}, m.service_timeout);
    c(10, m.private_data);
  }
  friend bool operator==(const Mra&, const Mra&) = default;
};

struct Rej {
  static constexpr CmAttribute kAttribute = CmAttribute::kRej;

  CommId local_id{}, remote_id{};  // 0: the sender has, or knows, none
  CmAnswered message{};
  uint8_t info_length = 0;  // 7 bits; bytes of additional_info that count
  RejReason reason{};
  std::array<uint8_t, 72> additional_info{};
  std::array<uint8_t, 148> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({8, 0, 2}, m.message);
    c({9, 0, 7}, m.info_length);
    c({10, 0, 16}, m.reason);
    c(12, m.additional_info);
    c(84, m.private_data);
  }
  friend bool operator==(const Rej&, const Rej&) = default;
};

struct Rep {
  static constexpr CmAttribute kAttribute = CmAttribute::kRep;

  CommId local_id{}, remote_id{};
  uint32_t qkey = 0;
  Qpn qpn{};
  uint8_t vendor_id_high = 0, vendor_id_middle = 0, vendor_id_low = 0;
  uint32_t eecn = 0;  // 24 bits; XRC: the QPN
  Psn starting_psn{};
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;   // 5
  uint8_t failover_accepted = 0;  // 2
  bool flow_control = false;
  uint8_t rnr_retry = 0;  // 3
  bool srq = false;
  Guid ca_guid{};
  std::array<uint8_t, 196> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({8, 0, 32}, m.qkey);
    c({12, 0, 24}, m.qpn);
    c({15, 0, 8}, m.vendor_id_high);
    c({16, 0, 24}, m.eecn);
    c({19, 0, 8}, m.vendor_id_middle);
    c({20, 0, 24}, m.starting_psn);
    c({23, 0, 8}, m.vendor_id_low);
    c({24, 0, 8}, m.responder_resources);
    c({25, 0, 8}, m.initiator_depth);
    c({26, 0, 5}, m.target_ack_delay);
    c({26, 5, 2}, m.failover_accepted);
    c({26, 7, 1}, m.flow_control);
    c({27, 0, 3}, m.rnr_retry);
    c({27, 3, 1}, m.srq);
    c({28, 0, 64}, m.ca_guid);
    c(36, m.private_data);
  }
  friend bool operator==(const Rep&, const Rep&) = default;
};

// Ready to use.
struct Rtu {
  static constexpr CmAttribute kAttribute = CmAttribute::kRtu;

  CommId local_id{}, remote_id{};
  std::array<uint8_t, 224> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c(8, m.private_data);
  }
  friend bool operator==(const Rtu&, const Rtu&) = default;
};

// Request for the end of communication.
struct Dreq {
  static constexpr CmAttribute kAttribute = CmAttribute::kDreq;

  CommId local_id{}, remote_id{};
  Qpn remote_qpn{};  // the receiver's
  std::array<uint8_t, 220> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({8, 0, 24}, m.remote_qpn);
    c(12, m.private_data);
  }
  friend bool operator==(const Dreq&, const Dreq&) = default;
};

struct Drep {
  static constexpr CmAttribute kAttribute = CmAttribute::kDrep;

  CommId local_id{}, remote_id{};
  std::array<uint8_t, 224> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    Rtu::layout(m, c);
  }
  friend bool operator==(const Drep&, const Drep&) = default;
};

// Service id resolution: which QP of a service takes datagrams?
struct SidrReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrReq;

  CommId request_id{};
  uint16_t pkey = 0;
  ServiceId service_id{};
  std::array<uint8_t, 216> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.request_id);
    c({4, 0, 16}, m.pkey);
    c({8, 0, 64}, m.service_id);
    c(16, m.private_data);
  }
  friend bool operator==(const SidrReq&, const SidrReq&) = default;
};

struct SidrRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrRep;

  CommId request_id{};
  SidrStatus status{};
  uint8_t info_length = 0;
  uint16_t vendor_id_high = 0;
  Qpn qpn{};
  uint8_t vendor_id_low = 0;
  ServiceId service_id{};
  uint32_t qkey = 0;
  std::array<uint8_t, 72> additional_info{};
  std::array<uint8_t, 136> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.request_id);
    c({4, 0, 8}, m.status);
    c({5, 0, 8}, m.info_length);
    c({6, 0, 16}, m.vendor_id_high);
    c({8, 0, 24}, m.qpn);
    c({11, 0, 8}, m.vendor_id_low);
    c({12, 0, 64}, m.service_id);
    c({20, 0, 32}, m.qkey);
    c(24, m.additional_info);
    c(96, m.private_data);
  }
  friend bool operator==(const SidrRep&, const SidrRep&) = default;
};

// Load alternate path.
struct Lap {
  static constexpr CmAttribute kAttribute = CmAttribute::kLap;

  CommId local_id{}, remote_id{};
  Qpn remote_qpn{};
  uint8_t remote_response_timeout = 0;  // 5 bits
  ReqPath alternate;
  std::array<uint8_t, 168> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({12, 0, 24}, m.remote_qpn);
    c({15, 0, 5}, m.remote_response_timeout);
    // The fields of REQ's alternate path, the short ones in another order.
    c({20, 0, 16}, m.alternate.local_lid);
    c({22, 0, 16}, m.alternate.remote_lid);
    c(24, m.alternate.local_gid);
    c(40, m.alternate.remote_gid);
    c({56, 0, 20}, m.alternate.flow_label);
    c({59, 0, 8}, m.alternate.traffic_class);
    c({60, 0, 8}, m.alternate.hop_limit);
    c({61, 2, 6}, m.alternate.rate);
    c({62, 0, 4}, m.alternate.sl);
    c({62, 4, 1}, m.alternate.subnet_local);
    c({63, 0, 5}, m.alternate.ack_timeout);
    c(64, m.private_data);
  }
  friend bool operator==(const Lap&, const Lap&) = default;
};

// Alternate path response.
struct Apr {
  static constexpr CmAttribute kAttribute = CmAttribute::kApr;

  CommId local_id{}, remote_id{};
  uint8_t info_length = 0;
  AprStatus status{};
  std::array<uint8_t, 72> additional_info{};
  std::array<uint8_t, 148> private_data{};

  template <class Message, class Codec>
  static void layout(Message& m, const Codec& c) {
    c({0, 0, 32}, m.local_id);
    c({4, 0, 32}, m.remote_id);
    c({8, 0, 8}, m.info_length);
    c({9, 0, 8}, m.status);
    c(12, m.additional_info);
    c(84, m.private_data);
  }
  friend bool operator==(const Apr&, const Apr&) = default;
};

using CmMessage = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr>;

struct CmMad {
  TransactionId transaction{};
  uint32_t modifier = 0;  // REQ, REP, SIDR_REP: ECE options
  CmMessage message;

  friend bool operator==(const CmMad&, const CmMad&) = default;
};

enum class CmParseError : uint8_t {
  kNone,
  kLength,     // not 256 bytes
  kVersion,    // of the MAD or of its class
  kClass,      // not communication management
  kMethod,     // not Send
  kAttribute,  // no message that is known
};

// On failure `out` is unspecified. Any bits are taken as the values of fields: who reads them decides what they mean.
CmParseError parse_cm(std::span<const uint8_t> mad, CmMad& out);
Mad emit_cm(const CmMad& mad);

const char* cm_message_name(CmAttribute attribute);  // "SIDR_REQ"; null for what is none
// In words, for people: "nobody listens at this service". Numbers that have no meaning: "unknown reason".
const char* rej_reason_text(RejReason reason);
const char* sidr_status_text(SidrStatus status);
inline CmAttribute attribute_of(const CmMessage& message) {
  return std::visit([](const auto& m) { return m.kAttribute; }, message);
}

}  // namespace uroce::wire
