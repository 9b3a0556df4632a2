// SPDX-License-Identifier: BSD-2-Clause
// A completion queue that nobody polls, until it overruns (faults.md, 50). Used by main.cc.
#pragma once

#include <string>

#include "tests/e2e/memory_faults/trial.h"

namespace uroce::memory_faults {

// `queue`: "send-cq" or "receive-cq", which one of the victim's QP is too small.
void run_overrun(const Device& device, const Control& control, Side side, const std::string& queue);

}  // namespace uroce::memory_faults
