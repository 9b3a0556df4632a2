// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "tests/e2e/last_ack/endpoint.h"

namespace uroce::last_ack {

// Ends the process, or what it has of the connection, in the way with that name. Where that leaves the process, it ends
// without passing an exit handler, so that nothing but that way has sent the ACK. Never returns.
[[noreturn]] void end(const std::string& how, Endpoint& endpoint);

// Throws Failure for a name that there is not.
void check_name(const std::string& how);
// The process is killed.
inline bool kills(const std::string& how) {
  return how == "kill";
}

}  // namespace uroce::last_ack
