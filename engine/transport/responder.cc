#include "engine/transport/responder.h"

#include <algorithm>
#include <cstring>

#include "engine/memory/memory_access.h"
#include "wire/bth.h"

namespace uroce::transport {

using memory::AccessResult;
using queue::Cqe;
using queue::WcOpcode;
using queue::WcStatus;
using wire::Aeth;
using wire::NakCode;
using wire::Opcode;
using wire::Operation;
using wire::Packet;
using wire::Psn;

namespace {

constexpr uint64_t kMaxMessage = uint64_t{1} << 31;  // IBTA 9.7.4.1.5

// The value found. Touches `address` only.
uint64_t execute_atomic(uint8_t* address, const Packet& packet) {
  const wire::AtomicEth& op = packet.atomic_eth;
  if (reinterpret_cast<uintptr_t>(address) % alignof(uint64_t) != 0) {
    // A region whose iova is aligned differently from its memory: atomic among QPs only, which is what we report.
    uint64_t value;
    std::memcpy(&value, address, sizeof(value));
    const uint64_t result = packet.info->operation == Operation::kFetchAdd ? value + op.swap_add
                            : value == op.compare                          ? op.swap_add
                                                                           : value;
    std::memcpy(address, &result, sizeof(result));
    return value;
  }
  auto* word = reinterpret_cast<uint64_t*>(address);
  if (packet.info->operation == Operation::kFetchAdd) return __atomic_fetch_add(word, op.swap_add, __ATOMIC_SEQ_CST);
  uint64_t expected = op.compare;  // receives the value found when it differs
  __atomic_compare_exchange_n(word, &expected, op.swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

}  // namespace

void Responder::reset() {
  expected_ = Psn{};
  msn_ = wire::Msn{};
  message_ = Message::kNone;
  silent_ = has_receive_ = ack_owed_ = false;
  received_ = acks_coalesced_ = 0;
  replays_.reset();
  nak_ = Nak{};
  ack_due_ = kNever;
}

void Responder::on_request(const Packet& packet) {
  qp_.counters.add(Counter::kRxRequests);
  const int32_t ahead = Psn::distance(expected_, packet.bth.psn);
  if (ahead == 0) return on_expected(packet);
  return ahead > 0 ? on_ahead() : on_duplicate(packet);
}

// One NAK per gap (IBTA 9.7.5.2.8).
void Responder::on_ahead() {
  qp_.counters.add(Counter::kRxOutOfSequence);
  if (silent_) {
    qp_.counters.add(Counter::kDropAfterNak);
    return;
  }
  silent_ = true;
  nak(Aeth::make_nak(NakCode::kPsnSequenceError, msn_), expected_);
}

void Responder::on_duplicate(const Packet& packet) {
  qp_.counters.add(Counter::kRxDuplicates);
  const Operation operation = packet.info->operation;
  if (operation == Operation::kSend || operation == Operation::kWrite) {
    // Never executed again, always acknowledged (IBTA 9.7.5.1.4): the peer may have missed the ACK.
    if (!ack_owed_) ack_due_ = qp_.now;
    ack_owed_ = true;
    return;
  }
  ReplayEntry* entry = replays_.find(packet.bth.psn);
  if (entry != nullptr && operation == Operation::kReadRequest && entry->kind == ReplayEntry::Kind::kRead) {
    return replay_read(*entry, packet);
  }
  if (entry != nullptr && operation != Operation::kReadRequest && entry->kind == ReplayEntry::Kind::kAtomic) {
    return replays_.answer_again(*entry);
  }
  qp_.counters.add(Counter::kDropDuplicateUnknown);
}

// A retried READ may ask for any tail of the original, or a part of it (IBTA 9.7.5.1.4); nothing outside.
void Responder::replay_read(ReplayEntry& entry, const Packet& packet) {
  const uint32_t n = (packet.bth.psn.value() - entry.first.value()) & wire::kMask24;
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint64_t skipped = uint64_t{n} * mtu;
  const wire::Reth& reth = packet.reth;
  if (skipped + reth.length > entry.length || reth.va != entry.va + skipped || reth.rkey != entry.rkey ||
      (entry.length != 0 && reth.length == 0)) {
    qp_.counters.add(Counter::kDropDuplicateUnknown);
    return;
  }
  const uint32_t end = n + packet_count(reth.length, mtu);
  const uint32_t stop = static_cast<uint32_t>(skipped) + reth.length;
  const bool further = !entry.answering || stop > entry.stop;
  // What is on its way to be sent anyway needs no second time: most duplicates are made by the network.
  if (!entry.answering || n < entry.next) entry.start = entry.next = n;
  if (further) {
    entry.end = end;
    entry.stop = stop;
  }
  replays_.answer_again(entry);
}

void Responder::on_expected(const Packet& packet) {
  if (!in_sequence(packet) || !length_valid(packet)) {
    return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
  }
  switch (packet.info->operation) {
    case Operation::kSend:
      return on_send(packet);
    case Operation::kWrite:
      return on_write(packet);
    case Operation::kReadRequest:
      return on_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return on_atomic(packet);
    default:  // FLUSH, ATOMIC_WRITE: not offered
      return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
  }
}

bool Responder::in_sequence(const Packet& packet) const {
  if (packet.info->first) return message_ == Message::kNone;
  const Message continued = packet.info->operation == Operation::kSend ? Message::kSend : Message::kWrite;
  return message_ == continued;
}

// IBTA 9.7.4.1.6: First and Middle are full and unpadded, Last is not empty, nothing is longer than the path MTU.
bool Responder::length_valid(const Packet& packet) const {
  const Operation operation = packet.info->operation;
  if (operation != Operation::kSend && operation != Operation::kWrite) return packet.payload.empty();
  const size_t size = packet.payload.size();
  if (!packet.info->last) return size == qp_.attr.path_mtu && packet.bth.pad == 0;
  return size <= qp_.attr.path_mtu && (size > 0 || packet.info->first);
}

void Responder::on_send(const Packet& packet) {
  if (packet.info->first) {
    if (!has_receive_ && !take_receive(packet.bth.psn)) return;
    received_ = 0;
    message_ = Message::kSend;
  }
  if (uint64_t{received_} + packet.payload.size() > receive_.length) {
    return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kLocalLengthError);
  }
  if (const WcStatus status = place(packet); status != WcStatus::kSuccess) {
    return reject(NakCode::kRemoteOperationalError, packet.bth.psn, status);
  }
  if (packet.info->has_ieth && !qp_.mrs.invalidate(packet.ieth.rkey, qp_.pd, qp_.qpn.value())) {
    return reject(NakCode::kRemoteAccessError, packet.bth.psn, WcStatus::kLocalProtectionError);
  }
  received_ += static_cast<uint32_t>(packet.payload.size());
  if (packet.info->last) complete_receive(WcStatus::kSuccess, &packet);
  accepted(packet, 1, packet.info->last);
}

void Responder::on_write(const Packet& packet) {
  if (packet.info->first) {
    if (packet.reth.length > kMaxMessage) {
      return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
    }
    write_va_ = packet.reth.va;
    write_rkey_ = packet.reth.rkey;
    write_length_ = packet.reth.length;
    received_ = 0;
  }
  const auto size = static_cast<uint32_t>(packet.payload.size());
  const bool fits = packet.info->last ? received_ + size == write_length_ : received_ + size < write_length_;
  if (!fits) return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
  if (packet.info->has_immdt && !has_receive_ && !take_receive(packet.bth.psn)) return;

  // The whole range is checked with the first packet, so that a bad WRITE touches nothing, and every packet's own part
  // again, because the region may be gone by then. Zero bytes check nothing (IBTA C9-88).
  if (write_length_ != 0) {
    const bool allowed = (qp_.attr.access & memory::kRemoteWrite) != 0;
    const uint32_t span = packet.info->first ? write_length_ : size;
    const memory::Translation t = qp_.mrs.translate_remote(write_rkey_, qp_.pd, qp_.qpn.value(), write_va_ + received_,
                                                           span, memory::kRemoteWrite);
    if (!allowed || t.result != AccessResult::kOk) {
      return reject(NakCode::kRemoteAccessError, packet.bth.psn, WcStatus::kLocalAccessError);
    }
    if (!memory::copy(t.address, packet.payload.data(), size)) return memory_lost(packet.bth.psn);
  }
  message_ = Message::kWrite;
  received_ += size;
  if (packet.info->has_immdt) complete_receive(WcStatus::kSuccess, &packet);
  accepted(packet, 1, packet.info->last);
}

void Responder::on_read(const Packet& packet) {
  const wire::Reth& reth = packet.reth;
  if (reth.length > kMaxMessage || replays_.first_answers() >= qp_.attr.max_dest_rd_atomic) {
    return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
  }
  if (reth.length != 0) {
    const bool allowed = (qp_.attr.access & memory::kRemoteRead) != 0;
    const memory::Translation t =
        qp_.mrs.translate_remote(reth.rkey, qp_.pd, qp_.qpn.value(), reth.va, reth.length, memory::kRemoteRead);
    if (!allowed || t.result != AccessResult::kOk) {
      return reject(NakCode::kRemoteAccessError, packet.bth.psn, WcStatus::kLocalAccessError);
    }
  }
  ReplayEntry& entry = replays_.add();
  entry.kind = ReplayEntry::Kind::kRead;
  entry.first = packet.bth.psn;
  entry.count = entry.end = packet_count(reth.length, qp_.attr.path_mtu);
  entry.va = reth.va;
  entry.rkey = reth.rkey;
  entry.length = entry.stop = reth.length;
  accepted(packet, entry.count, true);
}

void Responder::on_atomic(const Packet& packet) {
  const wire::AtomicEth& op = packet.atomic_eth;
  if (op.va % sizeof(uint64_t) != 0 || replays_.first_answers() >= qp_.attr.max_dest_rd_atomic) {
    return reject(NakCode::kInvalidRequest, packet.bth.psn, WcStatus::kRemoteInvalidRequestError);
  }
  const bool allowed = (qp_.attr.access & memory::kRemoteAtomic) != 0;
  const memory::Translation t =
      qp_.mrs.translate_remote(op.rkey, qp_.pd, qp_.qpn.value(), op.va, sizeof(uint64_t), memory::kRemoteAtomic);
  if (!allowed || t.result != AccessResult::kOk) {
    return reject(NakCode::kRemoteAccessError, packet.bth.psn, WcStatus::kLocalAccessError);
  }
  uint64_t original = 0;
  if (!memory::guarded([&] { original = execute_atomic(t.address, packet); })) return memory_lost(packet.bth.psn);
  ReplayEntry& entry = replays_.add();
  entry.kind = ReplayEntry::Kind::kAtomic;
  entry.first = packet.bth.psn;
  entry.count = 1;
  entry.original = original;
  accepted(packet, 1, true);
}

// Takes the next receive request. False: there is none, and an RNR NAK says so (IBTA 9.7.5.2.8). After it the peer goes
// back, so later PSNs get no NAK of their own.
bool Responder::take_receive(Psn psn) {
  has_receive_ = qp_.rq.take(receive_, receive_sges_.data());
  if (!has_receive_) {
    silent_ = true;
    nak(Aeth::make_rnr_nak(qp_.attr.min_rnr_timer, msn_), psn);
  }
  if (qp_.rq.limit_reached()) qp_.events.on_srq_limit(qp_.rq);
  return has_receive_;
}

// Copies a SEND's payload to where the receive request wants it.
WcStatus Responder::place(const Packet& packet) {
  uint32_t offset = received_;
  std::span<const uint8_t> data = packet.payload;
  for (uint32_t i = 0; i < receive_.sge_count && !data.empty(); ++i) {
    const queue::Sge& sge = receive_sges_[i];
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto piece = static_cast<uint32_t>(std::min<size_t>(data.size(), sge.length - offset));
    const memory::Translation t =
        qp_.mrs.translate_local(sge.lkey, qp_.pd, sge.address + offset, piece, memory::kLocalWrite);
    if (t.result != AccessResult::kOk) return WcStatus::kLocalProtectionError;
    if (!memory::copy(t.address, data.data(), piece)) {
      qp_.counters.add(Counter::kMemoryFaults);
      return WcStatus::kLocalProtectionError;
    }
    data = data.subspan(piece);
    offset = 0;
  }
  return WcStatus::kSuccess;
}

void Responder::complete_receive(WcStatus status, const Packet* packet) {
  Cqe cqe;
  cqe.wr_id = receive_.wr_id;
  cqe.status = status;
  cqe.opcode = WcOpcode::kReceive;
  if (packet != nullptr) {
    const bool write = packet->info->operation == Operation::kWrite;
    cqe.opcode = write ? WcOpcode::kReceiveRdmaWithImmediate : WcOpcode::kReceive;
    cqe.byte_length = received_;
    cqe.solicited = packet->bth.solicited;
    if (packet->info->has_immdt) {
      cqe.flags = queue::kWcWithImmediate;
      cqe.immediate_or_rkey = packet->immdt.network_value;
    } else if (packet->info->has_ieth) {
      cqe.flags = queue::kWcWithInvalidate;
      cqe.immediate_or_rkey = packet->ieth.rkey;
    }
  }
  has_receive_ = false;
  qp_.push(qp_.recv_cq, cqe);
}

// The expected request was executed: the next one may come.
void Responder::accepted(const Packet& packet, uint32_t psns, bool message_done) {
  expected_ = expected_ + psns;
  silent_ = false;
  nak_.pending = false;  // a sequence or RNR NAK that has not left is about this packet, and moot
  if (message_done) {
    message_ = Message::kNone;
    ++msn_;
  }
  const Operation operation = packet.info->operation;
  if (operation != Operation::kSend && operation != Operation::kWrite) {
    ack_owed_ = false;  // the response acknowledges everything before it
    acks_coalesced_ = 0;
  } else if (packet.bth.ack_request) {
    if (!ack_owed_) ack_due_ = qp_.now + kAckDelay;
    ack_owed_ = true;
    ++acks_coalesced_;
  }
}

void Responder::nak(Aeth aeth, Psn psn) {
  nak_ = {true, psn, aeth};
  ack_owed_ = false;  // a NAK acknowledges everything before its PSN
  acks_coalesced_ = 0;
}

// A violation by the peer, or a receive buffer that cannot take the message: NAK, and the QP is done (IBTA table 59).
void Responder::reject(NakCode code, Psn psn, WcStatus receive_status) {
  nak(Aeth::make_nak(code, msn_), psn);
  if (has_receive_) {
    complete_receive(receive_status, nullptr);
  } else {
    qp_.events.on_event(code == NakCode::kRemoteAccessError        ? AsyncEvent::kQpAccessError
                        : code == NakCode::kRemoteOperationalError ? AsyncEvent::kQpFatal
                                                                   : AsyncEvent::kQpRequestError);
  }
  qp_.failed = true;
}

// The region is valid, but the application has unmapped or protected its memory: our fault, not the peer's.
void Responder::memory_lost(Psn psn) {
  qp_.counters.add(Counter::kMemoryFaults);
  reject(NakCode::kRemoteOperationalError, psn, WcStatus::kLocalProtectionError);
}

// The same, found when a READ response was being made. What is queued behind it is not sent any more.
void Responder::on_unreadable(Psn psn) {
  replays_.reset();
  nak(Aeth::make_nak(NakCode::kRemoteOperationalError, msn_), psn);
  qp_.events.on_event(AsyncEvent::kQpFatal);
  qp_.failed = true;
}

// End-to-end credits (IBTA 9.7.7.2): the receive requests that the peer may count on beyond the messages that the MSN
// counts. The one in use belongs to a message not counted yet.
Aeth Responder::ack_aeth() const {
  if (qp_.rq_shared) return Aeth::make_ack(wire::kNoCreditsCode, msn_);
  return Aeth::make_ack(wire::credit_code_for(qp_.rq.available() + (has_receive_ ? 1 : 0)), msn_);
}

bool Responder::pull(wire::TxPacket& out) {
  out.clear_payload();
  while (ReplayEntry* entry = replays_.next_to_answer()) {
    if (entry->kind == ReplayEntry::Kind::kRead) {
      if (pull_read_response(*entry, out)) return true;
    } else {
      pull_atomic_response(*entry, out);
      return true;
    }
  }
  if (!nak_.pending) return false;
  nak_.pending = false;
  qp_.counters.add(nak_.aeth.kind() == wire::AethKind::kRnrNak ? Counter::kTxRnrNaks : Counter::kTxNaks);
  emit(Opcode::kRcAcknowledge, nak_.psn, out);
  emit_aeth(nak_.aeth, out);
  return true;
}

// False: the region went away while it was being read; a NAK takes the response's place.
bool Responder::pull_read_response(ReplayEntry& entry, wire::TxPacket& out) {
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint32_t n = entry.next;
  const bool first = n == entry.start;
  const bool last = n + 1 == entry.end;
  const uint64_t offset = uint64_t{n} * mtu;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(mtu, entry.stop - offset));
  if (size > 0) {
    const memory::Translation t =
        qp_.mrs.translate_remote(entry.rkey, qp_.pd, qp_.qpn.value(), entry.va + offset, size, memory::kRemoteRead);
    if (t.result != AccessResult::kOk && entry.replay) {
      // A late duplicate of a READ that is over, for all we know: no reason to end the QP.
      qp_.counters.add(Counter::kDropDuplicateUnknown);
      replays_.answered(entry);
      return false;
    }
    if (t.result != AccessResult::kOk) {
      nak(Aeth::make_nak(NakCode::kRemoteAccessError, msn_), entry.first + n);
      qp_.events.on_event(AsyncEvent::kQpAccessError);
      qp_.failed = true;
      replays_.reset();  // ends `entry` too
      return false;
    }
    out.fragments[out.fragment_count++] = {t.address, size};
    out.payload_size = size;
    out.pad = static_cast<uint8_t>(-size & 3);
  }
  const Opcode opcode = first && last ? Opcode::kRcReadResponseOnly
                        : first       ? Opcode::kRcReadResponseFirst
                        : last        ? Opcode::kRcReadResponseLast
                                      : Opcode::kRcReadResponseMiddle;
  emit(opcode, entry.first + n, out);
  if (first || last) emit_aeth(ack_aeth(), out);
  ++entry.next;
  if (last) replays_.answered(entry);
  qp_.counters.add(Counter::kTxReadResponses);
  return true;
}

void Responder::pull_atomic_response(ReplayEntry& entry, wire::TxPacket& out) {
  emit(Opcode::kRcAtomicAcknowledge, entry.first, out);
  emit_aeth(ack_aeth(), out);
  wire::AtomicAckEth{entry.original}.emit(&out.header[out.header_size]);
  out.header_size += wire::AtomicAckEth::kSize;
  replays_.answered(entry);
}

bool Responder::pull_ack(wire::TxPacket& out) {
  if (!ack_owed_ || wants_to_send()) return false;
  ack_owed_ = false;
  acks_coalesced_ = 0;
  out.clear_payload();
  emit(Opcode::kRcAcknowledge, expected_ - 1, out);
  emit_aeth(ack_aeth(), out);
  qp_.counters.add(Counter::kTxAcks);
  return true;
}

void Responder::emit(Opcode opcode, Psn psn, wire::TxPacket& out) {
  wire::Bth bth{};
  bth.opcode = opcode;
  bth.mig_req = true;
  bth.pad = out.pad;
  bth.dest_qp = qp_.attr.dest_qpn;
  bth.psn = psn;
  bth.emit(out.header.data());
  out.header_size = wire::Bth::kSize;
}

void Responder::emit_aeth(Aeth aeth, wire::TxPacket& out) {
  aeth.emit(&out.header[out.header_size]);
  out.header_size += Aeth::kSize;
}

void Responder::flush() {
  ack_owed_ = false;
  // What the peer should send again is of no use any more; why the QP failed is.
  const bool asks_again = nak_.aeth.kind() == wire::AethKind::kRnrNak ||
                          nak_.aeth.value() == static_cast<uint8_t>(NakCode::kPsnSequenceError);
  if (asks_again) nak_.pending = false;
  message_ = Message::kNone;
  if (has_receive_) complete_receive(WcStatus::kFlushError, nullptr);
  if (qp_.rq_shared) return;  // what is left belongs to the other QPs
  while (qp_.rq.take(receive_, receive_sges_.data())) complete_receive(WcStatus::kFlushError, nullptr);
}

}  // namespace uroce::transport
