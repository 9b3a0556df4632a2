// SPDX-License-Identifier: BSD-2-Clause
// How a case has to end, at the requester and at the responder. The rule is what IBTA says and a ConnectX does (wire.md
// "Completion status" and table "RC semantics"); where another implementation rightly or at least knowingly differs,
// expectation.cc names the deviation and its reason. Used by client.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/e2e/errors/cases.h"
#include "tests/e2e/transfer/endpoint.h"

namespace uroce::errors {

using transfer::Provider;
using transfer::provider_of;
const char* name_of(Provider provider);

// What was seen of a case. -1: nothing.
struct Ending {
  static constexpr int kNone = -1;
  static constexpr int kRefused = 1000;  // plus errno: ibv_post_send did not take the request

  int request = kNone;          // status of the request's completion
  int event = kNone;            // asynchronous event at the responder
  int receive = kNone;          // status of the first receive at the responder
  int responder_state = kNone;  // of its QP, before it does anything about it; none: destroyed

  bool refused() const { return request >= kRefused; }
  std::string requester_text() const;
  std::string responder_text() const;
};

// How it ends by the rule.
Ending expected(const Case& item);

struct Verdict {
  std::string complaint;  // empty: as expected
  std::string reason;     // of the deviations that were met
};
// A request that fails before it is sent must not be posted while others are in flight. Why, or null: it may.
const char* reason_to_fail_alone(const Case& item, Provider requester);

Verdict judge(const Case& item, Provider requester, Provider responder, const Ending& seen);

}  // namespace uroce::errors
