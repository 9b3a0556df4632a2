// SPDX-License-Identifier: BSD-2-Clause
// How the responder takes requests; what it sends is in responder_answers.cc.
#include "engine/transport/reliable/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/memory/memory_access.h"
#include "engine/transport/common/long_packet.h"
#include "engine/transport/common/request_packets.h"
#include "engine/transport/common/run_trial.h"
#include "wire/bth.h"

namespace uroce::transport {

using io::SendReason;
using memory::AccessResult;
using queue::WcStatus;
using wire::Aeth;
using wire::NakCode;
using wire::Operation;
using wire::Packet;
using wire::Psn;

namespace {

constexpr uint64_t kMaxRead = uint64_t{1} << 31;  // bytes, IBTA 9.7.4.1.5

// An atomic operation on application memory. False: not accessible; else `found` is the value before.
bool execute_atomic(uint8_t* address, const Packet& packet, uint64_t& found) {
  const wire::AtomicEth& op = packet.atomic_eth;
  const bool add = packet.info->operation == Operation::kFetchAdd;
  // A region whose iova is aligned differently from its memory: atomic among QPs only, which is what we report.
  if (reinterpret_cast<uintptr_t>(address) % alignof(uint64_t) != 0) {
    return memory::atomic_unaligned(address, {add, op.swap_add, op.compare}, found);
  }
  return memory::guarded(address, sizeof(uint64_t), [&] {
    auto* const word = reinterpret_cast<uint64_t*>(address);
    if (add) {
      found = __atomic_fetch_add(word, op.swap_add, __ATOMIC_SEQ_CST);
    } else {
      found = op.compare;  // becomes the value found when it differs
      __atomic_compare_exchange_n(word, &found, op.swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
  });
}

void store_whole(uint8_t* address, uint64_t value) {
  if (reinterpret_cast<uintptr_t>(address) % alignof(uint64_t) != 0) {
    std::memcpy(address, &value, sizeof(value));
  } else {
    __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  }
}

}  // namespace

void Responder::reset() {
  expected_ = Psn{};
  msn_ = wire::Msn{};
  message_.abandon();
  silent_ = false;
  forget_ack();
  receive_.drop();
  replays_.reset();
  nak_ = Nak{};
}

Outcome Responder::on_request(const Packet& packet) {
  qp_.counters.add(Counter::kRxRequests);
  const int32_t ahead = Psn::distance(expected_, packet.bth.psn);
  if (ahead == 0) return on_expected(packet);
  if (ahead > 0) {
    on_ahead();
  } else if (const uint32_t arrived = arrived_in_part(packet, expected_, qp_.attr.path_mtu)) {
    return on_expected(without_first(packet, arrived, qp_.attr.path_mtu));
  } else {
    on_duplicate(packet);
  }
  return Outcome::kGoesOn;
}

bool Responder::take_middle_packets(const Packet& previous, std::span<const uint8_t* const> payloads) {
  const bool next = previous.bth.psn + 1 == expected_ && message_.in_sequence(previous);
  if (!next || previous.bth.ack_request || !message_.length_valid(previous)) return false;
  if (!message_.take_middle_packets(previous, payloads)) return false;
  const auto count = static_cast<uint32_t>(payloads.size());
  qp_.counters.add(Counter::kRxRequests, count);
  accepted(previous, count, false);
  return true;
}

// One NAK per gap (IBTA 9.7.5.2.8).
void Responder::on_ahead() {
  qp_.counters.add(Counter::kRxOutOfSequence);
  if (silent_) {
    qp_.counters.add(Counter::kDropAfterNak);
    return;
  }
  silent_ = true;
  nak(Aeth::make_nak(NakCode::kPsnSequenceError, msn_), expected_, SendReason::kNakGap);
}

void Responder::on_duplicate(const Packet& packet) {
  qp_.counters.add(Counter::kRxDuplicates);
  const Operation operation = packet.info->operation;
  if (operation == Operation::kSend || operation == Operation::kWrite) {
    // Never executed again, always acknowledged (IBTA 9.7.5.1.4): the peer may have missed the ACK.
    const bool newest = !ack_again_ || Psn::distance(*ack_again_, packet.bth.psn) > 0;
    if (newest && (!ack_owed_ || ack_again_)) ack_again_ = packet.bth.psn;
    ack_owed_ = true;
    lone_write_ = false;
    return;
  }
  ReplayEntry* entry = replays_.find(packet.bth.psn);
  if (entry != nullptr && operation == Operation::kReadRequest && entry->kind == ReplayEntry::Kind::kRead) {
    return replay_read(*entry, packet);
  }
  const bool atomic = operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
  const bool bare = operation == Operation::kFlush || operation == Operation::kAtomicWrite;
  if (entry != nullptr &&
      ((atomic && entry->kind == ReplayEntry::Kind::kAtomic) || (bare && entry->kind == ReplayEntry::Kind::kBare))) {
    return replays_.answer_again(*entry);
  }
  qp_.counters.add(Counter::kDropDuplicateUnknown);
}

// A retried READ may ask for any tail of the original, or a part of it (IBTA 9.7.5.1.4); nothing outside.
void Responder::replay_read(ReplayEntry& entry, const Packet& packet) {
  const uint32_t n = packet.bth.psn.offset_from(entry.first);
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint64_t skipped = uint64_t{n} * mtu;
  const wire::Reth& reth = packet.reth;
  if (skipped + reth.length > entry.length || reth.va != entry.va + skipped || reth.rkey != entry.rkey ||
      (entry.length != 0 && reth.length == 0)) {
    qp_.counters.add(Counter::kDropDuplicateUnknown);
    return;
  }
  try_runs(entry, packet.bth.psn);
  const uint32_t stop = static_cast<uint32_t>(skipped) + reth.length;
  const bool further = !entry.answering || stop > entry.stop;
  // What is on its way to be sent anyway needs no second time: most duplicates are made by the network.
  if (!entry.answering || n < entry.next) entry.start = entry.next = n;
  if (further) entry.stop = stop;
  replays_.answer_again(entry);
}

// The same for responses as Requester::try_runs() for requests. A peer that goes back asks for all its READs again, in
// order; what counts is where it begins.
void Responder::try_runs(const ReplayEntry& entry, Psn asked_for) {
  const bool begins = !asked_again_ || Psn::distance(*asked_again_, asked_for) <= 0;
  asked_again_ = entry.first + (entry.count - 1);
  if (!begins) return;
  const auto progress = static_cast<uint32_t>(Psn::distance(went_back_to_, asked_for));
  went_back_to_ = asked_for;
  if (qp_.run_trial != nullptr && qp_.run_trial->on_went_back(progress, qp_.now)) {
    qp_.counters.add(Counter::kRunsPaused);
  }
}

Outcome Responder::on_expected(const Packet& packet) {
  if (!message_.in_sequence(packet)) return refuse(packet, SendReason::kNakOpcodeSequence);
  if (!length_valid(packet)) return refuse(packet, SendReason::kNakPacketLength);
  if (!find_target(packet)) return refuse(packet, SendReason::kNakNoSrq);
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      return on_message(packet);
    case Operation::kReadRequest:
      return on_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return on_atomic(packet);
    case Operation::kAtomicWrite:
      return on_atomic_write(packet);
    case Operation::kFlush:
      return on_flush(packet);
    default:
      return refuse(packet, SendReason::kNakOperation);
  }
}

// XRC: every request names the shared receive queue whose receive requests and protection domain count (IBTA annex
// A14). False: there is none, or it is another one than the message began with.
bool Responder::find_target(const Packet& packet) {
  if (qp_.type != QpType::kXrcTarget) return true;
  if (!packet.info->first && packet.xrceth.srqn != message_srqn_) return false;
  const ReceiveTarget* const target = qp_.xrc_srqs->find(qp_.xrcd, packet.xrceth.srqn);
  if (target == nullptr) return false;
  message_srqn_ = packet.xrceth.srqn;
  qp_.receive = *target;
  return true;
}

memory::Translation Responder::translate(uint32_t rkey, uint64_t va, uint64_t length, uint32_t right) const {
  if (!(qp_.attr.access & right)) return {AccessResult::kNoPermission, nullptr};
  return qp_.mrs.translate_remote(rkey, qp_.receive.pd, qp_.qpn.value(), va, length, right);
}

bool Responder::length_valid(const Packet& packet) const {
  const Operation operation = packet.info->operation;
  if (operation == Operation::kSend || operation == Operation::kWrite) return message_.length_valid(packet);
  if (operation == Operation::kAtomicWrite) return packet.payload.size() == sizeof(uint64_t) && packet.bth.pad == 0;
  return packet.payload.empty();
}

Outcome Responder::on_message(const Packet& packet) {
  const Psn psn = packet.bth.psn;
  switch (message_.take(packet)) {
    case Arrival::kTaken:
      accepted(packet, packet.psns, packet.info->last);
      return Outcome::kGoesOn;
    case Arrival::kCompletionLost:
      accepted(packet, packet.psns, packet.info->last);
      return Outcome::kFailed;
    case Arrival::kNoReceive:
      // Receiver not ready (IBTA 9.7.5.2.8). The peer goes back then, so later PSNs get no NAK of their own.
      silent_ = true;
      nak(Aeth::make_rnr_nak(qp_.attr.min_rnr_timer, msn_), psn, SendReason::kNakNoReceive);
      return Outcome::kGoesOn;
    case Arrival::kTooLong:
      return reject(NakCode::kInvalidRequest, psn, WcStatus::kLocalLengthError, SendReason::kNakReceiveLength);
    case Arrival::kReceiveMemory:
      return reject(NakCode::kRemoteOperationalError, psn, WcStatus::kLocalProtectionError,
                    SendReason::kNakReceiveMemory);
    case Arrival::kNotInvalidated:
      return reject(NakCode::kRemoteAccessError, psn, WcStatus::kLocalProtectionError, SendReason::kNakInvalidate);
    case Arrival::kWriteLength:
      return refuse(packet, SendReason::kNakWriteLength);
    case Arrival::kNoAccess:
      return refuse_access(packet);
    default:
      return memory_lost(psn);
  }
}

ReplayEntry& Responder::remember(const Packet& packet, ReplayEntry::Kind kind, uint32_t psns) {
  ReplayEntry& entry = replays_.add();
  entry.kind = kind;
  entry.first = packet.bth.psn;
  entry.count = psns;
  accepted(packet, psns, true);
  return entry;
}

Outcome Responder::on_read(const Packet& packet) {
  const wire::Reth& reth = packet.reth;
  if (reth.length > kMaxRead || !more_answers_allowed()) return refuse(packet, SendReason::kNakDepth);
  if (reth.length != 0 && translate(reth.rkey, reth.va, reth.length, memory::kRemoteRead).result != AccessResult::kOk) {
    return refuse_access(packet);
  }
  ReplayEntry& entry = remember(packet, ReplayEntry::Kind::kRead, packet_count(reth.length, qp_.attr.path_mtu));
  entry.va = reth.va;
  entry.rkey = reth.rkey;
  entry.pd = qp_.receive.pd;
  entry.length = entry.stop = reth.length;
  return Outcome::kGoesOn;
}

Outcome Responder::on_atomic(const Packet& packet) {
  const wire::AtomicEth& op = packet.atomic_eth;
  if (op.va % sizeof(uint64_t) != 0 || !more_answers_allowed()) return refuse(packet, SendReason::kNakAtomic);
  const memory::Translation t = translate(op.rkey, op.va, sizeof(uint64_t), memory::kRemoteAtomic);
  if (t.result != AccessResult::kOk) return refuse_access(packet);
  uint64_t original = 0;
  if (!execute_atomic(t.address, packet, original)) return memory_lost(packet.bth.psn);
  remember(packet, ReplayEntry::Kind::kAtomic, 1).original = original;
  return Outcome::kGoesOn;
}

// Eight bytes, seen whole or not at all (IBTA A19.4.5).
Outcome Responder::on_atomic_write(const Packet& packet) {
  const wire::Reth& reth = packet.reth;
  if (reth.length != sizeof(uint64_t) || reth.va % sizeof(uint64_t) != 0 || !more_answers_allowed()) {
    return refuse(packet, SendReason::kNakAtomic);
  }
  const memory::Translation t = translate(reth.rkey, reth.va, sizeof(uint64_t), memory::kRemoteWrite);
  if (t.result != AccessResult::kOk) return refuse_access(packet);
  uint64_t value;
  std::memcpy(&value, packet.payload.data(), sizeof(value));
  if (!memory::guarded(t.address, sizeof(value), [&] { store_whole(t.address, value); })) {
    return memory_lost(packet.bth.psn);
  }
  remember(packet, ReplayEntry::Kind::kBare, 1);
  return Outcome::kGoesOn;
}

// What was written before is visible to everybody from here on (IBTA A19.4.3). Nothing of it waits in caches of ours,
// so the order of stores is all there is to see to. Persistence is not offered: no region has the right.
Outcome Responder::on_flush(const Packet& packet) {
  const wire::Reth& reth = packet.reth;
  const wire::Feth& feth = packet.feth;
  const uint32_t rights = (feth.placement_type & wire::Feth::kGlobalVisibility ? memory::kFlushGlobal : 0u) |
                          (feth.placement_type & wire::Feth::kPersistence ? memory::kFlushPersistent : 0u);
  if (rights == 0 || feth.selectivity > wire::Feth::kWholeRegion || !more_answers_allowed()) {
    return refuse(packet, SendReason::kNakFlush);
  }
  // Of a whole region the address and length do not count.
  const bool whole = feth.selectivity == wire::Feth::kWholeRegion;
  const AccessResult result =
      whole ? qp_.mrs.check_remote(reth.rkey, qp_.receive.pd, qp_.qpn.value(), rights)
            : qp_.mrs.translate_remote(reth.rkey, qp_.receive.pd, qp_.qpn.value(), reth.va, reth.length, rights).result;
  if ((qp_.attr.access & rights) != rights || result != AccessResult::kOk) return refuse_access(packet);
  std::atomic<int> order{0};
  order.exchange(1, std::memory_order_seq_cst);  // a full fence that TSan understands too
  remember(packet, ReplayEntry::Kind::kBare, 1);
  return Outcome::kGoesOn;
}

// The expected request was executed: the next one may come.
void Responder::accepted(const Packet& packet, uint32_t psns, bool message_done) {
  expected_ = expected_ + psns;
  silent_ = false;
  nak_.pending = false;  // a sequence or RNR NAK that has not left is about this packet, and moot
  if (message_done) ++msn_, ++unacknowledged_;
  const Operation operation = packet.info->operation;
  lone_write_ = message_done && operation == Operation::kWrite && !packet.info->has_immdt && unacknowledged_ == 1;
  if (operation != Operation::kSend && operation != Operation::kWrite) {
    forget_ack();  // the response acknowledges everything before it
  } else if (packet.bth.ack_request) {
    ack_owed_ = true;
    ack_again_.reset();
    ++acks_coalesced_;
  }
}

void Responder::forget_ack() {
  ack_owed_ = false;
  ack_again_.reset();
  acks_coalesced_ = unacknowledged_ = 0;
  lone_write_ = false;
}

void Responder::nak(Aeth aeth, Psn psn, SendReason why) {
  nak_ = {psn, aeth, why, true};
  forget_ack();  // a NAK acknowledges everything before its PSN
}

// A violation by the peer, or a receive buffer that cannot take the message: NAK, and the QP is done (IBTA table 59).
Outcome Responder::reject(NakCode code, Psn psn, WcStatus receive_status, SendReason why) {
  nak(Aeth::make_nak(code, msn_), psn, why);
  if (receive_) {
    static_cast<void>(receive_.fail(receive_status));
  } else {
    qp_.events.on_event(code == NakCode::kRemoteAccessError        ? AsyncEvent::kQpAccessError
                        : code == NakCode::kRemoteOperationalError ? AsyncEvent::kQpFatal
                                                                   : AsyncEvent::kQpRequestError);
  }
  return Outcome::kFailed;
}

// The two violations that are most of them.
Outcome Responder::refuse(const Packet& packet, SendReason why) {
  return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError, why);
}

Outcome Responder::refuse_access(const Packet& packet) {
  return reject(NakCode::kRemoteAccessError, packet.bth.psn, WcStatus::kLocalAccessError, SendReason::kNakAccess);
}

// The region is valid, but the application has unmapped or protected its memory: our fault, not the peer's.
Outcome Responder::memory_lost(Psn psn) {
  qp_.counters.add(Counter::kMemoryFaults);
  return reject(NakCode::kRemoteOperationalError, psn, WcStatus::kLocalProtectionError, SendReason::kNakMemoryLost);
}

void Responder::flush() {
  forget_ack();
  // What the peer should send again is of no use any more; why the QP failed is.
  const bool asks_again = nak_.aeth.kind() == wire::AethKind::kRnrNak ||
                          nak_.aeth.value() == static_cast<uint8_t>(NakCode::kPsnSequenceError);
  if (asks_again) nak_.pending = false;
  message_.abandon();
  receive_.flush();
}

}  // namespace uroce::transport
