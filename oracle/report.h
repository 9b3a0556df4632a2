// SPDX-License-Identifier: BSD-2-Clause
// The oracle's findings as text for people. Used by `uroce check` and by failing simulator runs.
#pragma once

#include <string>
#include <vector>

#include "oracle/verdict.h"

namespace uroce::oracle {

const char* severity_text(Severity severity);  // "error"

// "packet 4711 12.345678 s  10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202: one-nak-per-gap: second NAK for PSN 77 (IBTA
// 9.7.5.1)". `start`: what the seconds count from.
std::string format_violation(const Violation& violation, Time start = {});

// A table, one line per connection, and below it what could not be judged.
std::string format_summary(const std::vector<ConnectionSummary>& connections);

// The same of the exchanges of the connection manager; nothing if there were none.
std::string format_cm_summary(const std::vector<CmSummary>& exchanges);

}  // namespace uroce::oracle
