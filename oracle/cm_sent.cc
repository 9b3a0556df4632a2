// SPDX-License-Identifier: BSD-2-Clause
// The part of CmJudge that is about what the judged host sends: to which exchange it belongs, and whether it may be
// sent now.
#include <algorithm>
#include <cinttypes>

#include "oracle/cm_judge.h"
#include "oracle/text.h"

namespace uroce::oracle {
namespace {

using enum wire::CmAttribute;
using wire::CommId;

constexpr uint32_t kSidrRetries = 15;
constexpr uint8_t kSidrTimeoutCode = 20;
constexpr uint8_t kMostTimeoutCode = 22;  // who waits longer for a REQ that says more need not do so

// 4.096 us * 2^code, in the milliseconds that Linux makes of it.
Duration response_time(uint8_t code) {
  return std::chrono::milliseconds(int64_t{1} << (code > 8 ? code - 8 : 0));
}

// Whether another connection may not have the same id of the host.
bool is_live(const CmExchange& e) {
  if (e.over() || e.out[kDreq] || e.in[kDreq]) return false;
  return e.established() || e.out[kReq] || e.out[kRep];
}

bool awaits_answer(wire::CmAttribute kind) {
  return kind == kReq || kind == kRep || kind == kDreq || kind == kSidrReq;
}

// The questions that a message of this kind may answer.
std::initializer_list<wire::CmAttribute> questions_of(wire::CmAttribute kind) {
  static constexpr std::initializer_list<wire::CmAttribute> kOfRep{kReq}, kOfMra{kReq, kRep, kLap}, kOfRtu{kRep},
      kOfRej{kReq, kRep, kRtu}, kOfDrep{kDreq}, kOfSidrRep{kSidrReq}, kOfApr{kLap}, kNone{};
  switch (kind) {
    case kRep:
      return kOfRep;
    case kMra:
      return kOfMra;
    case kRtu:
      return kOfRtu;
    case kRej:
      return kOfRej;
    case kDrep:
      return kOfDrep;
    case kSidrRep:
      return kOfSidrRep;
    case kApr:
      return kOfApr;
    default:
      return kNone;
  }
}

// The same request once more, for a host that has forgotten what it made of it.
void copy_request(const CmExchange& from, CmExchange& to) {
  const wire::IpAddress local = to.local, remote = to.remote;
  to.transaction = from.transaction;
  to.has_request = true;
  to.in[kReq] = from.in[kReq];
  to.service = from.service;
  to.transport = from.transport;
  to.remote_qpn = from.remote_qpn;
  to.remote_guid = from.remote_guid;
  to.request_psn = from.request_psn;
  to.path_mtu = from.path_mtu;
  to.retry_count = from.retry_count;
  to.rnr_retry = from.rnr_retry;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.local_timeout_code = from.local_timeout_code;
  to.remote_timeout_code = from.remote_timeout_code;
  to.max_retries = from.max_retries;
  to.may_reject_again = true;
  to.local = local;
  to.remote = remote;
}

}  // namespace

void CmJudge::send(const Now& now) {
  CmExchange* const found = sender(now);
  if (found == nullptr) return;
  CmExchange& e = *found;
  settle_debt(e, now.time());
  e.debt.reset();
  judge_transaction(e, now);
  judge_order(e, now);
  if (e.out[now.kind]) judge_again(e, now);
  learn_sent(e, now);
}

// --- whose it is -----------------------------------------------------------------------------------------------------

CmExchange* CmJudge::sender(const Now& now) {
  return std::visit(
      [&](const auto& m) -> CmExchange* {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<Message, wire::Req>) {
          return &send_request(now, m.local_id);
        } else if constexpr (std::is_same_v<Message, wire::SidrReq>) {
          return &send_request(now, m.request_id);
        } else if constexpr (std::is_same_v<Message, wire::SidrRep>) {
          return send_sidr_rep(now, m);
        } else {
          return &send_answer(now, m.local_id, m.remote_id);
        }
      },
      now.mad.message);
}

CmExchange& CmJudge::send_request(const Now& now, CommId ours) {
  CmExchange* const known = table_.by_ours(now.local, ours);
  if (known != nullptr && known->active && known->remote == now.remote && known->out[now.kind] &&
      known->transaction == now.mad.transaction) {
    return *known;
  }
  if (known != nullptr && is_live(*known)) violation(*known, now, Rule::kCmId, "the id has a connection");
  CmExchange& added = table_.add(now.local, now.remote);
  added.active = added.has_request = true;
  added.transaction = now.mad.transaction;
  table_.name_ours(added, ours);
  return added;
}

CmExchange* CmJudge::send_sidr_rep(const Now& now, const wire::SidrRep& rep) {
  CmExchange* const known = table_.by_theirs(now.local, now.remote, rep.request_id, true);
  if (known != nullptr && known->in[kSidrReq]) return known;
  CmExchange& added = table_.add(now.local, now.remote);
  table_.name_theirs(added, rep.request_id, true);
  return &added;
}

CmExchange& CmJudge::send_answer(const Now& now, CommId ours, CommId theirs) {
  CmExchange* const own = ours == CommId{} ? nullptr : table_.by_ours(now.local, ours);
  if (own != nullptr && own->remote == now.remote && own->theirs == theirs) return *own;
  CmExchange* const stray = table_.stray(now.local, now.remote, ours, theirs);
  if (stray != nullptr) return *stray;
  CmExchange* asked = theirs == CommId{} ? nullptr : table_.by_theirs(now.local, now.remote, theirs, false);
  if (asked != nullptr && !asked->active && asked->asked_anew && (asked->ours != ours || now.kind != kRej)) {
    CmExchange& again = table_.add(now.local, now.remote);
    copy_request(*asked, again);
    asked->asked_anew = false;
    table_.name_theirs(*asked, CommId{}, false);
    table_.name_theirs(again, theirs, false);
    asked = &again;
  }
  if (asked != nullptr && !asked->active) {
    if (ours == CommId{}) return *asked;
    if (asked->ours == CommId{}) {
      if (own != nullptr && is_live(*own)) violation(*asked, now, Rule::kCmId, "the id has a connection");
      table_.name_ours(*asked, ours);
    } else {
      violation(*asked, now, Rule::kCmId,
                text("has said another id of its own, 0x%" PRIx32, static_cast<uint32_t>(ours)));
    }
    return *asked;
  }
  if (own != nullptr && own->remote == now.remote && own->theirs != CommId{}) {
    violation(*own, now, Rule::kCmId,
              text("for id 0x%" PRIx32 ", that the other side has not said", static_cast<uint32_t>(theirs)));
    return *own;
  }
  return table_.add_stray(now.local, now.remote, ours, theirs);
}

// --- whether it may be sent now --------------------------------------------------------------------------------------

void CmJudge::judge_order(const CmExchange& e, const Now& now) {
  if (!whole(e)) return;
  std::visit(
      [&](const auto& m) {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<Message, wire::Req>) judge_req(e, now);
        if constexpr (std::is_same_v<Message, wire::Rep>) judge_rep(e, m, now);
        if constexpr (std::is_same_v<Message, wire::Rtu>) judge_rtu(e, now);
        if constexpr (std::is_same_v<Message, wire::Mra>) judge_mra(e, m, now);
        if constexpr (std::is_same_v<Message, wire::Rej>) judge_rej(e, m, now);
        if constexpr (std::is_same_v<Message, wire::Dreq>) judge_dreq(e, m, now);
        if constexpr (std::is_same_v<Message, wire::Drep>) judge_drep(e, now);
        if constexpr (std::is_same_v<Message, wire::SidrRep>) judge_sidr_rep(e, m, now);
      },
      now.mad.message);
  if (now.kind == kSidrReq && known(e.in[kSidrRep], now)) violation(e, now, Rule::kCmOrder, "it is answered");
  if (now.kind == kApr && !e.in[kLap]) violation(e, now, Rule::kCmOrder, "nobody has asked");
}

void CmJudge::judge_req(const CmExchange& e, const Now& now) {
  if (known(e.in[kRep], now)) violation(e, now, Rule::kCmOrder, "again, after the REP");
  if (known(e.in[kRej], now) || e.out[kRej]) violation(e, now, Rule::kCmOrder, "again, after a REJ");
}

void CmJudge::judge_rep(const CmExchange& e, const wire::Rep& rep, const Now& now) {
  if (!e.in[kReq]) return violation(e, now, Rule::kCmOrder, "to no REQ");
  if (known(e.in[kRtu], now)) violation(e, now, Rule::kCmOrder, "again, after the RTU");
  if (e.out[kDreq] || known(e.in[kDreq], now)) violation(e, now, Rule::kCmOrder, "after a DREQ");
  if (known(e.in[kRej], now) || e.closed_by_host()) violation(e, now, Rule::kCmOrder, "after the end");
  if (rep.responder_resources > e.initiator_depth || rep.initiator_depth > e.responder_resources) {
    violation(e, now, Rule::kCmDepth,
              text("responder resources %u, initiator depth %u; the REQ has %u and %u", rep.responder_resources,
                   rep.initiator_depth, e.responder_resources, e.initiator_depth));
  }
}

void CmJudge::judge_rtu(const CmExchange& e, const Now& now) {
  if (!e.active || !e.in[kRep]) return violation(e, now, Rule::kCmOrder, "to no REP");
  if (e.out[kRtu].count >= e.in[kRep].count) violation(e, now, Rule::kCmOrder, "again, without the REP again");
  if (e.out[kDreq] || known(e.in[kDreq], now)) violation(e, now, Rule::kCmOrder, "after a DREQ");
  if (known(e.in[kRej], now) || e.closed_by_host()) violation(e, now, Rule::kCmOrder, "after the end");
}

void CmJudge::judge_mra(const CmExchange& e, const wire::Mra& mra, const Now& now) {
  const auto expect = [&](bool right, const char* what) {
    if (!right) violation(e, now, Rule::kCmOrder, what);
  };
  expect(!known(e.in[kRej], now) && !e.closed_by_host(), "after the end");
  switch (mra.message) {
    case wire::CmAnswered::kReq:
      return expect(e.in[kReq] && !e.out[kRep], "of a REQ that nobody waits for");
    case wire::CmAnswered::kRep:
      return expect(e.active && e.in[kRep] && !e.out[kRtu], "of a REP that nobody waits for");
    default:
      return expect(static_cast<bool>(e.in[kLap]), "of no LAP");
  }
}

void CmJudge::judge_rej(const CmExchange& e, const wire::Rej& rej, const Now& now) {
  const bool of_its_own = e.out[kReq] || e.out[kRep];  // which it gives up
  if (!e.may_reject_again && e.over()) {
    violation(e, now, Rule::kCmOrder, "after the end");
  } else if (!e.may_reject_again && !of_its_own) {
    violation(e, now, Rule::kCmOrder, "to nothing");
  }
  const bool closing = e.over() || e.out[kDreq] || known(e.in[kDreq], now);
  if (e.has_request && e.established() && !closing && !e.in[kRej])
    violation(e, now, Rule::kCmOrder, "of an established connection");
  switch (rej.message) {
    case wire::CmAnswered::kReq:
      if (!e.in[kReq]) violation(e, now, Rule::kCmReject, "of a REQ that did not come");
      if (e.out[kRep]) violation(e, now, Rule::kCmReject, "of a REQ that it has answered by a REP");
      break;
    case wire::CmAnswered::kRep:
      if (!e.in[kRep]) violation(e, now, Rule::kCmReject, "of a REP that did not come");
      break;
    default:
      if (e.in[kReq] && !e.out[kRep]) violation(e, now, Rule::kCmReject, "of a REQ, and says that it is of none");
      if (e.in[kRep] && !e.out[kRtu] && !e.over()) {
        violation(e, now, Rule::kCmReject, "of a REP, and says that it is of none");
      }
  }
}

void CmJudge::judge_dreq(const CmExchange& e, const wire::Dreq& dreq, const Now& now) {
  const bool made = e.active ? static_cast<bool>(e.out[kRtu]) : static_cast<bool>(e.out[kRep]);
  if (!made) violation(e, now, Rule::kCmOrder, "of no connection");
  if (known(e.in[kDreq], now)) violation(e, now, Rule::kCmOrder, "after the other side's, which wants a DREP");
  if (known(e.in[kRej], now) || known(e.in[kDrep], now) || e.closed_by_host()) {
    violation(e, now, Rule::kCmOrder, "after the end");
  }
  if (e.remote_qpn.value() != 0 && dreq.remote_qpn != e.remote_qpn) {
    violation(e, now, Rule::kCmField,
              text("QPN 0x%" PRIx32 ", the other side's is 0x%" PRIx32, dreq.remote_qpn.value(), e.remote_qpn.value()));
  }
}

void CmJudge::judge_drep(const CmExchange& e, const Now& now) {
  if (e.out[kDrep].count >= e.in[kDreq].count) {
    violation(e, now, Rule::kCmOrder, e.in[kDreq] ? "again, without the DREQ again" : "to no DREQ");
  }
}

void CmJudge::judge_sidr_rep(const CmExchange& e, const wire::SidrRep& rep, const Now& now) {
  if (e.out[kSidrRep].count >= e.in[kSidrReq].count) {
    return violation(e, now, Rule::kCmSidr, e.in[kSidrReq] ? "again, without the SIDR_REQ again" : "to no SIDR_REQ");
  }
  if (rep.service_id != e.service) {
    violation(e, now, Rule::kCmSidr,
              text("service 0x%" PRIx64 ", asked for is 0x%" PRIx64, static_cast<uint64_t>(rep.service_id),
                   static_cast<uint64_t>(e.service)));
  }
}

void CmJudge::judge_transaction(const CmExchange& e, const Now& now) {
  bool asked = false, right = now.kind == kRej && now.mad.transaction == e.transaction;
  for (const wire::CmAttribute question : questions_of(now.kind)) {
    const CmSeen& seen = e.in[question];
    asked = asked || seen;
    right =
        right || (seen && (seen.transaction == now.mad.transaction || seen.first_transaction == now.mad.transaction));
  }
  // The RTU is the REQ's sender's.
  right = right || (now.kind == kRtu && now.mad.transaction == e.transaction);
  if (!asked || right) return;
  violation(e, now, Rule::kCmTransaction, text("transaction 0x%" PRIx64, static_cast<uint64_t>(now.mad.transaction)));
}

// --- the same again --------------------------------------------------------------------------------------------------

void CmJudge::judge_again(const CmExchange& e, const Now& now) {
  const CmSeen& before = e.out[now.kind];
  if (!awaits_answer(now.kind) && now.kind != kRtu) return;
  if (before.digest != now.digest)
    violation(e, now, Rule::kCmResendDiffers, text("was another in packet %" PRIu64, before.packet));
  if (now.kind == kRtu || !(e.has_request || now.kind == kSidrReq)) return;
  uint32_t most = now.kind == kSidrReq ? kSidrRetries : e.max_retries;
  if (now.kind == kRep) most += e.in[kReq].count - 1;  // a REQ that comes again may be answered again
  if (before.count > most) {
    violation(e, now, Rule::kCmRetries, text("again for the %uth time, Max CM Retries is %u", before.count, most));
  }
  judge_wait(e, before, now);
}

void CmJudge::judge_wait(const CmExchange& e, const CmSeen& before, const Now& now) {
  if (now.kind == kRep && e.in[kReq].last >= before.last) return;
  uint8_t code = e.active ? e.remote_timeout_code : e.local_timeout_code;
  if (now.kind == kSidrReq) code = kSidrTimeoutCode;
  code = std::min(code, kMostTimeoutCode);
  Duration wait = response_time(code);
  Time from = before.last;
  if (e.mras > 0 && now.kind != kDreq) {
    if (e.mra_at + options_.slack >= now.time()) return;  // perhaps it was not known yet
    code = e.mra_timeout;
    wait = response_time(code);
    from = std::max(from, e.mra_at);
  }
  // Clocks and timers are not that exact.
  if (now.time() - from + options_.slack >= wait - wait / 16) return;
  const std::chrono::duration<double> passed = now.time() - from, due = wait;
  violation(e, now, Rule::kCmResendEarly,
            text("again %.3f s after %s, not before %.3f s", passed.count(),
                 from == before.last ? "the last" : "the MRA", due.count()));
}

// --- what follows from it --------------------------------------------------------------------------------------------

void CmJudge::learn_sent(CmExchange& e, const Now& now) {
  const bool first = !e.out[now.kind];
  if (first && (now.kind == kRep || now.kind == kDreq)) e.mras = 0;
  if (const auto* const rej = std::get_if<wire::Rej>(&now.mad.message)) {
    e.may_reject_again = false;
    if (rej->reason == wire::RejReason::kStale && rej->message == wire::CmAnswered::kRep && e.active) {
      // Not of what it has asked for: that it still waits for.
      e.in[kRep] = {};
      e.connected = false;
      table_.name_theirs(e, CommId{}, false);
      return;
    }
    if (!e.rejected) {
      e.rejected = rej->reason;
      e.rejected_by_host = true;
    }
    end_connection(e);
  } else if (const auto* const req = std::get_if<wire::Req>(&now.mad.message)) {
    if (first) learn_req(e, *req, true);
  } else if (const auto* const sidr = std::get_if<wire::SidrReq>(&now.mad.message)) {
    e.service = sidr->service_id;
  } else if (const auto* const rep = std::get_if<wire::Rep>(&now.mad.message)) {
    learn_rep(e, *rep, true);
  } else if (const auto* const answer = std::get_if<wire::SidrRep>(&now.mad.message)) {
    e.sidr_status = answer->status;
    e.local_qpn = answer->qpn;
  } else if (now.kind == kDreq || now.kind == kDrep) {
    end_connection(e);
  }
  count(e.out[now.kind], now);
}

}  // namespace uroce::oracle
