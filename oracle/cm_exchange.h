// SPDX-License-Identifier: BSD-2-Clause
// What was said so far about one connection, or one request for the QP of a service (SIDR), between the judged host and
// another. Owned by CmTable, filled in and judged by CmJudge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "oracle/packet.h"
#include "wire/cm_message.h"

namespace uroce::oracle {

// The messages of one kind that went in one direction.
struct CmSeen {
  uint32_t count = 0;
  uint64_t packet = 0;  // the last one, as are `last`, `transaction` and `digest`
  Time first{}, last{};
  wire::TransactionId transaction{}, first_transaction{};
  uint32_t digest = 0;  // of the whole MAD

  explicit operator bool() const { return count > 0; }
};

class CmSeenKinds {
 public:
  CmSeen& operator[](wire::CmAttribute kind) { return seen_[index(kind)]; }
  const CmSeen& operator[](wire::CmAttribute kind) const { return seen_[index(kind)]; }

 private:
  static size_t index(wire::CmAttribute kind) {
    return static_cast<size_t>(kind) - static_cast<size_t>(wire::CmAttribute::kReq);
  }
  std::array<CmSeen, std::variant_size_v<wire::CmMessage>> seen_;
};

struct CmExchange {
  wire::IpAddress local, remote;
  // Zero: not known.
  wire::CommId ours{}, theirs{};
  wire::TransactionId transaction{};  // of the REQ or SIDR_REQ
  bool active = false;                // the judged host has sent it
  bool has_request = false;           // it was captured; else the exchange began earlier, or never

  CmSeenKinds in, out;

  // What the REQ, SIDR_REQ and REP say.
  wire::ServiceId service{};
  wire::CmTransport transport{};
  wire::Qpn local_qpn{}, remote_qpn{};  // 0: not known
  wire::Guid remote_guid{};
  wire::Psn request_psn{};  // that the REQ asks for, of the passive side
  uint8_t path_mtu = 0;     // code
  uint8_t retry_count = 0, rnr_retry = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;     // of the REQ's sender
  uint8_t local_timeout_code = 0, remote_timeout_code = 0;  // response times of the REQ's sender and receiver
  uint8_t max_retries = 0;

  // The MRAs for what the judged host has sent last and waits for: they put it off.
  uint32_t mras = 0;
  Time mra_at{};
  uint8_t mra_timeout = 0;

  std::optional<wire::RejReason> rejected{};
  bool rejected_by_host = false;
  std::optional<wire::SidrStatus> sidr_status{};
  bool may_reject_again = false;  // something has come since the last REJ
  bool asked_anew = false;        // the REQ came again when all was over: it may lead to another connection
  bool connected = false;         // the RC judges were told of it

  // An answer that the connection manager owes without asking its application.
  struct Debt {
    wire::CmAttribute question;
    uint64_t packet;
    Time since;
  };
  std::optional<Debt> debt{};

  bool sidr() const {
    return out[wire::CmAttribute::kSidrReq] || in[wire::CmAttribute::kSidrReq] || out[wire::CmAttribute::kSidrRep];
  }
  bool established() const { return out[wire::CmAttribute::kRtu] || in[wire::CmAttribute::kRtu]; }
  // The judged host has said the last word.
  bool closed_by_host() const { return out[wire::CmAttribute::kRej] || out[wire::CmAttribute::kDrep]; }
  // Nobody holds it for a connection any more.
  bool over() const {
    using enum wire::CmAttribute;
    return closed_by_host() || in[kRej] || in[kDrep] || in[kSidrRep] || out[kSidrRep];
  }
};

}  // namespace uroce::oracle
