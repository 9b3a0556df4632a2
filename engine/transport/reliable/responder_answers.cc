// SPDX-License-Identifier: BSD-2-Clause
// What the responder sends: READ responses, results, NAKs and ACKs. How it takes requests is in responder.cc.
#include <algorithm>

#include "engine/transport/common/request_packets.h"
#include "engine/transport/reliable/responder.h"
#include "wire/bth.h"

namespace uroce::transport {

using io::SendReason;
using memory::AccessResult;
using wire::Aeth;
using wire::NakCode;
using wire::Opcode;
using wire::Psn;

// The application has unmapped or protected what a READ response was being made of (as memory_lost() for requests).
// What is queued behind it is not sent any more.
Outcome Responder::on_unreadable(Psn psn) {
  replays_.reset();
  nak(Aeth::make_nak(NakCode::kRemoteOperationalError, msn_), psn, SendReason::kNakMemoryLost);
  qp_.events.on_event(AsyncEvent::kQpFatal);
  return Outcome::kFailed;
}

void Responder::on_unreadable_before_nak(Psn psn) {
  if (!nak_.pending || Psn::distance(psn, nak_.psn) <= 0) return;
  replays_.reset();
  nak(Aeth::make_nak(NakCode::kRemoteOperationalError, msn_), psn, SendReason::kNakMemoryLost);
}

// End-to-end credits (IBTA 9.7.7.2): the receive requests that the peer may count on beyond the messages that the MSN
// counts. The one in use belongs to a message not counted yet.
Aeth Responder::ack_aeth() const {
  if (qp_.rq_shared) return Aeth::make_ack(wire::kNoCreditsCode, msn_);
  return Aeth::make_ack(wire::credit_code_for(qp_.receive.rq->available() + (receive_ ? 1 : 0)), msn_);
}

Responder::Pulled Responder::pull(io::TxPacket& out) {
  Pulled nak_is = Pulled::kPacket;
  out.clear_payload();
  while (ReplayEntry* entry = replays_.next_to_answer()) {
    if (entry->replay) out.reason = SendReason::kAnswerAgain;  // of a READ: see there
    switch (entry->kind) {
      case ReplayEntry::Kind::kRead:
        if (const Pulled pulled = pull_read_response(*entry, out); pulled == Pulled::kPacket) {
          return pulled;
        } else if (pulled == Pulled::kFinalNak) {
          nak_is = pulled;
        }
        break;
      case ReplayEntry::Kind::kAtomic:
        pull_atomic_response(*entry, out);
        return Pulled::kPacket;
      default:
        pull_bare_response(*entry, out);
        return Pulled::kPacket;
    }
  }
  out.reason = SendReason::kFirst;
  if (!nak_.pending) return Pulled::kNothing;
  nak_.pending = false;
  out.reason = nak_.why;
  qp_.counters.add(nak_.aeth.kind() == wire::AethKind::kRnrNak ? Counter::kTxRnrNaks : Counter::kTxNaks);
  emit_bth(qp_, Opcode::kRcAcknowledge, nak_.psn, out);
  emit_aeth(nak_.aeth, out);
  return nak_is;
}

// Where the region went away while it was being read, a NAK takes the response's place.
Responder::Pulled Responder::pull_read_response(ReplayEntry& entry, io::TxPacket& out) {
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint32_t n = entry.next;
  const bool first = n == entry.start;
  const uint64_t offset = uint64_t{n} * mtu;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{qp_.most_psns} * mtu, entry.stop - offset));
  const bool last = offset + size == entry.stop;
  if (size > 0) {
    const memory::Translation t =
        qp_.mrs.translate_remote(entry.rkey, entry.pd, qp_.qpn.value(), entry.va + offset, size, memory::kRemoteRead);
    if (t.result != AccessResult::kOk && entry.replay) {
      // A late duplicate of a READ that is over, for all we know: no reason to end the QP.
      qp_.counters.add(Counter::kDropDuplicateUnknown);
      replays_.answered(entry);
      return Pulled::kNothing;
    }
    if (t.result != AccessResult::kOk) {
      nak(Aeth::make_nak(NakCode::kRemoteAccessError, msn_), entry.first + n, SendReason::kNakAccess);
      qp_.events.on_event(AsyncEvent::kQpAccessError);
      replays_.reset();  // ends `entry` too
      return Pulled::kFinalNak;
    }
    out.fragments[out.fragment_count++] = {t.address, size};
    out.payload_size = size;
    out.psns = packet_count(size, mtu);
    out.pad = static_cast<uint8_t>(-size & 3);
  }
  const Opcode opcode = first && last ? Opcode::kRcReadResponseOnly
                        : first       ? Opcode::kRcReadResponseFirst
                        : last        ? Opcode::kRcReadResponseLast
                                      : Opcode::kRcReadResponseMiddle;
  emit_bth(qp_, opcode, entry.first + n, out);
  if (first || last) emit_aeth(ack_aeth(), out);
  out.reason = n < entry.furthest ? SendReason::kAnswerAgain : SendReason::kFirst;
  out.alone = first && entry.replay;  // as Requester::build() has it
  entry.furthest = std::max(entry.furthest, entry.next += out.psns);
  if (last) replays_.answered(entry);
  repeatable_ = !first && !last && qp_.most_psns == 1;
  qp_.counters.add(Counter::kTxReadResponses);
  return Pulled::kPacket;
}

// Behind a middle response others of the same READ, for the first time.
size_t Responder::pull_middle_packets(const io::TxPacket& previous, std::span<io::TxPacket> out) {
  if (!repeatable_) return 0;
  ReplayEntry* const entry = replays_.next_to_answer();
  if (entry == nullptr || entry->next < entry->furthest) return 0;
  const uint32_t mtu = qp_.attr.path_mtu;
  const uint64_t offset = uint64_t{entry->next} * mtu;
  const auto middle = static_cast<uint32_t>((entry->stop - offset - 1) / mtu);  // all that are left but the last
  const uint32_t count = std::min(static_cast<uint32_t>(out.size()), middle);
  if (count == 0) return 0;
  const memory::Translation t = qp_.mrs.translate_remote(entry->rkey, entry->pd, qp_.qpn.value(), entry->va + offset,
                                                         uint64_t{count} * mtu, memory::kRemoteRead);
  if (t.result != AccessResult::kOk || t.address != previous.fragments[0].data + mtu) return 0;
  RequestPackets::repeat(previous, entry->first + entry->next, out.first(count));
  entry->furthest = entry->next += count;
  qp_.counters.add(Counter::kTxReadResponses, count);
  return count;
}

void Responder::pull_atomic_response(ReplayEntry& entry, io::TxPacket& out) {
  emit_bth(qp_, Opcode::kRcAtomicAcknowledge, entry.first, out);
  emit_aeth(ack_aeth(), out);
  wire::AtomicAckEth{entry.original}.emit(&out.header[out.header_size]);
  out.header_size += wire::AtomicAckEth::kSize;
  replays_.answered(entry);
}

void Responder::pull_bare_response(ReplayEntry& entry, io::TxPacket& out) {
  emit_bth(qp_, Opcode::kRcReadResponseOnly, entry.first, out);
  emit_aeth(ack_aeth(), out);
  replays_.answered(entry);
}

// How far a duplicate is acknowledged: to the next READ or atomic, which the peer asks for again if the answer was
// lost. An ACK from behind it tells of a loss that may not be one, and rxe takes an ACK with its PSN for the answer.
Psn Responder::last_before_answer(Psn psn) const {
  const ReplayEntry* next = replays_.first_between(psn, expected_);
  return (next != nullptr ? next->first : expected_) - 1;
}

bool Responder::pull_ack(io::TxPacket& out) {
  if (!ack_owed_ || wants_to_send()) return false;
  out.clear_payload();
  if (ack_again_) out.reason = SendReason::kAckAgain;
  emit_bth(qp_, Opcode::kRcAcknowledge, ack_again_ ? last_before_answer(*ack_again_) : expected_ - 1, out);
  forget_ack();
  emit_aeth(ack_aeth(), out);
  qp_.counters.add(Counter::kTxAcks);
  return true;
}

void Responder::emit_aeth(Aeth aeth, io::TxPacket& out) {
  aeth.emit(&out.header[out.header_size]);
  out.header_size += Aeth::kSize;
}

}  // namespace uroce::transport
