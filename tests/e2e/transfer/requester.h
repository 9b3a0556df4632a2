// SPDX-License-Identifier: BSD-2-Clause
// The posting side of one QP in one direction: turns the plan into work requests and judges their completions.
// Driven by session.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/transfer/endpoint.h"
#include "tests/e2e/transfer/plan.h"
#include "tests/e2e/transfer/verify.h"

namespace uroce::transfer {

// Where the responder's memory is.
struct RemoteTarget {
  uint64_t address = 0;  // of slot 0
  uint32_t rkey = 0;
  uint64_t swap_word = 0;
  uint64_t add_word = 0;
  uint32_t atomic_rkey = 0;
  std::vector<uint32_t> window_rkeys;  // send_inv: of each slot's memory window, before its first bind
};

struct FetchedAdd {
  uint64_t result;
  uint64_t add;
};

class Requester {
 public:
  Requester(Plan plan, const Device& device, ibv_pd* pd, QueuePair& qp);

  void set_target(RemoteTarget target) { target_ = std::move(target); }
  // The responder is prepared for messages below `number`.
  void allow(uint64_t number);
  // Posts what the plan, the window and the responder allow; returns how many.
  uint64_t post();
  // A request is over; `wc` is nullptr when it was unsignaled.
  void retire(uint64_t number, const ibv_wc* wc);
  // Hashes of the messages completed since the last call, in order.
  std::vector<uint64_t> take_hashes() { return std::exchange(hashes_, {}); }
  size_t hashes_waiting() const { return hashes_.size(); }

  bool done() const { return completed_ == plan_.messages(); }
  // All memory must be guard bytes again.
  void check_memory() const;
  const std::vector<FetchedAdd>& fetched_adds() const { return fetched_adds_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t digest() const { return digest_; }
  uint64_t completions() const { return completions_; }
  std::string state();

 private:
  static constexpr size_t kMaxChain = 8;  // WRs per ibv_post_send
  struct Slot {
    Pieces pieces;
    uint64_t hash = 0;
  };
  struct Request {
    ibv_send_wr wr{};
    std::array<ibv_sge, kMaxPieces> sges{};
  };

  Slot& slot(uint64_t number) { return slots_[number % slots_.size()]; }
  void post_chain(size_t count);
  void build(const Message& message, Request& request);
  void set_remote(const Message& message, ibv_send_wr& wr);
  void check_completion(const Message& message, const ibv_wc& wc);
  void check_result(const Message& message, const Pieces& pieces);
  [[noreturn]] void fail(uint64_t number, const std::string& what);

  Plan plan_;
  QueuePair& qp_;
  RegisteredMemory local_;
  Random random_;
  const size_t max_pieces_;
  const bool is_rxe_;
  const size_t max_read_pieces_;
  RemoteTarget target_;
  std::vector<Slot> slots_;
  uint64_t allowed_ = 0;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t completions_ = 0;
  uint64_t bytes_ = 0;
  uint64_t digest_ = 0;
  std::vector<uint64_t> hashes_;
  std::vector<FetchedAdd> fetched_adds_;
};

}  // namespace uroce::transfer
