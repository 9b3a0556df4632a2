// SPDX-License-Identifier: BSD-2-Clause
// What a link's rounds consist of.
#include <cstring>

#include "tests/stress/link.h"
#include "tests/stress/pattern.h"

namespace uroce::stress {
namespace {

constexpr uint32_t kInline = 128;
constexpr uint32_t kDatagram = 1024;
constexpr uint32_t kQkey = 0x11111111;

bool delivers(uint8_t op) {
  return op <= 2 || op == 4;  // SENDs, WRITE with immediate
}

}  // namespace

void Link::start_round() {
  group_.activity().at("start a round");
  const uint32_t count = 1 + random_.below(kSlots);
  const bool poison = kind_ == Kind::kRc && random_.one_in(60);
  const uint32_t poisoned_at = poison ? random_.below(count) : count;
  std::vector<Request> requests;
  uint32_t messages = 0;
  for (uint32_t slot = 0; slot < count; ++slot) {
    Request request = draw_request(slot, slot + 1 == count);
    if (slot == poisoned_at) {
      request = {request.wr_id, Op::kPoison, true, slot, 8, mr_->rkey ^ 0x5a5a5a00, request.tag, 0, 0, 0, false};
    }
    prepare_memory(request);
    const bool arrives = delivers(static_cast<uint8_t>(request.op)) && slot < poisoned_at;
    if (arrives) ++messages;
    if (arrives && reliable()) expect_receive(request);
    requests.push_back(request);
  }
  poisoned_ = poison;
  const bool late = kind_ == Kind::kRc && random_.one_in(8);  // "receiver not ready"
  if (!shared() && !late) post_receives(messages);
  requests_.insert(requests_.end(), requests.begin(), requests.end());
  post(requests);
  if (late) post_receives(messages);
}

Link::Request Link::draw_request(uint32_t slot, bool last) {
  constexpr Op kReliable[] = {Op::kSend, Op::kSendImm,  Op::kWrite,      Op::kWriteImm,
                              Op::kRead, Op::kFetchAdd, Op::kCompareSwap};
  constexpr Op kUnreliable[] = {Op::kSend, Op::kSendImm, Op::kWrite, Op::kWriteImm};
  constexpr Op kDatagrams[] = {Op::kSend, Op::kSendImm};
  Request request{};
  request.tag = ++next_tag_;
  request.wr_id = generation_ << 32 | (next_tag_ & 0xffffff) << 4 | 1;
  request.slot = slot;
  request.op = reliable()           ? random_.of(kReliable)
               : kind_ == Kind::kUc ? random_.of(kUnreliable)
                                    : random_.of(kDatagrams);
  request.rkey = window_bound_ && random_.one_in(2) ? window_->rkey : mr_->rkey;
  // The target of an unreliable WRITE with immediate is read when that arrives: nothing else goes there.
  if (kind_ == Kind::kUc && request.op == Op::kWriteImm) {
    if (slot < kSlots / 2 || (busy_write_slots_ >> slot & 1))
      request.op = Op::kWrite;
    else
      busy_write_slots_ |= 1u << slot;
  }
  if (kind_ == Kind::kUc && request.op == Op::kWrite && slot >= kSlots / 2) request.op = Op::kSend;
  if (window_bound_ && last && random_.one_in(2)) {
    request.op = Op::kSendInv;
    request.rkey = window_->rkey;
  }
  const uint32_t least = reliable() ? 0 : 8;
  const uint32_t most = kind_ == Kind::kUd ? kDatagram : kSlot;
  request.length = least + random_.below((random_.one_in(2) ? kInline : most) - least + 1);
  request.signaled = last || random_.one_in(2);
  const bool goes_out = request.op != Op::kRead && request.op != Op::kFetchAdd && request.op != Op::kCompareSwap;
  request.by_inline = goes_out && request.length <= kInline && random_.one_in(2);
  if (request.op == Op::kFetchAdd || request.op == Op::kCompareSwap) draw_atomic(request);
  return request;
}

void Link::draw_atomic(Request& request) {
  request.length = 8;
  request.before = cell_value_;
  request.operand = request.op == Op::kFetchAdd || random_.one_in(2) ? random_.next() : cell_value_;
  request.swap = random_.next();
  if (request.op == Op::kFetchAdd) {
    cell_value_ += request.operand;
  } else if (request.operand == cell_value_) {
    cell_value_ = request.swap;
  }
}

void Link::prepare_memory(const Request& request) {
  switch (request.op) {
    case Op::kRead:
      fill_pattern(target(request.slot), request.length, request.tag);
      std::memset(source(request.slot), 0xee, request.length);
      break;
    case Op::kFetchAdd:
    case Op::kCompareSwap:
    case Op::kPoison:
      std::memset(source(request.slot), 0xee, 8);
      break;
    default:
      fill_pattern(source(request.slot), request.length, request.tag);
  }
}

void Link::expect_receive(const Request& request) {
  receives_.push_back({request.op, request.tag, request.slot, request.length,
                       request.op == Op::kSendInv ? request.rkey : immediate(request)});
}

void Link::post_receives(uint32_t count) {
  for (; count != 0 && receives_posted_ - receives_done_ < kSlots; --count) {
    const uint32_t slot = receives_posted_ % kSlots;
    ibv_sge list[2] = {{reinterpret_cast<uintptr_t>(receive_slot(slot)), 64, mr_->lkey},
                       {reinterpret_cast<uintptr_t>(receive_slot(slot)) + 64, kSlot - 64, mr_->lkey}};
    ibv_recv_wr wr{generation_ << 32 | (uint64_t{receives_posted_} & 0xffffff) << 4 | 2, nullptr, list, 2};
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(b_, &wr, &bad);
    if (error != 0) give_up("ibv_post_recv: %s", std::strerror(error));
    ++receives_posted_;
  }
}

ibv_sge Link::sge(const Request& request) {
  return {reinterpret_cast<uintptr_t>(source(request.slot)), request.length, mr_->lkey};
}

uint64_t Link::remote_address(const Request& request) {
  const bool atomic = request.op == Op::kFetchAdd || request.op == Op::kCompareSwap;
  return reinterpret_cast<uintptr_t>(atomic ? static_cast<void*>(cell()) : target(request.slot));
}

void Link::post(const std::vector<Request>& requests) {
  if (extended_ != nullptr) {
    post_extended(requests);
  } else {
    post_plain(requests);
  }
  // The application wrote it; the engine has a copy.
  for (const Request& request : requests) {
    if (request.by_inline) std::memset(source(request.slot), 0xdd, request.length);
  }
}

void Link::post_plain(const std::vector<Request>& requests) {
  constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                        IBV_WR_SEND_WITH_IMM,
                                        IBV_WR_SEND_WITH_INV,
                                        IBV_WR_RDMA_WRITE,
                                        IBV_WR_RDMA_WRITE_WITH_IMM,
                                        IBV_WR_RDMA_READ,
                                        IBV_WR_ATOMIC_FETCH_AND_ADD,
                                        IBV_WR_ATOMIC_CMP_AND_SWP,
                                        IBV_WR_RDMA_WRITE};
  std::vector<ibv_send_wr> wrs(requests.size());
  std::vector<ibv_sge> sges(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    ibv_send_wr& wr = wrs[i];
    sges[i] = sge(request);
    wr.wr_id = request.wr_id;
    wr.next = i + 1 < requests.size() ? &wrs[i + 1] : nullptr;
    wr.sg_list = &sges[i];
    wr.num_sge = 1;
    wr.opcode = kOpcodes[static_cast<size_t>(request.op)];
    if (request.signaled) wr.send_flags |= IBV_SEND_SIGNALED;
    if (request.by_inline) wr.send_flags |= IBV_SEND_INLINE;
    // A READ through the window may have to be asked for again: it is to be complete before the window goes.
    if (request.op == Op::kSendInv) wr.send_flags |= IBV_SEND_FENCE;
    if (request.op == Op::kSendInv) {
      wr.invalidate_rkey = request.rkey;
    } else {
      wr.imm_data = immediate(request);
    }
    if (kind_ == Kind::kUd) {
      wr.wr.ud = {ah_, b_->qp_num, kQkey};
    } else if (request.op == Op::kFetchAdd || request.op == Op::kCompareSwap) {
      wr.wr.atomic = {remote_address(request), request.operand, request.swap, request.rkey};
    } else {
      wr.wr.rdma = {remote_address(request), request.rkey};
    }
    if (kind_ == Kind::kXrc) ibv_get_srq_num(group_.xrc_srq(), &wr.qp_type.xrc.remote_srqn);
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(a_, wrs.data(), &bad);
  if (error != 0) give_up("ibv_post_send: %s", std::strerror(error));
}

void Link::post_extended(const std::vector<Request>& requests) {
  ibv_wr_start(extended_);
  for (const Request& request : requests) {
    extended_->wr_id = request.wr_id;
    extended_->wr_flags = request.signaled ? IBV_SEND_SIGNALED : 0;
    if (request.op == Op::kSendInv) extended_->wr_flags |= IBV_SEND_FENCE;
    const uint64_t remote = remote_address(request);
    switch (request.op) {
      case Op::kSend:
        ibv_wr_send(extended_);
        break;
      case Op::kSendImm:
        ibv_wr_send_imm(extended_, immediate(request));
        break;
      case Op::kSendInv:
        ibv_wr_send_inv(extended_, request.rkey);
        break;
      case Op::kWrite:
      case Op::kPoison:
        ibv_wr_rdma_write(extended_, request.rkey, remote);
        break;
      case Op::kWriteImm:
        ibv_wr_rdma_write_imm(extended_, request.rkey, remote, immediate(request));
        break;
      case Op::kRead:
        ibv_wr_rdma_read(extended_, request.rkey, remote);
        break;
      case Op::kFetchAdd:
        ibv_wr_atomic_fetch_add(extended_, request.rkey, remote, request.operand);
        break;
      case Op::kCompareSwap:
        ibv_wr_atomic_cmp_swp(extended_, request.rkey, remote, request.operand, request.swap);
        break;
    }
    if (kind_ == Kind::kUd) ibv_wr_set_ud_addr(extended_, ah_, b_->qp_num, kQkey);
    if (kind_ == Kind::kXrc) {
      uint32_t number = 0;
      ibv_get_srq_num(group_.xrc_srq(), &number);
      ibv_wr_set_xrc_srqn(extended_, number);
    }
    if (request.by_inline) {
      ibv_wr_set_inline_data(extended_, source(request.slot), request.length);
    } else {
      ibv_wr_set_sge(extended_, mr_->lkey, reinterpret_cast<uintptr_t>(source(request.slot)), request.length);
    }
  }
  const int error = ibv_wr_complete(extended_);
  if (error != 0) give_up("ibv_wr_complete: %s", std::strerror(error));
}

}  // namespace uroce::stress
