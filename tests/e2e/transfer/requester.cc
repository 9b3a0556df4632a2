// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/requester.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <endian.h>
#include <fmt/format.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

// Zero-length WRITE and READ name no memory: neither address nor rkey may be looked at (wire.md
// "Lengths").
constexpr uint32_t kBogusRkey = 0xDEADBEEF;
// An inline WR has no memory region either.
constexpr uint32_t kBogusLkey = 0xDEADBEEF;

struct Verb {
  ibv_wr_opcode request;
  ibv_wc_opcode completion;
};

Verb verb(Kind kind) {
  switch (kind) {
    case Kind::kSend:
      return {IBV_WR_SEND, IBV_WC_SEND};
    case Kind::kSendImm:
      return {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND};
    case Kind::kSendInv:
      return {IBV_WR_SEND_WITH_INV, IBV_WC_SEND};
    case Kind::kWrite:
      return {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE};
    case Kind::kWriteImm:
      return {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE};
    case Kind::kRead:
      return {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ};
    case Kind::kCompareSwap:
      return {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP};
    case Kind::kFetchAdd:
      return {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD};
  }
  __builtin_unreachable();
}

size_t pieces_allowed(const PlanOptions& options, int device_limit) {
  if (!options.mixes(Variation::kMultiSge)) return 1;
  return static_cast<size_t>(std::clamp<int>(device_limit, 1, kMaxPieces));
}

}  // namespace

Requester::Requester(Plan plan, const Device& device, ibv_pd* pd, QueuePair& qp)
    : plan_(std::move(plan)),
      qp_(qp),
      local_(pd, plan_.options().slots(), slot_size(plan_.options().max_size), plan_.payload_key(~0ull),
             IBV_ACCESS_LOCAL_WRITE),
      random_(plan_.payload_key(~1ull)),
      max_pieces_(pieces_allowed(plan_.options(), device.attributes().max_sge)),
      is_rxe_(provider_of(device.context()) == Provider::kRxe),
      max_read_pieces_(pieces_allowed(plan_.options(), device.attributes().max_sge_rd)),
      slots_(plan_.options().slots()) {}

void Requester::fail(uint64_t number, const std::string& what) {
  throw Failure(ExitCode::kMismatch, plan_.describe(number) + ", at the requester: " + what);
}

void Requester::allow(uint64_t number) {
  if (number < allowed_ || number > plan_.messages() || number > completed_ + slots_.size()) {
    throw Failure(ExitCode::kMismatch,
                  fmt::format("the responder of qp {} allows message {}, which cannot be", plan_.qp(), number));
  }
  allowed_ = number;
}

uint64_t Requester::post() {
  const uint64_t before = posted_;
  for (;;) {
    const uint64_t limit = std::min(allowed_, completed_ + plan_.options().queue_depth);
    if (posted_ >= limit) return posted_ - before;
    post_chain(std::min<uint64_t>(1 + random_.below(kMaxChain), limit - posted_));
  }
}

void Requester::post_chain(size_t count) {
  std::array<Request, kMaxChain> requests;
  const uint64_t first = posted_;
  for (size_t i = 0; i < count; ++i) {
    build(plan_.at(first + i), requests[i]);
    requests[i].wr.next = i + 1 < count ? &requests[i + 1].wr : nullptr;
  }
  posted_ += count;
  qp_.post_send(&requests[0].wr);
  for (uint64_t number = first; number < posted_; ++number) {
    if (!plan_.at(number).inlined) continue;
    // The payload of an inline request has been taken: its memory belongs to the application again.
    local_.memory.restore_guard(number, slot(number).pieces);
    slot(number).pieces.clear();
  }
}

void Requester::build(const Message& message, Request& request) {
  Pieces& pieces = slot(message.number).pieces;
  const bool from_here = is_send(message.kind) || is_write(message.kind);
  const size_t max_pieces = is_atomic(message.kind) ? 1 : from_here ? max_pieces_ : max_read_pieces_;
  pieces = lay_out(random_, message.size, max_pieces);
  if (from_here) {
    local_.memory.fill_payload(message.number, pieces, plan_.payload_key(message.number));
    slot(message.number).hash = local_.memory.hash(message.number, pieces);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto address = reinterpret_cast<uintptr_t>(local_.memory.slot(message.number) + pieces[i].offset);
    request.sges[i] = {address, static_cast<uint32_t>(pieces[i].length),
                       message.inlined ? kBogusLkey : local_.mr->lkey};
  }
  ibv_send_wr& wr = request.wr;
  wr.wr_id = WorkId{Role::kRequest, plan_.qp(), message.number}.encode();
  wr.sg_list = pieces.empty() ? nullptr : request.sges.data();
  wr.num_sge = static_cast<int>(pieces.size());
  wr.opcode = verb(message.kind).request;
  const auto flag = [](bool on, unsigned bit) { return on ? bit : 0u; };
  wr.send_flags = flag(message.signaled, IBV_SEND_SIGNALED) | flag(message.inlined, IBV_SEND_INLINE) |
                  flag(message.fenced, IBV_SEND_FENCE) | flag(message.solicited, IBV_SEND_SOLICITED);
  set_remote(message, wr);
}

void Requester::set_remote(const Message& message, ibv_send_wr& wr) {
  if (has_immediate(message.kind)) wr.imm_data = htobe32(message.immediate);
  if (message.kind == Kind::kSendInv) {
    // The responder binds the slot's window anew for every message, each time under the next key.
    uint32_t& rkey = target_.window_rkeys[message.number % slots_.size()];
    rkey = ibv_inc_rkey(rkey);
    wr.invalidate_rkey = rkey;
  } else if (is_atomic(message.kind)) {
    const bool add = message.kind == Kind::kFetchAdd;
    wr.wr.atomic.remote_addr = add ? target_.add_word : target_.swap_word;
    wr.wr.atomic.rkey = target_.atomic_rkey;
    wr.wr.atomic.compare_add = message.compare_add;
    wr.wr.atomic.swap = message.swap;
  } else if (!is_send(message.kind)) {
    wr.wr.rdma.rkey = message.size == 0 ? kBogusRkey : target_.rkey;
    wr.wr.rdma.remote_addr =
        target_.address + (message.number % slots_.size()) * local_.memory.slot_size() + message.remote_offset;
  }
}

void Requester::retire(uint64_t number, const ibv_wc* wc) {
  if (number != completed_) fail(number, fmt::format("completed although message {} is next", completed_));
  const Message& message = plan_.at(number);
  if (wc != nullptr) {
    ++completions_;
    check_completion(message, *wc);
  }
  Slot& place = slot(number);
  if (const auto offset = local_.memory.guard_difference(number, place.pieces)) {
    fail(number, fmt::format("guard byte damaged at offset {} of its slot", *offset));
  }
  check_result(message, place.pieces);
  local_.memory.restore_guard(number, place.pieces);
  ++completed_;
  bytes_ += message.size;
  const uint64_t hash = is_atomic(message.kind) ? 0 : place.hash;
  digest_ = mix(digest_ ^ hash);
  hashes_.push_back(hash);
}

void Requester::check_completion(const Message& message, const ibv_wc& wc) {
  if (wc.opcode != verb(message.kind).completion) {
    fail(message.number, fmt::format("completion opcode is {}, not {}", static_cast<int>(wc.opcode),
                                     static_cast<int>(verb(message.kind).completion)));
  }
  // byte_len is defined for what comes back only.
  const bool comes_back = message.kind == Kind::kRead || is_atomic(message.kind);
  if (comes_back && wc.byte_len != message.size) fail(message.number, fmt::format("byte_len is {}", wc.byte_len));
  // rxe says there what was sent.
  if (!is_rxe_ && (wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != 0) {
    fail(message.number, fmt::format("wc_flags are {:#x} on a send completion", wc.wc_flags));
  }
}

void Requester::check_result(const Message& message, const Pieces& pieces) {
  if (is_atomic(message.kind)) {
    uint64_t result;
    std::memcpy(&result, local_.memory.slot(message.number) + pieces[0].offset, sizeof result);
    if (message.kind == Kind::kFetchAdd) {
      fetched_adds_.push_back({result, message.compare_add});
    } else if (result != message.original) {
      fail(message.number, fmt::format("the word was {:#x}, expected {:#x}", result, message.original));
    }
    return;
  }
  const auto offset = local_.memory.payload_difference(message.number, pieces, plan_.payload_key(message.number));
  if (offset) {
    fail(message.number,
         fmt::format("{} differs, first at offset {}",
                     message.kind == Kind::kRead ? "what was read" : "the source after completion", *offset));
  }
  if (message.kind == Kind::kRead) slot(message.number).hash = local_.memory.hash(message.number, pieces);
}

void Requester::check_memory() const {
  if (const auto offset = local_.memory.any_difference()) {
    throw Failure(
        ExitCode::kMismatch,
        fmt::format("the requester's memory of qp {} was written to after its messages were over: message slot {}, "
                    "offset {}",
                    plan_.qp(), *offset / local_.memory.slot_size(), *offset % local_.memory.slot_size()));
  }
}

std::string Requester::state() {
  return fmt::format("requester: {} of {} messages posted, {} completed, {} allowed{}", posted_, plan_.messages(),
                     completed_, allowed_,
                     completed_ < posted_ ? "; waits for " + plan_.describe(completed_) : std::string());
}

}  // namespace uroce::transfer
