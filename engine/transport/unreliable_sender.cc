#include "engine/transport/unreliable_sender.h"

#include "engine/transport/send_completion.h"

namespace uroce::transport {

using queue::SendQueue;
using queue::SendWqe;
using queue::WcStatus;
using queue::WrOpcode;

void UnreliableSender::reset() {
  cursor_ = qp_.sq.tail();
  packet_ = 0;
  psn_ = wire::Psn{};
  error_.reset();
}

bool UnreliableSender::wants_to_send() const {
  if (error_) return false;
  if (packet_ > 0) return true;
  if (qp_.attr.state != QpState::kRts || cursor_ == qp_.sq.head()) return false;
  // Local operations wait for what precedes them.
  return cursor_ == qp_.sq.fetched() || cursor_ == qp_.sq.tail() || !is_local(qp_.sq.entry(cursor_).wqe.opcode);
}

// The WQE at the cursor has been copied from what was posted. False: there is none, or none may be begun.
bool UnreliableSender::fetch_current() {
  if (packet_ > 0) return true;
  if (qp_.attr.state != QpState::kRts || cursor_ == qp_.sq.head()) return false;
  if (cursor_ == qp_.sq.fetched()) qp_.sq.fetch();
  return true;
}

void UnreliableSender::run_local_operations() {
  while (!error_ && cursor_ == qp_.sq.tail() && fetch_current() && is_local(qp_.sq.entry(cursor_).wqe.opcode)) {
    const WcStatus status = execute_local(qp_, qp_.sq.entry(cursor_).wqe);
    if (status != WcStatus::kSuccess) {
      error_ = status;
      return;
    }
    ++cursor_;
    complete_oldest(qp_, status);
  }
}

uint32_t UnreliableSender::next_address_handle() {
  run_local_operations();
  return error_ || !fetch_current() ? 0 : qp_.sq.entry(cursor_).wqe.ud.address_handle;
}

bool UnreliableSender::pull(wire::TxPacket& out) {
  run_local_operations();
  if (error_ || !fetch_current()) return false;
  const SendQueue::Entry entry = qp_.sq.entry(cursor_);
  if (is_local(entry.wqe.opcode)) return false;
  if (const WcStatus status = validate(entry.wqe); status != WcStatus::kSuccess) {
    error_ = status;
    return false;
  }
  out.clear_payload();
  const uint32_t count = packet_count(entry.wqe.length, qp_.attr.path_mtu);
  if (!builder_.message(entry, packet_, count, psn_, false, out)) {
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

// What each transport can do: wire.md "Opcode".
WcStatus UnreliableSender::validate(const SendWqe& wqe) const {
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

void UnreliableSender::on_taken(uint32_t index) {
  // After a flush they are gone already.
  while (qp_.sq.tail() != cursor_ && static_cast<int32_t>(index - qp_.sq.tail()) >= 0) {
    complete_oldest(qp_, WcStatus::kSuccess);
  }
}

// Packets are reported in order, so those of earlier WQEs are done; later ones that are on their way stay there.
void UnreliableSender::on_unreadable(uint32_t index) {
  if (index != qp_.sq.tail() || static_cast<int32_t>(cursor_ - index) < 0) return;
  error_ = WcStatus::kLocalProtectionError;
  cursor_ = index;
}

void UnreliableSender::flush() {
  while (qp_.sq.tail() != qp_.sq.head()) {
    if (qp_.sq.tail() == qp_.sq.fetched()) qp_.sq.fetch();
    const bool failed_one = error_ && qp_.sq.tail() == cursor_;
    complete_oldest(qp_, failed_one ? *error_ : WcStatus::kFlushError);
  }
  cursor_ = qp_.sq.tail();
  packet_ = 0;
  error_.reset();
}

}  // namespace uroce::transport
