// SPDX-License-Identifier: BSD-2-Clause
// Two queue pairs of one thread, connected to each other by the own GID, and all that is known about what they do:
// every work request's completion, once and in order, and every byte. The requester is `a`, the responder `b`.
//
// A link works in rounds: a batch of requests, then their completions; between rounds it may be destroyed, put into the
// error state, its memory registered anew. Everything but check failures ends well: a failure is give_up().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <infiniband/verbs.h>
#include <vector>

#include "tests/stress/group.h"

namespace uroce::stress {

enum class Kind { kRc, kRcShared, kUc, kUd, kXrc };

class Link {
 public:
  Link(Group& group, uint32_t number);
  ~Link();

  // Starts a round or a disturbance if it is idle. True: it did something.
  void step();
  void on_completion(const Completion& completion);

 private:
  enum class Op : uint8_t { kSend, kSendImm, kSendInv, kWrite, kWriteImm, kRead, kFetchAdd, kCompareSwap, kPoison };
  struct Request {
    uint64_t wr_id;
    Op op;
    bool signaled;
    uint32_t slot, length, rkey;
    uint64_t tag;
    uint64_t before;         // atomics: what the cell holds
    uint64_t operand, swap;  // atomics
    bool by_inline;
  };
  struct Receive {
    Op op;
    uint64_t tag;
    uint32_t slot, length, immediate;
  };
  static constexpr uint32_t kSlots = 16;
  static constexpr uint32_t kSlot = Group::kSlot;

  bool reliable() const { return kind_ != Kind::kUc && kind_ != Kind::kUd; }
  bool shared() const { return kind_ == Kind::kRcShared || kind_ == Kind::kXrc; }
  bool idle() const;
  void check_stuck();

  // --- life (link.cc) -------------------------------------------------------------------------------
  void make();
  void make_memory();
  ibv_qp* make_qp(bool initiator);
  void connect(ibv_qp* qp, ibv_qp* peer);
  void unmake();
  void fail_both();
  void reregister();
  void bind_window();
  void check_query();

  // --- work (link_work.cc) --------------------------------------------------------------------------
  void start_round();
  Request draw_request(uint32_t slot, bool last);
  void draw_atomic(Request& request);
  void prepare_memory(const Request& request);
  void post_receives(uint32_t count);
  void post(const std::vector<Request>& requests);
  void post_plain(const std::vector<Request>& requests);
  void post_extended(const std::vector<Request>& requests);
  void expect_receive(const Request& request);
  uint8_t* source(uint32_t slot) { return memory_.data() + slot * kSlot; }
  uint8_t* target(uint32_t slot) { return memory_.data() + (kSlots + slot) * kSlot; }
  uint8_t* receive_slot(uint32_t slot) { return memory_.data() + (2 * kSlots + slot) * kSlot; }
  uint64_t* cell() { return reinterpret_cast<uint64_t*>(memory_.data() + 3 * kSlots * kSlot); }
  ibv_sge sge(const Request& request);
  uint64_t remote_address(const Request& request);
  uint32_t immediate(const Request& request) const { return static_cast<uint32_t>(request.tag * 16 + request.slot); }

  // --- completions (link_completions.cc) --------------------------------------------------------------
  void on_send(const Completion& completion);
  void on_receive(const Completion& completion);
  void on_bind(const Completion& completion);
  void retire(const Request& request);
  void on_flush(const Completion& completion);
  void match_receive(const Completion& completion, const uint8_t* data);
  void match_reliable(const Completion& completion, const uint8_t* data);
  void match_unreliable(const Completion& completion, const uint8_t* data);
  void fail(const Completion& completion, const char* what);

  Group& group_;
  Random& random_;
  const uint32_t number_;
  Kind kind_;
  ibv_qp* a_ = nullptr;
  ibv_qp* b_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;  // a_, if made for ibv_wr_*
  ibv_ah* ah_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_mw* window_ = nullptr;
  bool window_bound_ = false, window_pending_ = false;
  std::vector<uint8_t> memory_;

  uint64_t generation_ = 0;  // in wr_ids: which life
  uint64_t next_tag_ = 0;
  uint64_t last_tag_received_ = 0;  // unreliable
  uint64_t cell_value_ = 0;
  uint32_t receives_posted_ = 0, receives_done_ = 0;
  uint32_t busy_write_slots_ = 0;  // UC: targets whose WRITE with immediate may still be on its way
  std::deque<Request> requests_;   // posted, not retired
  std::deque<Receive> receives_;   // to come
  bool failing_ = false;           // in the error state: the rest is flushed
  bool poisoned_ = false;          // the round has a request that the responder refuses
  std::chrono::steady_clock::time_point since_;
};

}  // namespace uroce::stress
