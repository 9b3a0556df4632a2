// SPDX-License-Identifier: BSD-2-Clause
// The part of CmJudge that is about both directions, what the RC judges are told, and the summary. What comes in and
// goes out: cm_received.cc, cm_sent.cc.
#include "oracle/cm_judge.h"

#include <cinttypes>

#include "oracle/cm_form.h"
#include "oracle/text.h"
#include "wire/cma_header.h"
#include "wire/crc32.h"

namespace uroce::oracle {
namespace {

using enum wire::CmAttribute;

// A REQ that came so often without any answer was not lost.
constexpr uint32_t kOftenEnough = 3;

std::optional<wire::Qpn> known_qpn(wire::Qpn qpn) {
  return qpn.value() != 0 ? std::optional(qpn) : std::nullopt;
}

std::string times(uint32_t count) {
  return count == 1 ? "once" : text("%u times", count);
}

std::string service_text(const CmExchange& e) {
  if (!e.has_request) return {};
  if (const char* const space = wire::port_space_name(e.service)) {
    return text("%s port %u", space, wire::service_port(e.service));
  }
  return text("service 0x%" PRIx64, static_cast<uint64_t>(e.service));
}

std::string transport_text(const CmExchange& e) {
  if (e.sidr()) return "UD";
  if (!e.has_request) return {};
  constexpr const char* kNames[] = {"RC", "UC", "RD", "XRC"};
  return kNames[static_cast<size_t>(e.transport) & 3];
}

std::string sidr_outcome(const CmExchange& e) {
  if (!e.sidr_status) return "unanswered, asked " + times(e.out[kSidrReq].count + e.in[kSidrReq].count);
  if (*e.sidr_status == wire::SidrStatus::kOk) {
    return text("QP 0x%" PRIx32 " told", (e.active ? e.remote_qpn : e.local_qpn).value());
  }
  return text("refused: %s (%u)", wire::sidr_status_text(*e.sidr_status), static_cast<unsigned>(*e.sidr_status));
}

std::string rejection(const CmExchange& e) {
  const std::string who = (e.rejected_by_host ? e.local : e.remote).text();
  return "rejected by " + who +
         text(": %s (%u)", wire::rej_reason_text(*e.rejected), static_cast<unsigned>(*e.rejected));
}

std::string beginning(const CmExchange& e) {
  if (!e.has_request) return "begun before the capture";
  if (e.established()) return "established";
  if (e.out[kRep] || e.in[kRep]) return "accepted, not confirmed";
  if (e.rejected) return {};
  return "unanswered, asked " + times(e.out[kReq].count + e.in[kReq].count);
}

std::string outcome(const CmExchange& e) {
  if (e.sidr()) return sidr_outcome(e);
  std::string all = beginning(e);
  const auto add = [&all](const std::string& what) { all += (all.empty() ? "" : ", ") + what; };
  const uint32_t dreqs = e.out[kDreq].count + e.in[kDreq].count;
  if (e.out[kDrep] || e.in[kDrep]) {
    add("disconnected");
  } else if (dreqs > 0) {
    add("asked " + times(dreqs) + " to disconnect");
  }
  if (e.rejected) add(rejection(e));
  return all;
}

uint64_t total(const CmSeenKinds& seen) {
  uint64_t all = 0;
  for (auto kind = kReq; kind <= kApr; kind = static_cast<wire::CmAttribute>(static_cast<uint16_t>(kind) + 1)) {
    all += seen[kind].count;
  }
  return all;
}

ConnectionName name_of(const CmExchange& e) {
  return {.local = e.local, .remote = e.remote, .local_qpn = e.local_qpn, .remote_qpn = e.remote_qpn};
}

// What the QP attributes of the judged host are, if its application took what the messages say.
Attributes agreed(const CmExchange& e, const wire::Rep& rep) {
  Attributes a;
  if (e.path_mtu >= 1 && e.path_mtu <= 5) a.path_mtu = 128u << e.path_mtu;
  a.retry_count = e.retry_count;
  a.rnr_retry = e.active ? rep.rnr_retry : e.rnr_retry;
  a.sq_psn = e.active ? rep.starting_psn : e.request_psn;
  a.rq_psn = e.active ? e.request_psn : rep.starting_psn;
  // A REP that grants more than was asked for: implementations differ.
  const bool reads_agreed = rep.responder_resources <= e.initiator_depth;
  const bool peer_reads_agreed = rep.initiator_depth <= e.responder_resources;
  if (e.active ? reads_agreed : peer_reads_agreed) {
    a.max_rd_atomic = e.active ? rep.responder_resources : rep.initiator_depth;
  }
  if (e.active ? peer_reads_agreed : reads_agreed) {
    a.max_dest_rd_atomic = e.active ? rep.initiator_depth : rep.responder_resources;
  }
  return a;
}

}  // namespace

void CmJudge::on_packet(const Packet& packet, bool out) {
  if (!is_cm(packet)) return;
  const wire::IpAddress& local = out ? packet.envelope().source : packet.envelope().destination;
  const wire::IpAddress& remote = out ? packet.envelope().destination : packet.envelope().source;
  if (out) {
    std::vector<Packet::Finding> found;
    judge_cm_form(packet, found);
    for (Packet::Finding& finding : found) {
      CmExchange nothing;
      nothing.local = local;
      nothing.remote = remote;
      violation(nothing, packet.number(), packet.time(), finding.rule, std::move(finding.text));
    }
  }
  wire::CmMad mad;
  if (!parse_cm(packet, mad)) return;
  const auto bytes = packet.wire().payload;
  const Now now{.packet = packet,
                .mad = mad,
                .kind = wire::attribute_of(mad.message),
                .digest = wire::crc32_update(0xffffffff, bytes.data(), bytes.size()),
                .local = local,
                .remote = remote};
  out ? send(now) : receive(now);
}

void CmJudge::finish(Time end) {
  for (const auto& exchange : table_.all()) {
    CmExchange& e = *exchange;
    settle_debt(e, end);
    const CmSeen& req = e.in[kReq];
    if (req.count >= kOftenEnough && total(e.out) == 0) {
      violation(e, req.packet, req.last, Rule::kCmIgnored,
                text("REQ of id 0x%" PRIx32 " came %u times", static_cast<uint32_t>(e.theirs), req.count));
    }
  }
}

std::vector<CmSummary> CmJudge::summary() const {
  std::vector<CmSummary> all;
  for (const auto& exchange : table_.all()) {
    const CmExchange& e = *exchange;
    all.push_back({.local = e.local,
                   .remote = e.remote,
                   .local_qpn = known_qpn(e.local_qpn),
                   .remote_qpn = known_qpn(e.remote_qpn),
                   .active = e.active,
                   .service = service_text(e),
                   .transport = transport_text(e),
                   .outcome = outcome(e),
                   .packets_out = total(e.out),
                   .packets_in = total(e.in)});
  }
  return all;
}

// --- what the messages say -------------------------------------------------------------------------------------------

void CmJudge::learn_req(CmExchange& e, const wire::Req& req, bool out) {
  e.service = req.service_id;
  e.transport = req.transport;
  (out ? e.local_qpn : e.remote_qpn) = req.qpn;
  if (!out) e.remote_guid = req.ca_guid;
  e.request_psn = req.starting_psn;
  e.path_mtu = req.path_mtu;
  e.retry_count = req.retry_count;
  e.rnr_retry = req.rnr_retry;
  e.responder_resources = req.responder_resources;
  e.initiator_depth = req.initiator_depth;
  e.local_timeout_code = req.local_response_timeout;
  e.remote_timeout_code = req.remote_response_timeout;
  e.max_retries = req.max_cm_retries;
}

void CmJudge::learn_rep(CmExchange& e, const wire::Rep& rep, bool out) {
  if (e.connected || !e.has_request) return;
  (out ? e.local_qpn : e.remote_qpn) = e.transport == wire::CmTransport::kExtended ? wire::Qpn(rep.eecn) : rep.qpn;
  if (!out) e.remote_guid = rep.ca_guid;
  e.connected = true;
  if (e.transport == wire::CmTransport::kRc) connections_.agree(name_of(e), agreed(e, rep));
}

void CmJudge::end_connection(const CmExchange& e) {
  if (e.connected && e.transport == wire::CmTransport::kRc) connections_.end_agreed(name_of(e));
}

void CmJudge::count(CmSeen& seen, const Now& now) {
  if (seen.count++ == 0) {
    seen.first = now.time();
    seen.first_transaction = now.mad.transaction;
  }
  seen.last = now.time();
  seen.packet = now.packet.number();
  seen.transaction = now.mad.transaction;
  seen.digest = now.digest;
}

void CmJudge::settle_debt(CmExchange& e, Time now) {
  if (!e.debt || now - e.debt->since <= options_.answer_within + options_.slack) return;
  violation(e, e.debt->packet, e.debt->since, Rule::kCmUnanswered,
            text("%s (ids 0x%" PRIx32 ", 0x%" PRIx32 ")", wire::cm_message_name(e.debt->question),
                 static_cast<uint32_t>(e.theirs), static_cast<uint32_t>(e.ours)));
  e.debt.reset();
}

void CmJudge::violation(const CmExchange& e, uint64_t packet, Time time, Rule rule, std::string what) {
  findings_.add(
      {.packet = packet,
       .time = time,
       .rule = rule,
       .connection = {.local = e.local, .remote = e.remote, .local_qpn = wire::kGsiQpn, .remote_qpn = wire::kGsiQpn},
       .text = std::move(what)});
}

void CmJudge::violation(const CmExchange& e, const Now& now, Rule rule, const std::string& what) {
  violation(e, now.packet.number(), now.time(), rule,
            text("%s (ids 0x%" PRIx32 ", 0x%" PRIx32 "): ", wire::cm_message_name(now.kind),
                 static_cast<uint32_t>(e.ours), static_cast<uint32_t>(e.theirs)) +
                what);
}

}  // namespace uroce::oracle
