// SPDX-License-Identifier: BSD-2-Clause
// What a few links (link.h) of one thread have in common: completion queue, shared receive queues, XRC domain. Made and
// destroyed as a whole, with everything on it.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <vector>

#include "tests/stress/random.h"
#include "tests/stress/report.h"

namespace uroce::stress {

class Link;

// The same for both kinds of completion queues.
struct Completion {
  uint64_t wr_id;
  ibv_wc_status status;
  ibv_wc_opcode opcode;
  uint32_t length, immediate, qpn, flags;  // immediate: or the invalidated R_Key
};

// How often each operation was verified, of all threads.
struct Totals {
  std::atomic<uint64_t> sends{0}, writes{0}, reads{0}, atomics{0}, receives{0}, datagrams{0}, unreliable{0}, shared{0},
      xrc{0}, windows{0}, refused{0}, flushed{0}, events{0}, remade{0};
};

class Group {
 public:
  static constexpr uint32_t kLinks = 8;
  static constexpr uint32_t kSlot = 4096;
  static constexpr uint32_t kSharedReceives = 128;  // per shared receive queue

  Group(ibv_context* context, ibv_pd* pd, Random& random, Totals& totals, Activity& activity);
  ~Group();

  // One step of one link, then takes completions.
  void step();
  bool wants_remake() const { return lost_receives_ > kSharedReceives / 4 || steps_ > kLifetime; }

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  ibv_srq* srq() const { return srq_; }
  ibv_srq* xrc_srq() const { return xrc_srq_; }
  ibv_xrcd* xrcd() const { return xrcd_; }
  Random& random() { return random_; }
  Totals& totals() { return totals_; }
  Activity& activity() { return activity_; }
  const ibv_gid& gid() const { return gid_; }
  void add_qp(uint32_t qpn, Link* link) { by_qpn_[qpn] = link; }
  void remove_qp(uint32_t qpn) { by_qpn_.erase(qpn); }
  // A link went while messages to the shared queue were on their way: these take receives along.
  void lose_receives(uint32_t count) { lost_receives_ += count; }
  uint8_t* shared_slot(uint64_t wr_id) { return shared_memory_.data() + (wr_id & 0xffff) * kSlot; }
  void post_shared_receive(uint64_t wr_id);
  void poll();

 private:
  static constexpr uint32_t kLifetime = 4000;

  void make_queues();
  void make_shared_queues();
  void check_busy();
  bool wait_for_event();
  void take(const Completion& completion);
  uint32_t poll_plain();
  uint32_t poll_extended();

  ibv_context* context_;
  ibv_pd* pd_;
  Random& random_;
  Totals& totals_;
  Activity& activity_;
  ibv_gid gid_{};
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_cq_ex* extended_ = nullptr;  // the same, if it was made so
  ibv_srq* srq_ = nullptr;
  ibv_srq* xrc_srq_ = nullptr;
  ibv_xrcd* xrcd_ = nullptr;
  ibv_mr* shared_mr_ = nullptr;
  std::vector<uint8_t> shared_memory_;
  std::map<uint32_t, Link*> by_qpn_;
  std::vector<std::unique_ptr<Link>> links_;
  uint32_t lost_receives_ = 0;
  uint32_t steps_ = 0;
  uint32_t events_taken_ = 0;
};

// wr_id of receives of shared queues: the slot, and which queue.
inline constexpr uint64_t kSharedMark = 1ull << 63;
inline constexpr uint64_t kXrcMark = 1ull << 62;

}  // namespace uroce::stress
