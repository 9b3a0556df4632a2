// SPDX-License-Identifier: GPL-2.0-or-later
#include "dissector/analysis/cm.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"
#include "wire/cma_header.h"

namespace uroce::dissector {
namespace {

using enum wire::CmAttribute;

constexpr size_t kIdsSize = 8, kReqSize = 140, kRepSize = 36, kSidrReqSize = 16;  // of what is looked at
constexpr uint32_t kManyAttempts = 3;

bool is_sidr(wire::CmAttribute attribute) {
  return attribute == kSidrReq || attribute == kSidrRep;
}

// REQ byte 43, bits 2-1 (wire.md "RDMA CM").
wire::Transport transport_of(std::span<const uint8_t> req) {
  switch (static_cast<wire::CmTransport>(req[43] >> 1 & 3)) {
    case wire::CmTransport::kUc:
      return wire::Transport::kUc;
    case wire::CmTransport::kExtended:
      return wire::Transport::kXrc;
    default:
      return wire::Transport::kRc;
  }
}

// Which of an exchange's questions a message is, or answers. Null: neither.
CmQuestion* question_of(CmExchange& e, const CmMessage& message, bool by_requester) {
  switch (message.attribute) {
    case kReq:
    case kSidrReq:
      return &e.request;
    case kRep:
      return &e.reply;
    case kDreq:
      return &e.disconnect[by_requester];
    case kLap:
      return &e.path;
    default:
      return nullptr;
  }
}

CmQuestion* answered_by(CmExchange& e, const CmMessage& message, bool by_requester) {
  const uint8_t about = message.body.size() > kIdsSize ? message.body[kIdsSize] >> 6 : 3;  // of MRA and REJ
  CmQuestion* const first_two[] = {&e.request, &e.reply};
  switch (message.attribute) {
    case kRep:
    case kSidrRep:
      return &e.request;
    case kRtu:
      return &e.reply;
    case kDrep:
      return &e.disconnect[!by_requester];
    case kApr:
      return &e.path;
    case kMra:
      return about < 2 ? first_two[about] : about == 2 ? &e.path : nullptr;
    case kRej:
      return about < 2 ? first_two[about] : nullptr;
    default:
      return nullptr;
  }
}

uint64_t fold(uint64_t seed, uint64_t value) {
  uint64_t x = (seed ^ value) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}

}  // namespace

std::optional<CmMessage> find_cm_message(const Datagram& datagram, const Headers& headers) {
  if (!headers.usable() || !headers.info->has_deth || headers.bth.dest_qp != wire::kGsiQpn) return {};
  const uint32_t mad = headers.info->header_size;
  const size_t end = std::min<size_t>(datagram.ib.size(), mad + headers.payload_size);
  if (end < mad + wire::kMadHeaderSize) return {};
  const auto header = wire::MadHeader::parse(wire::MadHeaderView::at(datagram.ib.data() + mad));
  const auto attribute = static_cast<wire::CmAttribute>(header.attribute);
  const bool cm = header.base_version == wire::kMadBaseVersion && header.management_class == wire::kMadClassCm &&
                  header.method == wire::kMadMethodSend;
  if (!cm || wire::cm_message_name(attribute) == nullptr) return {};
  const uint32_t at = mad + static_cast<uint32_t>(wire::kMadHeaderSize);
  return CmMessage{attribute, static_cast<uint64_t>(header.transaction), at, datagram.ib.subspan(at, end - at)};
}

size_t CmTracker::KeyHash::operator()(const Key& key) const {
  uint64_t halves[4];
  std::memcpy(halves, key.owner.bytes.data(), sizeof halves / 2);
  std::memcpy(halves + 2, key.other.bytes.data(), sizeof halves / 2);
  uint64_t all = fold(key.id, key.sidr);
  for (const uint64_t half : halves) all = fold(all, half);
  return all;
}

uint32_t CmTracker::find(const wire::IpAddress& owner, const wire::IpAddress& other, uint32_t id, bool sidr) const {
  const auto found = id == 0 ? ids_.end() : ids_.find({owner, other, id, sidr});
  return found == ids_.end() ? kNone : found->second;
}

void CmTracker::name(const wire::IpAddress& owner, const wire::IpAddress& other, uint32_t id, bool sidr,
                     uint32_t exchange) {
  if (id == 0) return;
  if (ids_.size() >= kMostIds) ids_.clear();
  ids_[{owner, other, id, sidr}] = exchange;
}

void CmTracker::on_message(const Subject& subject, const CmMessage& message, Store& store, FlowTable& flows) {
  if (message.body.size() < kIdsSize) return;
  const Current now{subject, message, store, flows, static_cast<uint32_t>(store.cm.size())};
  store.cm.emplace_back();
  subject.record.message = now.cm;
  const uint32_t index = exchange_of(now);
  store.cm[now.cm].exchange = index;
  Findings& findings = subject.record.findings;
  if (message.attribute == kMra) findings.add(Finding::kCmMra);
  if (message.attribute == kRej) findings.add(Finding::kCmReject);
  if (message.attribute == kSidrRep && message.body.size() > 4 && message.body[4] != 0)
    findings.add(Finding::kCmReject);
  if (index == kNone) return findings.add(Finding::kCmUnseen);

  CmExchange& e = store.exchanges[index];
  e.last_frame = subject.datagram.frame;
  const bool by_requester = subject.datagram.source == e.requester;
  if (CmQuestion* const question = answered_by(e, message, by_requester)) answer(now, *question);
  if (message.attribute == kRep) connect(now, e);
  if (CmQuestion* const question = question_of(e, message, by_requester)) ask(now, *question);
  if (message.attribute == kRej || message.attribute == kDrep || message.attribute == kSidrRep) e.over = true;
}

uint32_t CmTracker::exchange_of(const Current& now) {
  const wire::CmAttribute attribute = now.message.attribute;
  if (attribute == kReq || attribute == kSidrReq) return request(now);
  const uint32_t found = answered(now);
  if (found != kNone || (attribute != kDreq && attribute != kLap)) return found;
  return begin(now, false);  // of a connection that was made before: its answers belong to it
}

// `asked`: by a request that tells the service.
uint32_t CmTracker::begin(const Current& now, bool asked) {
  const auto index = static_cast<uint32_t>(now.store.exchanges.size());
  const Datagram& datagram = now.subject.datagram;
  CmExchange& e = now.store.exchanges.emplace_back();
  e.requester = datagram.source;
  e.responder = datagram.destination;
  e.stream = now.flows.new_stream();
  e.first_frame = datagram.frame;
  e.transaction = now.message.transaction;
  e.has_service = asked;
  const uint8_t* const body = now.message.body.data();
  const bool sidr = is_sidr(now.message.attribute);
  name(datagram.source, datagram.destination, wire::load_be32(body), sidr, index);
  if (!asked) name(datagram.destination, datagram.source, wire::load_be32(body + 4), sidr, index);
  return index;
}

uint32_t CmTracker::request(const Current& now) {
  const bool sidr = is_sidr(now.message.attribute);
  const auto body = now.message.body;
  if (body.size() < (sidr ? kSidrReqSize : kReqSize)) return kNone;
  const Datagram& datagram = now.subject.datagram;
  const uint32_t known = find(datagram.source, datagram.destination, wire::load_be32(body.data()), sidr);
  if (known != kNone && now.store.exchanges[known].transaction == now.message.transaction) return known;
  if (known != kNone && !now.store.exchanges[known].over) now.subject.record.findings.add(Finding::kCmIdReuse);

  const uint32_t index = begin(now, true);
  CmExchange& e = now.store.exchanges[index];
  e.service = wire::ServiceId{wire::load_be64(body.data() + 8)};
  e.transport = sidr ? wire::Transport::kUd : transport_of(body);
  if (!sidr) {
    e.qpn = wire::load_be24(body.data() + 32);
    e.responder_starts = wire::Psn(wire::load_be24(body.data() + 44));
  }
  const auto names = wire::CmaHeader::parse(body.subspan(sidr ? kSidrReqSize : kReqSize));
  const bool ip = wire::port_space_name(e.service) != nullptr && wire::port_space(e.service) != wire::PortSpace::kIb;
  if (names && ip) e.source_port = names->source_port;
  return index;
}

// By the id of the receiver, or that of the sender.
uint32_t CmTracker::answered(const Current& now) {
  const Datagram& datagram = now.subject.datagram;
  const bool sidr = is_sidr(now.message.attribute);
  const uint8_t* const body = now.message.body.data();
  const uint32_t own = wire::load_be32(body), receivers = wire::load_be32(body + 4);
  uint32_t found = sidr ? find(datagram.destination, datagram.source, own, true)
                        : find(datagram.destination, datagram.source, receivers, false);
  if (sidr) return found;
  if (found == kNone) found = find(datagram.source, datagram.destination, own, false);
  if (found != kNone && (now.message.attribute == kRep || now.message.attribute == kMra)) {
    name(datagram.source, datagram.destination, own, false, found);
  }
  return found;
}

void CmTracker::ask(const Current& now, CmQuestion& question) {
  const Datagram& datagram = now.subject.datagram;
  CmRecord& record = now.store.cm[now.cm];
  if (question.count++ == 0) {
    question.first_frame = datagram.frame;
  } else {
    now.subject.record.findings.add(Finding::kCmRetransmission);
    record.first_frame = question.first_frame;
    record.since_last = datagram.time - question.last_time;
    if (question.count >= kManyAttempts && !question.answered) now.subject.record.findings.add(Finding::kCmNoAnswer);
  }
  question.last_frame = datagram.frame;
  question.last_time = datagram.time;
  question.last_cm = now.cm;
}

void CmTracker::answer(const Current& now, CmQuestion& question) {
  if (question.count == 0) return now.subject.record.findings.add(Finding::kCmUnseen);
  CmRecord& record = now.store.cm[now.cm];
  record.request_frame = question.last_frame;
  record.response_time = now.subject.datagram.time - question.last_time;
  now.store.cm[question.last_cm].response_frame = now.subject.datagram.frame;
  question.answered = true;
}

// The REP: both directions of a connection are known.
void CmTracker::connect(const Current& now, CmExchange& e) {
  const auto body = now.message.body;
  if (body.size() < kRepSize || !e.has_service || e.transport == wire::Transport::kUd) return;
  const bool xrc = e.transport == wire::Transport::kXrc;
  const uint32_t qpn = wire::load_be24(body.data() + (xrc ? 16 : 12));
  if (e.answered_qpn == qpn) return;  // the REP again
  e.answered_qpn = qpn;
  const FlowKey forth{e.requester, e.responder, qpn};
  const FlowKey back{e.responder, e.requester, e.qpn};
  now.flows.connect(forth, wire::Psn(wire::load_be24(body.data() + 20)), back, e.responder_starts, e.transport,
                    {e.stream, now.store.cm[now.cm].exchange});
}

}  // namespace uroce::dissector
