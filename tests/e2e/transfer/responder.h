// SPDX-License-Identifier: BSD-2-Clause
// The passive side of one QP in one direction: receive buffers, targets of WRITE and READ, memory windows.
//
// A message has arrived when its receive completion says so, which also vouches for every earlier WRITE of the QP, or
// when the requester says over the control connection that it has completed. It is verified then and its memory turned
// back into guard bytes; its slot is used again once the requester has completed it. Driven by session.cc.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/transfer/endpoint.h"
#include "tests/e2e/transfer/plan.h"
#include "tests/e2e/transfer/verify.h"

namespace uroce::transfer {

class Responder {
 public:
  // `starve`: keeps a single receive posted, so that the requester meets RNR NAKs.
  Responder(Plan plan, const Device& device, ibv_pd* pd, QueuePair& qp, bool starve);

  uint64_t target_address() const { return reinterpret_cast<uintptr_t>(target_.memory.slot(0)); }
  uint32_t target_rkey() const { return target_.mr->rkey; }
  // send_inv: the key of each slot's window before its first bind.
  std::vector<uint32_t> window_rkeys() const;

  // Prepares slots that have become free: fills what will be read, binds windows, posts receives. Returns how many.
  uint64_t prepare();
  // The requester may post messages below this number.
  uint64_t allowed() const { return binding_.empty() ? prepared_ : binding_.front(); }
  // A receive is over.
  void received(uint64_t number, const ibv_wc& wc);
  // Windows of type 2 belong to the QP that they were bound through, and have to go before it (rxe waits for them).
  void release_windows() { windows_.clear(); }

  // A window bind for this message is over.
  void bound(uint64_t number, const ibv_wc& wc);
  // The requester has completed that many more messages, whose bytes had these hashes at its side.
  void peer_completed(std::span<const uint64_t> hashes);

  bool done() const { return recycled_ == plan_.messages(); }
  // All memory must be guard bytes again.
  void check_memory() const;
  // When done: what the compare-and-swap word must be, and what fetch-and-adds must have added.
  uint64_t final_swap_word() const { return plan_.swap_word(); }
  uint64_t added() const { return added_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t digest() const { return digest_; }
  uint64_t completions() const { return completions_; }
  std::string state();

 private:
  static constexpr size_t kMaxChain = 8;  // WRs per ibv_post_recv
  struct Slot {
    Pieces pieces;  // of the message, within what was posted or is written to
    uint64_t hash = 0;
  };
  struct Window {
    Verbs<ibv_mw> mw;
    uint32_t rkey = 0;  // of the latest bind
  };
  struct Receive {
    ibv_recv_wr wr{};
    std::array<ibv_sge, kMaxPieces> sges{};
  };

  Slot& slot(uint64_t number) { return slots_[number % slots_.size()]; }
  Window& window(uint64_t number) { return windows_[number % windows_.size()]; }
  void prepare_slot(const Message& message);
  void bind_window(uint64_t number);
  void post_receives();
  void build_receive(uint64_t number, Receive& receive);
  void check_completion(const Message& message, const ibv_wc& wc);
  void verify_arrival(uint64_t number);
  void recycle();
  void check_contents(uint64_t number, const char* what);
  [[noreturn]] void fail(uint64_t number, const std::string& what);

  Plan plan_;
  QueuePair& qp_;
  RegisteredMemory target_;
  Random random_;
  const size_t max_pieces_;
  const bool starve_;
  const bool is_rxe_;
  std::vector<Slot> slots_;
  std::vector<Window> windows_;
  std::deque<uint64_t> binding_;      // messages whose window bind has not completed
  std::deque<uint64_t> unreceived_;   // messages whose receive has not been posted
  std::deque<uint64_t> peer_hashes_;  // of the messages from recycled_ on
  uint64_t prepared_ = 0;
  uint64_t arrived_ = 0;   // all messages below are here, READs and atomics apart
  uint64_t recycled_ = 0;  // all messages below are over on both sides
  uint64_t completions_ = 0;
  uint64_t added_ = 0;
  uint64_t bytes_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace uroce::transfer
