// SPDX-License-Identifier: BSD-2-Clause
// The part of CmJudge that is about what the judged host receives: nothing of it is judged, all of it may be answered.
#include "oracle/cm_judge.h"
#include "wire/bytes.h"

namespace uroce::oracle {
namespace {

using enum wire::CmAttribute;

// An answer to `e`, if the other side may have chosen an id that nobody knows yet.
bool is_first_answer(const CmExchange& e, wire::CmAttribute kind) {
  return e.active && !e.over() && e.theirs == wire::CommId{} && (kind == kRep || kind == kMra || kind == kRej);
}

wire::Guid guid_in(const wire::Rej& rej) {
  return wire::Guid{wire::load_be64(rej.additional_info.data())};
}

// Whether this MRA puts off what the judged host waits for.
bool puts_off(const CmExchange& e, wire::CmAnswered message) {
  if (e.over() || e.mras >= e.max_retries) return false;
  if (e.active) return message == wire::CmAnswered::kReq && !e.in[kRep];
  return message == wire::CmAnswered::kRep && e.out[kRep] && !e.in[kRtu] && !e.in[kDreq] && !e.out[kDreq];
}

}  // namespace

void CmJudge::receive(const Now& now) {
  CmExchange* const found = receiver(now);
  if (found == nullptr) return;
  settle_debt(*found, now.time());
  note_debt(*found, now);
  learn_received(*found, now);
  count(found->in[now.kind], now);
}

// Null: nothing that its receiver can have taken for anything.
CmExchange* CmJudge::receiver(const Now& now) {
  return std::visit(
      [&](const auto& m) -> CmExchange* {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<Message, wire::Req>) {
          return m.local_id == wire::CommId{} ? nullptr : &receive_request(now, m.local_id, false);
        } else if constexpr (std::is_same_v<Message, wire::SidrReq>) {
          return m.request_id == wire::CommId{} ? nullptr : &receive_request(now, m.request_id, true);
        } else if constexpr (std::is_same_v<Message, wire::SidrRep>) {
          CmExchange* const e = table_.by_ours(now.local, m.request_id);
          return e != nullptr && e->remote == now.remote && e->active && e->out[kSidrReq] ? e : nullptr;
        } else if constexpr (std::is_same_v<Message, wire::Rej>) {
          return receive_rej(now, m);
        } else {
          return receive_answer(now, m.remote_id, m.local_id);
        }
      },
      now.mad.message);
}

CmExchange& CmJudge::receive_request(const Now& now, wire::CommId theirs, bool sidr) {
  CmExchange* const known = table_.by_theirs(now.local, now.remote, theirs, sidr);
  if (known != nullptr && !known->active && known->has_request && known->transaction == now.mad.transaction) {
    return *known;
  }
  CmExchange& added = table_.add(now.local, now.remote);
  added.has_request = true;
  added.transaction = now.mad.transaction;
  table_.name_theirs(added, theirs, sidr);
  return added;
}

CmExchange* CmJudge::receive_answer(const Now& now, wire::CommId ours, wire::CommId theirs) {
  CmExchange* const known = table_.by_ours(now.local, ours);
  if (known != nullptr && known->remote == now.remote &&
      (known->theirs == theirs || is_first_answer(*known, now.kind))) {
    // A DREQ for another QP is ignored.
    const auto* const dreq = std::get_if<wire::Dreq>(&now.mad.message);
    const bool other_qp = dreq != nullptr && known->local_qpn.value() != 0 && dreq->remote_qpn != known->local_qpn;
    return other_qp ? nullptr : known;
  }
  CmExchange* const stray = table_.stray(now.local, now.remote, ours, theirs);
  return stray != nullptr ? stray : &table_.add_stray(now.local, now.remote, ours, theirs);
}

CmExchange* CmJudge::receive_rej(const Now& now, const wire::Rej& rej) {
  if (rej.remote_id != wire::CommId{}) return receive_answer(now, rej.remote_id, rej.local_id);
  CmExchange* const known = table_.by_theirs(now.local, now.remote, rej.local_id, false);
  const bool timeout = rej.reason == wire::RejReason::kTimeout && rej.info_length >= 8;
  return timeout && known != nullptr && guid_in(rej) == known->remote_guid ? known : nullptr;
}

// Before it is counted.
void CmJudge::learn_received(CmExchange& e, const Now& now) {
  if (now.kind == kReq || now.kind == kRep || now.kind == kRtu) e.may_reject_again = true;
  if (const auto* const req = std::get_if<wire::Req>(&now.mad.message)) {
    if (!e.in[kReq]) learn_req(e, *req, false);
    e.asked_anew = e.over() || e.out[kDreq] || e.in[kDreq];
  } else if (const auto* const sidr = std::get_if<wire::SidrReq>(&now.mad.message)) {
    e.service = sidr->service_id;
  } else if (const auto* const rep = std::get_if<wire::Rep>(&now.mad.message)) {
    if (!e.active || e.over()) return;
    if (e.theirs == wire::CommId{}) table_.name_theirs(e, rep->local_id, false);
    learn_rep(e, *rep, false);
  } else if (const auto* const mra = std::get_if<wire::Mra>(&now.mad.message)) {
    if (!puts_off(e, mra->message)) return;
    ++e.mras;
    e.mra_at = now.time();
    e.mra_timeout = mra->service_timeout;
  } else if (const auto* const rej = std::get_if<wire::Rej>(&now.mad.message)) {
    if (!e.rejected) e.rejected = rej->reason;
    end_connection(e);
  } else if (const auto* const answer = std::get_if<wire::SidrRep>(&now.mad.message)) {
    e.sidr_status = answer->status;
    e.remote_qpn = answer->qpn;
  } else if (now.kind == kDreq || now.kind == kDrep) {
    end_connection(e);
  }
}

// What the connection manager answers by itself: a DREQ of what has ended or never was, a REP whose RTU was lost.
// Before it is counted.
void CmJudge::note_debt(CmExchange& e, const Now& now) {
  const CmExchange::Debt debt{now.kind, now.packet.number(), now.time()};
  if (const auto* const dreq = std::get_if<wire::Dreq>(&now.mad.message)) {
    const CmExchange* const other = table_.by_ours(now.local, dreq->remote_id);
    const bool unknown = other == nullptr || other->remote != now.remote || other->theirs != wire::CommId{};
    const bool of_nothing = !e.has_request && &e != other && unknown && whole(e);
    const bool of_an_ended_one = e.closed_by_host() && e.local_qpn.value() != 0;
    if (of_nothing || of_an_ended_one) e.debt = debt;
  } else if (now.kind == kRep && e.active && e.out[kRtu] && !e.over() && !e.in[kDreq] && !e.out[kDreq]) {
    e.debt = debt;
  }
}

}  // namespace uroce::oracle
