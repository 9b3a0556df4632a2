// SPDX-License-Identifier: BSD-2-Clause
// Every completion is the next one of its queue, and says what happened.
#include <cstring>

#include "tests/stress/link.h"
#include "tests/stress/pattern.h"

namespace uroce::stress {
namespace {

constexpr uint32_t kGrh = 40;

}  // namespace

void Link::fail(const Completion& completion, const char* what) {
  give_up("%s: QP %u (kind %d), wr_id %#lx, status %s, opcode %d, length %u, immediate %#x, flags %#x; %zu requests",
          what, completion.qpn, static_cast<int>(kind_), static_cast<unsigned long>(completion.wr_id),
          ibv_wc_status_str(completion.status), static_cast<int>(completion.opcode), completion.length,
          completion.immediate, completion.flags, requests_.size());
}

void Link::on_completion(const Completion& completion) {
  if (completion.wr_id & kSharedMark) return on_receive(completion);
  if (completion.wr_id >> 32 != generation_) fail(completion, "completion of an earlier QP");
  switch (completion.wr_id & 15) {
    case 1:
      return on_send(completion);
    case 2:
      return on_receive(completion);
    case 3:
      return on_bind(completion);
    default:
      fail(completion, "unknown wr_id");
  }
}

void Link::on_bind(const Completion& completion) {
  if (!window_pending_ || completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_BIND_MW) {
    fail(completion, "bind");
  }
  window_pending_ = false;
  window_bound_ = true;
}

// Those before it that were not to be signaled are done with it.
void Link::on_send(const Completion& completion) {
  if (completion.qpn != a_->qp_num) fail(completion, "send completion of the responder");
  const bool success = completion.status == IBV_WC_SUCCESS;
  while (!requests_.empty() && requests_.front().wr_id != completion.wr_id) {
    if (requests_.front().signaled) fail(completion, "a send completion before it is missing");
    retire(requests_.front());
    requests_.pop_front();
  }
  if (requests_.empty()) fail(completion, "send completion out of order, or twice");
  const Request request = requests_.front();
  requests_.pop_front();
  if (success) {
    if (request.op == Op::kPoison) fail(completion, "a request without rights succeeded");
    if (!request.signaled) fail(completion, "completion of a request that is not signaled");
    return retire(request);
  }
  ++group_.totals().flushed;
  if (failing_) return;
  if (request.op != Op::kPoison || completion.status != IBV_WC_REM_ACCESS_ERR) {
    std::fprintf(stderr, "R_Key %#x, region %#x, window %#x\n", request.rkey, mr_->rkey,
                 window_ == nullptr ? 0 : window_->rkey);
    fail(completion, "send failed");
  }
  ++group_.totals().refused;
  failing_ = true;
}

// What the request has done is there.
void Link::retire(const Request& request) {
  Totals& totals = group_.totals();
  const uint32_t length = request.length;
  switch (request.op) {
    case Op::kRead:
      if (check_pattern(source(request.slot), length, request.tag) != length) give_up("READ got wrong data");
      ++totals.reads;
      break;
    case Op::kWrite:
      if (!reliable()) break;
      if (const uint32_t at = check_pattern(target(request.slot), length, request.tag); at != length) {
        give_up("WRITE of %u bytes: byte %u is wrong", length, at);
      }
      ++totals.writes;
      break;
    case Op::kFetchAdd:
    case Op::kCompareSwap:
      if (std::memcmp(source(request.slot), &request.before, 8) != 0) give_up("atomic operation got a wrong value");
      ++totals.atomics;
      break;
    default:
      ++totals.sends;
  }
  if (request.rkey != mr_->rkey) ++totals.windows;
}

void Link::on_receive(const Completion& completion) {
  if (completion.qpn != b_->qp_num) fail(completion, "receive completion of the requester");
  if (completion.wr_id & kSharedMark) {
    const bool xrc = completion.wr_id & kXrcMark;
    if (!shared() || xrc != (kind_ == Kind::kXrc)) fail(completion, "receive of a shared queue that is not ours");
    // The request that a message under way has taken ends with the QP, and no other one of the queue.
    const bool flushed = completion.status == IBV_WC_WR_FLUSH_ERR && (failing_ || poisoned_);
    if (flushed) {
      ++group_.totals().flushed;
      return group_.post_shared_receive(completion.wr_id);
    }
    if (completion.status != IBV_WC_SUCCESS) fail(completion, "receive of a shared queue failed");
    ++(xrc ? group_.totals().xrc : group_.totals().shared);
    match_receive(completion, group_.shared_slot(completion.wr_id));
    group_.post_shared_receive(completion.wr_id);
    return;
  }
  const uint64_t expected = generation_ << 32 | (uint64_t{receives_done_} & 0xffffff) << 4 | 2;
  if (completion.wr_id != expected) fail(completion, "receive out of order, or twice");
  const uint32_t slot = receives_done_++ % kSlots;
  if (completion.status == IBV_WC_SUCCESS) return match_receive(completion, receive_slot(slot));
  const bool expected_flush = failing_ || poisoned_;
  if (!expected_flush || completion.status != IBV_WC_WR_FLUSH_ERR) fail(completion, "receive failed");
  ++group_.totals().flushed;
}

void Link::match_receive(const Completion& completion, const uint8_t* data) {
  ++group_.totals().receives;
  if (reliable()) {
    match_reliable(completion, data);
  } else {
    match_unreliable(completion, data);
  }
}

void Link::match_reliable(const Completion& completion, const uint8_t* data) {
  if (receives_.empty()) fail(completion, "a message too many");
  const Receive expected = receives_.front();
  receives_.pop_front();
  const bool by_write = expected.op == Op::kWriteImm;
  if (completion.opcode != (by_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV)) fail(completion, "another operation");
  if (completion.length != expected.length) fail(completion, "wrong length");
  uint32_t flags = 0;
  if (expected.op == Op::kSendInv) flags = IBV_WC_WITH_INV;
  if (expected.op == Op::kSendImm || by_write) flags = IBV_WC_WITH_IMM;
  if ((completion.flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM)) != flags) fail(completion, "wrong flags");
  if (flags != 0 && completion.immediate != expected.immediate) fail(completion, "wrong immediate");
  if (expected.op == Op::kSendInv) window_bound_ = false;
  const uint8_t* const where = by_write ? target(expected.slot) : data;
  if (check_pattern(where, expected.length, expected.tag) != expected.length) fail(completion, "wrong payload");
}

// Any of them may be lost; none comes twice or late.
void Link::match_unreliable(const Completion& completion, const uint8_t* data) {
  const bool datagram = kind_ == Kind::kUd;
  const bool by_write = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  const uint32_t slot = completion.immediate % kSlots;
  const uint8_t* const where = by_write ? target(slot) : data + (datagram ? kGrh : 0);
  const uint32_t length = completion.length - (datagram ? kGrh : 0);
  if (datagram != ((completion.flags & IBV_WC_GRH) != 0)) fail(completion, "GRH flag");
  uint64_t tag;
  std::memcpy(&tag, where, sizeof(tag));
  if (tag >> 32 != generation_ || tag <= last_tag_received_ || tag > next_tag_)
    fail(completion, "not a message of ours");
  last_tag_received_ = tag;
  if (check_pattern(where, length, tag) != length) fail(completion, "wrong payload");
  if ((completion.flags & IBV_WC_WITH_IMM) && completion.immediate != static_cast<uint32_t>(tag * 16 + slot)) {
    fail(completion, "wrong immediate");
  }
  if (by_write) busy_write_slots_ &= ~(1u << slot);
  ++(datagram ? group_.totals().datagrams : group_.totals().unreliable);
}

}  // namespace uroce::stress
