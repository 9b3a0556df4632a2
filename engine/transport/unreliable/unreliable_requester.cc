// SPDX-License-Identifier: BSD-2-Clause
#include "engine/transport/unreliable/unreliable_requester.h"

#include "engine/transport/common/send_completion.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::SendWqe;
using queue::WcStatus;
using queue::WrOpcode;

void UnreliableRequester::reset() {
  cursor_ = qp_.sq.tail();
  packet_ = 0;
  psn_ = wire::Psn{};
  error_.reset();
}

bool UnreliableRequester::wants_to_send() const {
  if (error_) return false;
  if (packet_ > 0) return true;
  if (qp_.attr.state != QpState::kRts || cursor_ == qp_.sq.head()) return false;
  // Local operations wait for what precedes them.
  return cursor_ == qp_.sq.fetched() || cursor_ == qp_.sq.tail() || !local(qp_.sq.entry(cursor_).wqe);
}

// UD has no such operations (IBTA 10.7.2, table 46): validate() refuses them.
bool UnreliableRequester::local(const SendWqe& wqe) const {
  return qp_.type != QpType::kUd && is_local(wqe.opcode);
}

// The WQE at the cursor has been copied from what was posted. False: there is none, or none may be begun.
bool UnreliableRequester::fetch_current() {
  if (packet_ > 0) return true;
  if (qp_.attr.state != QpState::kRts || cursor_ == qp_.sq.head()) return false;
  if (cursor_ == qp_.sq.fetched()) qp_.sq.fetch();
  return true;
}

Outcome UnreliableRequester::run_local_operations() {
  while (!error_ && cursor_ == qp_.sq.tail() && fetch_current() && local(qp_.sq.entry(cursor_).wqe)) {
    const WcStatus status = execute_local(qp_, qp_.sq.entry(cursor_).wqe);
    if (status != WcStatus::kSuccess) {
      error_ = status;
    } else {
      ++cursor_;
      if (complete_oldest(qp_, status) == Outcome::kFailed) return Outcome::kFailed;
    }
  }
  return Outcome::kGoesOn;
}

uint32_t UnreliableRequester::next_address_handle() {
  if (error_ || !fetch_current()) return 0;
  const SendWqe& wqe = qp_.sq.entry(cursor_).wqe;
  return validate(wqe) == WcStatus::kSuccess ? wqe.ud.address_handle : 0;
}

bool UnreliableRequester::pull(io::TxPacket& out) {
  if (error_ || !fetch_current()) return false;
  const SendQueue::Entry entry = qp_.sq.entry(cursor_);
  if (local(entry.wqe)) return false;
  if (const WcStatus status = validate(entry.wqe); status != WcStatus::kSuccess) {
    error_ = status;
    return false;
  }
  out.clear_payload();
  const uint32_t count = packet_count(entry.wqe.length, qp_.attr.path_mtu);
  if (!packets_.message(entry, packet_, 1, count, psn_, false, out)) {
    error_ = WcStatus::kLocalProtectionError;
    return false;
  }
  out.address_handle = qp_.type == QpType::kUd ? entry.wqe.ud.address_handle : 0;
  out.send_index = cursor_;
  psn_ = psn_ + 1;
  if (++packet_ == count) {
    out.completes = true;
    ++cursor_;
    packet_ = 0;
  }
  qp_.counters.add(Counter::kTxRequests);
  return true;
}

// What each transport can do: wire.md "Opcodes".
WcStatus UnreliableRequester::validate(const SendWqe& wqe) const {
  switch (wqe.opcode) {
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImmediate:
      break;
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImmediate:
      if (qp_.type == QpType::kUc) break;
      [[fallthrough]];
    default:
      return WcStatus::kLocalQpOperationError;
  }
  const uint32_t limit = qp_.type == QpType::kUd ? qp_.attr.path_mtu : kMaxMessage;
  return wqe.length <= limit ? WcStatus::kSuccess : WcStatus::kLocalLengthError;
}

// A packet of WQE `index` was given out, and nothing has ended the WQE since.
bool UnreliableRequester::given_out(uint32_t index) const {
  return index - qp_.sq.tail() < cursor_ - qp_.sq.tail() + (packet_ > 0 ? 1 : 0);
}

// Packets to ourselves and packets on the wire wait in different places, so one may be ready before an earlier one.
Outcome UnreliableRequester::on_taken(uint32_t index) {
  if (!given_out(index)) return Outcome::kGoesOn;
  qp_.sq.entry(index).progress.taken = true;
  while (qp_.sq.tail() != cursor_ && qp_.sq.entry(qp_.sq.tail()).progress.taken) {
    if (complete_oldest(qp_, WcStatus::kSuccess) == Outcome::kFailed) return Outcome::kFailed;
  }
  return Outcome::kGoesOn;
}

// The first one that fails counts; what follows it may be on its way already, and stays there.
void UnreliableRequester::on_unreadable(uint32_t index) {
  if (!given_out(index) || qp_.sq.entry(index).progress.taken) return;
  error_ = WcStatus::kLocalProtectionError;
  cursor_ = index;
  packet_ = 0;
}

void UnreliableRequester::flush() {
  while (qp_.sq.tail() != qp_.sq.head()) {
    if (qp_.sq.tail() == qp_.sq.fetched()) qp_.sq.fetch();
    const bool failed_one = error_ && qp_.sq.tail() == cursor_;
    static_cast<void>(complete_oldest(qp_, failed_one ? *error_ : WcStatus::kFlushError));
  }
  cursor_ = qp_.sq.tail();
  packet_ = 0;
  error_.reset();
}

}  // namespace uroce::transport
