// SPDX-License-Identifier: BSD-2-Clause
// One side's end of a QP pair and everything that completes on it. Other than in rc_transfer, errors are what is
// waited for; the rules are that every request and receive completes once and in order, and that behind an error all
// is flushed. Used by client.cc and server.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/errors/memory.h"
#include "tests/e2e/transfer/endpoint.h"

namespace uroce::errors {

// The longest that anything is waited for; a guest may be slow.
inline constexpr std::chrono::seconds kPatience{10};

// One work queue: what was posted to it, and its completions as they came.
struct Work {
  uint64_t posted = 0;
  std::vector<ibv_wc> done;

  // The completion of the WR `number`; null: there is none.
  const ibv_wc* of(uint64_t number) const;
};

class Pair {
 public:
  static constexpr uint32_t kDepth = 16;

  Pair(const transfer::Device& device, ibv_pd* pd);

  void connect(transfer::QueuePairAddress local, transfer::QueuePairAddress remote,
               const transfer::ConnectionParameters& parameters) {
    qp_->connect(device_, local, remote, parameters);
  }
  uint32_t qpn() const { return qpn_; }
  ibv_qp_state state() const;
  void move_to(ibv_qp_state state) const;
  void destroy() { qp_.reset(); }

  // Posts the requests in one chain; wr_id and next are set here. Returns 0, or the errno with which the first one that
  // was not taken was refused: those before it are posted.
  int post(std::span<ibv_send_wr> requests);
  // Returns the errno, or 0.
  int post_receive(ibv_sge sge);

  void poll();
  // Until the last WR that was posted has completed; false: it has not in kPatience.
  bool wait(const Work& work);
  // What is wrong with order and number of the completions.
  void check(const Work& work, const char* name, Complaints& complaints) const;

  // The next asynchronous event, acknowledged, waited for so long; -1: none. Those that a healthy run produces as well
  // do not count; one of another QP is complained of.
  int next_event(std::chrono::milliseconds patience, Complaints& complaints) const;

  Work sends, receives;

 private:
  const transfer::Device& device_;
  transfer::Completions completions_;
  std::unique_ptr<transfer::QueuePair> qp_;
  const uint32_t qpn_;
  std::vector<ibv_wc> batch_;
};

}  // namespace uroce::errors
