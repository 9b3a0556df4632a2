#include "engine/transport/requester.h"

#include <algorithm>

#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/reth.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::SendWqe;
using queue::WcStatus;
using queue::WrOpcode;
using wire::Opcode;

namespace {

constexpr uint32_t kMaxMessage = 0x7fffffff;
constexpr uint32_t kAtomicSize = 8;

bool is_read_or_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::kRdmaRead || opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
}

bool consumes_receive(WrOpcode opcode) {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImmediate ||
         opcode == WrOpcode::kSendWithInvalidate || opcode == WrOpcode::kRdmaWriteWithImmediate;
}

// The six opcodes of a kind of message, by position. `last` and `only` depend on immediate and invalidate.
struct MessageOpcodes {
  Opcode first, middle, last, only;
};

MessageOpcodes opcodes_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly};
    case WrOpcode::kRdmaWriteWithImmediate:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImmediate,
              Opcode::kRcWriteOnlyImmediate};
    case WrOpcode::kSendWithImmediate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImmediate, Opcode::kRcSendOnlyImmediate};
    case WrOpcode::kSendWithInvalidate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate,
              Opcode::kRcSendOnlyInvalidate};
    default:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly};
  }
}

}  // namespace

void Requester::reset() {
  local_error_.reset();
  reads_outstanding_ = 0;
  messages_ = 0;
  credit_limit_.reset();
  since_ack_request_ = 0;
  ack_requested_ = false;
  resume_at_ = Time{};
}

bool Requester::wants_to_send() const {
  if (at_local_error() || window_.in_flight() >= kWindow) return false;
  if (window_.cursor() == qp_.sq.fetched()) return qp_.attr.state == QpState::kRts && qp_.sq.head() != window_.cursor();
  const SendQueue::Entry entry = qp_.sq.entry(window_.cursor());
  return (entry.progress.started || may_start(entry)) && credits_allow(entry);
}

bool Requester::pull(wire::TxPacket& out) {
  if (at_local_error() || qp_.now < resume_at_ || window_.in_flight() >= kWindow || !position()) return false;
  return build(qp_.sq.entry(window_.cursor()), out);
}

void Requester::on_unreadable(wire::Psn psn) {
  for (uint32_t index = qp_.sq.tail(); index != qp_.sq.fetched(); ++index) {
    const SendQueue::Entry entry = qp_.sq.entry(index);
    if (!entry.progress.started) return;
    if (((psn.value() - entry.progress.first_psn) & wire::kMask24) >= entry.progress.psn_count) continue;
    if (local_error_ && static_cast<int32_t>(local_error_->index - index) <= 0)
      return;  // an earlier one failed already
    local_error_ = LocalError{index, WcStatus::kLocalProtectionError};
    window_.stop_at(index, wire::Psn(entry.progress.first_psn));
    return;
  }
}

// Makes the cursor stand on a WQE that may be sent from. False: nothing to send now.
bool Requester::position() {
  if (window_.cursor() == qp_.sq.fetched()) {
    if (qp_.attr.state != QpState::kRts || qp_.sq.head() == window_.cursor()) return false;
    qp_.sq.fetch();
  }
  const SendQueue::Entry entry = qp_.sq.entry(window_.cursor());
  return credits_allow(entry) && (entry.progress.started || start(entry));
}

// The newest word counts: a limit never moves back, so older ones are late.
void Requester::on_credits(wire::Aeth aeth) {
  const uint32_t credits = wire::credit_count(aeth.value());
  if (credits == wire::kNoCredits) return credit_limit_.reset();
  const wire::Msn limit(aeth.msn.value() + credits);
  if (!credit_limit_ || wire::Msn::distance(*credit_limit_, limit) > 0) credit_limit_ = limit;
}

// The peer may not have a receive request for this message, or for the one after it.
bool Requester::beyond_credits(const SendQueue::Entry& entry) const {
  const uint32_t message = entry.progress.started ? entry.progress.message : messages_ + 1;
  return credit_limit_ && consumes_receive(entry.wqe.opcode) &&
         wire::Msn::distance(*credit_limit_, wire::Msn(message)) > 0;
}

// Beyond the credits one packet at a time may try its luck (IBTA 9.7.7.2.5): when no answer is under way that could
// bring more. Once the first packet of a SEND is acknowledged, the message has its receive request. A WRITE with
// immediate takes one with its last packet only, so its data may go ahead.
bool Requester::credits_allow(const SendQueue::Entry& entry) const {
  if (!beyond_credits(entry)) return true;
  const wire::Psn first(entry.progress.first_psn);
  if (!entry.progress.started || window_.next() == first) return !answer_under_way();
  return entry.wqe.opcode == WrOpcode::kRdmaWriteWithImmediate || window_.offset(first) >= wire::kPsnHalf;
}

// A packet in flight has asked for an acknowledgement.
bool Requester::answer_under_way() const {
  return ack_requested_ && window_.offset(ack_requested_psn_) < window_.in_flight();
}

// Ordering rules of IBTA 10.8.3.3 and the depth negotiated for READs and atomics (9.7.3.1, 11.2.4.2).
bool Requester::may_start(const SendQueue::Entry& entry) const {
  if (qp_.attr.state != QpState::kRts) return false;
  if ((entry.wqe.flags & queue::kFence) && reads_outstanding_ > 0) return false;
  // A receiver tells new from duplicate by half the PSN space (wire.md "RC semantics"); a READ may take all of it.
  if (window_.outstanding() + psn_count(entry.wqe) > wire::kPsnHalf) return false;
  if (is_read_or_atomic(entry.wqe.opcode)) {
    // A depth of 0 is an error that start() reports.
    return qp_.attr.max_rd_atomic == 0 || reads_outstanding_ < qp_.attr.max_rd_atomic;
  }
  return true;
}

bool Requester::start(const SendQueue::Entry& entry) {
  if (!may_start(entry)) return false;
  if (const WcStatus status = validate(entry.wqe); status != WcStatus::kSuccess) {
    fail(status);
    return false;
  }
  entry.progress.first_psn = window_.end().value();
  entry.progress.psn_count = psn_count(entry.wqe);
  entry.progress.message = ++messages_;
  entry.progress.started = true;
  if (is_read_or_atomic(entry.wqe.opcode)) ++reads_outstanding_;
  return true;
}

uint32_t Requester::psn_count(const SendWqe& wqe) const {
  const bool atomic = wqe.opcode == WrOpcode::kCompareSwap || wqe.opcode == WrOpcode::kFetchAdd;
  return atomic || wqe.length > kMaxMessage ? 1 : packet_count(wqe.length, qp_.attr.path_mtu);
}

WcStatus Requester::validate(const SendWqe& wqe) const {
  switch (wqe.opcode) {
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      if (wqe.length != kAtomicSize) return WcStatus::kLocalLengthError;
      [[fallthrough]];
    case WrOpcode::kRdmaRead:
      if (qp_.attr.max_rd_atomic == 0 || (wqe.flags & queue::kInline)) return WcStatus::kLocalQpOperationError;
      break;
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImmediate:
    case WrOpcode::kSendWithInvalidate:
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImmediate:
      break;
    default:
      return WcStatus::kLocalQpOperationError;
  }
  return wqe.length > kMaxMessage ? WcStatus::kLocalLengthError : WcStatus::kSuccess;
}

bool Requester::build(const SendQueue::Entry& entry, wire::TxPacket& out) {
  const bool again = window_.resending();
  const uint32_t n = (window_.next().value() - entry.progress.first_psn) & 0xffffff;
  out.clear_payload();
  uint32_t psns = 1;
  bool last = true;
  switch (entry.wqe.opcode) {
    case WrOpcode::kRdmaRead:
      psns = entry.progress.psn_count - n;
      build_read_request(entry, n, out);
      break;
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      build_atomic(entry, out);
      break;
    default:
      last = n + 1 == entry.progress.psn_count;
      build_message_packet(entry, n, out);
      break;
  }
  if (at_local_error()) return false;
  window_.sent(psns, last);
  qp_.counters.add(Counter::kTxRequests);
  if (again) qp_.counters.add(Counter::kTxRetransmissions);
  return true;
}

// Asking costs the peer a packet, so not every message asks (IBTA 9.7.5.1.2 leaves it to the requester): those whose
// completion somebody waits for do, long messages now and then, and the last posted one if no answer is under way.
bool Requester::want_ack(const SendQueue::Entry& entry, uint32_t n) const {
  if (since_ack_request_ + 1 >= kAckInterval || window_.in_flight() + 1 >= kWindow || beyond_credits(entry))
    return true;
  if (n + 1 != entry.progress.psn_count) return false;
  if (credit_limit_ && *credit_limit_ == wire::Msn(entry.progress.message)) return true;  // the next one needs to know
  if (qp_.signal_all || (entry.wqe.flags & queue::kSignaled)) return true;
  return !answer_under_way() && qp_.sq.head() == window_.cursor() + 1;
}

void Requester::emit_bth(Opcode opcode, bool solicited, bool ack_request, wire::TxPacket& out) {
  since_ack_request_ = ack_request ? 0 : since_ack_request_ + 1;
  if (ack_request) {
    ack_requested_ = true;
    ack_requested_psn_ = window_.next();
  }
  wire::Bth bth{};
  bth.opcode = opcode;
  bth.solicited = solicited;
  bth.mig_req = true;  // migrated state, as native HCAs send it
  bth.pad = out.pad;
  bth.pkey = 0xffff;
  bth.dest_qp = qp_.attr.dest_qpn;
  bth.ack_request = ack_request;
  bth.psn = window_.next();
  bth.emit(out.header.data());
  out.header_size = wire::Bth::kSize;
}

void Requester::build_message_packet(const SendQueue::Entry& entry, uint32_t n, wire::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const uint32_t count = entry.progress.psn_count;
  const uint32_t offset = n * qp_.attr.path_mtu;
  const bool last = n + 1 == count;
  const uint32_t size = std::min(qp_.attr.path_mtu, wqe.length - offset);
  if (!gather(entry, offset, size, out)) return fail(WcStatus::kLocalProtectionError);
  out.pad = static_cast<uint8_t>(-size & 3);

  const MessageOpcodes opcodes = opcodes_of(wqe.opcode);
  const Opcode opcode = count == 1 ? opcodes.only : n == 0 ? opcodes.first : last ? opcodes.last : opcodes.middle;
  const wire::OpcodeInfo& info = wire::opcode_info(opcode);
  // The event is asked for where the receiver completes (IBTA 9.2.3): SENDs, and WRITEs with immediate.
  const bool solicited = last && (wqe.flags & queue::kSolicited) && wqe.opcode != WrOpcode::kRdmaWrite;
  emit_bth(opcode, solicited, want_ack(entry, n), out);
  if (info.has_reth) {
    wire::Reth{wqe.remote_address, wqe.rkey, wqe.length}.emit(&out.header[out.header_size]);
    out.header_size += wire::Reth::kSize;
  }
  if (info.has_immdt) {
    wire::ImmDt{wqe.immediate_or_rkey}.emit(&out.header[out.header_size]);
    out.header_size += wire::ImmDt::kSize;
  }
  if (info.has_ieth) {
    wire::Ieth{wqe.immediate_or_rkey}.emit(&out.header[out.header_size]);
    out.header_size += wire::Ieth::kSize;
  }
}

// `n` responses have arrived: asks for the rest only (IBTA 9.7.5.2.8 lets a retried READ start in the middle).
void Requester::build_read_request(const SendQueue::Entry& entry, uint32_t n, wire::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const uint32_t offset = n * qp_.attr.path_mtu;
  emit_bth(Opcode::kRcReadRequest, false, true, out);
  wire::Reth{wqe.remote_address + offset, wqe.rkey, wqe.length - offset}.emit(&out.header[out.header_size]);
  out.header_size += wire::Reth::kSize;
}

void Requester::build_atomic(const SendQueue::Entry& entry, wire::TxPacket& out) {
  const SendWqe& wqe = entry.wqe;
  const bool swap = wqe.opcode == WrOpcode::kCompareSwap;
  emit_bth(swap ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd, false, true, out);
  wire::AtomicEth atomic{};
  atomic.va = wqe.remote_address;
  atomic.rkey = wqe.rkey;
  atomic.swap_add = swap ? wqe.swap : wqe.compare_add;
  atomic.compare = swap ? wqe.compare_add : 0;
  atomic.emit(&out.header[out.header_size]);
  out.header_size += wire::AtomicEth::kSize;
}

// Points the packet at message bytes [offset, offset + size). False: an SGE does not pass its checks.
bool Requester::gather(const SendQueue::Entry& entry, uint32_t offset, uint32_t size, wire::TxPacket& out) {
  out.payload_size = size;
  if (size == 0) return true;
  if (entry.wqe.flags & queue::kInline) {
    out.fragments[out.fragment_count++] = {entry.inline_data + offset, size};
    return true;
  }
  for (const queue::Sge& sge : entry.sges) {
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const uint32_t piece = std::min(size, sge.length - offset);
    const memory::Translation t =
        qp_.mrs.translate_local(sge.lkey, qp_.pd, sge.address + offset, piece, memory::kLocalRead);
    if (t.result != memory::AccessResult::kOk) return false;
    out.fragments[out.fragment_count++] = {t.address, piece};
    size -= piece;
    offset = 0;
    if (size == 0) return true;
  }
  return false;  // sizes are sums of the SGEs, so this is not reached
}

}  // namespace uroce::transport
