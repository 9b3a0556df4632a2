// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/responder.h"

#include <algorithm>
#include <array>
#include <endian.h>
#include <fmt/format.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

int target_access(const PlanOptions& options) {
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
         (options.mixes(Kind::kSendInv) ? IBV_ACCESS_MW_BIND : 0);
}

}  // namespace

Responder::Responder(Plan plan, const Device& device, ibv_pd* pd, QueuePair& qp, bool starve)
    : plan_(std::move(plan)),
      qp_(qp),
      target_(pd, plan_.options().slots(), slot_size(plan_.options().max_size), plan_.payload_key(~2ull),
              target_access(plan_.options())),
      random_(plan_.payload_key(~3ull)),
      max_pieces_(plan_.options().mixes(Variation::kMultiSge)
                      ? static_cast<size_t>(std::clamp<int>(device.attributes().max_sge, 1, kMaxPieces))
                      : 1),
      starve_(starve),
      is_rxe_(provider_of(device.context()) == Provider::kRxe),
      slots_(plan_.options().slots()) {
  if (!plan_.options().mixes(Kind::kSendInv)) return;
  windows_.resize(slots_.size());
  for (Window& window : windows_) {
    window.mw.reset(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
    if (!window.mw) fail_verbs("ibv_alloc_mw of type 2", errno);
    window.rkey = window.mw->rkey;
  }
}

void Responder::fail(uint64_t number, const std::string& what) {
  throw Failure(ExitCode::kMismatch, plan_.describe(number) + ", at the responder: " + what);
}

std::vector<uint32_t> Responder::window_rkeys() const {
  std::vector<uint32_t> rkeys;
  for (const Window& window : windows_) rkeys.push_back(window.mw->rkey);
  return rkeys;
}

uint64_t Responder::prepare() {
  const uint64_t before = prepared_;
  for (const uint64_t end = std::min(plan_.messages(), recycled_ + slots_.size()); prepared_ < end; ++prepared_) {
    prepare_slot(plan_.at(prepared_));
  }
  post_receives();
  return prepared_ - before;
}

void Responder::prepare_slot(const Message& message) {
  Slot& place = slot(message.number);
  place = {};
  if (!is_send(message.kind) && !is_atomic(message.kind) && message.size > 0) {
    place.pieces = {{message.remote_offset, message.size}};
  }
  if (message.kind == Kind::kRead) {
    target_.memory.fill_payload(message.number, place.pieces, plan_.payload_key(message.number));
    place.hash = target_.memory.hash(message.number, place.pieces);
  }
  if (message.kind == Kind::kSendInv) bind_window(message.number);
  if (consumes_receive(message.kind)) unreceived_.push_back(message.number);
}

void Responder::bind_window(uint64_t number) {
  Window& bound = window(number);
  bound.rkey = ibv_inc_rkey(bound.rkey);
  ibv_send_wr wr{};
  wr.wr_id = WorkId{Role::kBind, plan_.qp(), number}.encode();
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = bound.mw.get();
  wr.bind_mw.rkey = bound.rkey;
  wr.bind_mw.bind_info = {target_.mr.get(), reinterpret_cast<uintptr_t>(target_.memory.slot(number)),
                          target_.memory.slot_size(), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  binding_.push_back(number);
  qp_.post_send(&wr);
  bound.mw->rkey = bound.rkey;  // mlx5 does that itself; rxe goes by it at the next bind
}

void Responder::bound(uint64_t number, const ibv_wc& wc) {
  if (binding_.empty() || binding_.front() != number) fail(number, "its window bind completed out of order");
  if (wc.opcode != IBV_WC_BIND_MW)
    fail(number, fmt::format("its window bind completed with opcode {}", static_cast<int>(wc.opcode)));
  binding_.pop_front();
  ++completions_;
}

void Responder::post_receives() {
  while (!unreceived_.empty()) {
    const size_t limit = starve_ ? 1 - std::min<size_t>(1, qp_.receives_outstanding()) : 1 + random_.below(kMaxChain);
    const size_t count = std::min(limit, unreceived_.size());
    if (count == 0) return;
    std::array<Receive, kMaxChain> receives;
    for (size_t i = 0; i < count; ++i) {
      build_receive(unreceived_.front(), receives[i]);
      unreceived_.pop_front();
      receives[i].wr.next = i + 1 < count ? &receives[i + 1].wr : nullptr;
    }
    qp_.post_receive(&receives[0].wr);
  }
}

// Half of the receives have more room than the message needs; the excess must stay as it is. A WRITE with immediate
// takes a receive but none of its memory, here a decoy at the end of the slot.
void Responder::build_receive(uint64_t number, Receive& receive) {
  const Message& message = plan_.at(number);
  Pieces room;
  if (message.kind == Kind::kWriteImm) {
    room = {{target_.memory.slot_size() - kReceiveSlack, kReceiveSlack}};
  } else {
    const size_t slack = random_.below(2) == 0 ? 0 : random_.below(kReceiveSlack + 1);
    room = lay_out(random_, message.size + slack, max_pieces_);
    slot(number).pieces = head(room, message.size);
  }
  for (size_t i = 0; i < room.size(); ++i) {
    const auto address = reinterpret_cast<uintptr_t>(target_.memory.slot(number) + room[i].offset);
    receive.sges[i] = {address, static_cast<uint32_t>(room[i].length), target_.mr->lkey};
  }
  receive.wr.wr_id = WorkId{Role::kReceive, plan_.qp(), number}.encode();
  receive.wr.sg_list = room.empty() ? nullptr : receive.sges.data();
  receive.wr.num_sge = static_cast<int>(room.size());
}

void Responder::received(uint64_t number, const ibv_wc& wc) {
  ++completions_;
  check_completion(plan_.at(number), wc);
  // WRITEs posted earlier on this QP are in memory by now (IBTA volume 1, 9.5 Transaction Ordering).
  while (arrived_ <= number) verify_arrival(arrived_++);
  recycle();
}

void Responder::check_completion(const Message& message, const ibv_wc& wc) {
  const ibv_wc_opcode opcode = message.kind == Kind::kWriteImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (wc.opcode != opcode) {
    fail(message.number,
         fmt::format("receive opcode is {}, not {}", static_cast<int>(wc.opcode), static_cast<int>(opcode)));
  }
  if (wc.byte_len != message.size) fail(message.number, fmt::format("byte_len is {}", wc.byte_len));
  // rxe does not say what was invalidated; that it was shows when the window is bound again.
  if (is_rxe_ && message.kind == Kind::kSendInv) return;
  const unsigned flags = wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV);
  const unsigned expected = has_immediate(message.kind)      ? unsigned{IBV_WC_WITH_IMM}
                            : message.kind == Kind::kSendInv ? unsigned{IBV_WC_WITH_INV}
                                                             : 0u;
  if (flags != expected) fail(message.number, fmt::format("wc_flags are {:#x}, not {:#x}", flags, expected));
  if (has_immediate(message.kind) && be32toh(wc.imm_data) != message.immediate) {
    fail(message.number, fmt::format("immediate is {:#x}, not {:#x}", be32toh(wc.imm_data), message.immediate));
  }
  if (message.kind == Kind::kSendInv && wc.invalidated_rkey != window(message.number).rkey) {
    fail(message.number,
         fmt::format("invalidated rkey is {:#x}, not {:#x}", wc.invalidated_rkey, window(message.number).rkey));
  }
}

void Responder::check_contents(uint64_t number, const char* what) {
  const Pieces& pieces = slot(number).pieces;
  const auto offset = target_.memory.payload_difference(number, pieces, plan_.payload_key(number));
  if (offset) fail(number, fmt::format("{} differs, first at offset {}", what, *offset));
  if (const auto guard = target_.memory.guard_difference(number, pieces)) {
    fail(number, fmt::format("guard byte damaged at offset {} of its slot, the first piece begins at {}", *guard,
                             pieces.empty() ? 0 : pieces[0].offset));
  }
}

void Responder::verify_arrival(uint64_t number) {
  const Message& message = plan_.at(number);
  if (!is_send(message.kind) && !is_write(message.kind)) return;
  check_contents(number, "what arrived");
  slot(number).hash = target_.memory.hash(number, slot(number).pieces);
  target_.memory.restore_guard(number, slot(number).pieces);
}

void Responder::peer_completed(std::span<const uint64_t> hashes) {
  peer_hashes_.insert(peer_hashes_.end(), hashes.begin(), hashes.end());
  if (recycled_ + peer_hashes_.size() > prepared_) {
    throw Failure(ExitCode::kMismatch,
                  fmt::format("the requester of qp {} reports more messages than it may post", plan_.qp()));
  }
  recycle();
}

void Responder::recycle() {
  for (; !peer_hashes_.empty(); ++recycled_) {
    const uint64_t number = recycled_;
    const Message& message = plan_.at(number);
    if (arrived_ <= number) {
      // The requester may hear of the message before its receive completion is polled here.
      if (consumes_receive(message.kind)) return;
      verify_arrival(arrived_++);
    }
    Slot& place = slot(number);
    if (message.kind == Kind::kRead) {
      check_contents(number, "the source after it was read");
      target_.memory.restore_guard(number, place.pieces);
    } else if (const auto offset = target_.memory.stale_write(number, place.pieces)) {
      fail(number, fmt::format("written to again after it had arrived, at offset {} of its slot", *offset));
    }
    if (place.hash != peer_hashes_.front()) {
      fail(number, fmt::format("hash is {:#018x}, at the requester {:#018x}", place.hash, peer_hashes_.front()));
    }
    peer_hashes_.pop_front();
    if (message.kind == Kind::kFetchAdd) added_ += message.compare_add;
    bytes_ += message.size;
    digest_ = mix(digest_ ^ place.hash);
  }
}

void Responder::check_memory() const {
  if (const auto offset = target_.memory.any_difference()) {
    throw Failure(
        ExitCode::kMismatch,
        fmt::format("the responder's memory of qp {} was written to after its messages were over: message slot {}, "
                    "offset {}",
                    plan_.qp(), *offset / target_.memory.slot_size(), *offset % target_.memory.slot_size()));
  }
}

std::string Responder::state() {
  std::string text = fmt::format("responder: {} of {} messages arrived, {} over on both sides, {} allowed", arrived_,
                                 plan_.messages(), recycled_, allowed());
  if (recycled_ < plan_.messages()) {
    text += fmt::format("; {} receives posted, {} held back, {} binds outstanding, {} reports of the requester pending",
                        qp_.receives_outstanding(), unreceived_.size(), binding_.size(), peer_hashes_.size());
    if (recycled_ < prepared_) text += "; waits for " + plan_.describe(recycled_);
  }
  return text;
}

}  // namespace uroce::transfer
