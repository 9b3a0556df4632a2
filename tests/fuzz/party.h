// SPDX-License-Identifier: BSD-2-Clause
// One end of a simulated connection under the fuzzers: its memory, the account of its queues, and what an onlooker
// knows of its PSNs.
#pragma once

#include <cstdint>
#include <span>

#include "tests/fuzz/arena.h"
#include "tests/fuzz/ledger.h"
#include "tests/simulator/network.h"

namespace uroce::fuzz {

class Party {
 public:
  Party(simulator::Host& its_host, simulator::SimQp& its_qp, simulator::Link& its_link)
      : host(its_host), qp(its_qp), out(its_link), arena(its_host.mrs, simulator::Host::kPd) {}

  // Whether the verbs let an application post in the QP's state.
  bool may_send() const;
  bool may_receive() const { return qp.rc.state() != transport::QpState::kReset; }

  bool lost_completions() const { return qp.send_cq.overrun() || qp.recv_cq.overrun(); }

  // Takes all completions and checks them.
  void collect();
  // Also in RESET nothing is left: what was posted is gone.
  int modify(const transport::QpAttributes& attributes, uint32_t mask);
  // Everything comes back: moves the QP to the error state and checks the accounts.
  void end();
  void check_counters() const;

  // Looks at a frame that this party sends.
  void observe(std::span<const uint8_t> frame);

  simulator::Host& host;
  simulator::SimQp& qp;
  simulator::Link& out;
  Arena arena;
  Ledger sends, receives;
  wire::Psn next_request;  // behind the last request that was sent
  wire::Psn expected;      // acknowledged by it to its peer, and so the next that it takes
};

}  // namespace uroce::fuzz
