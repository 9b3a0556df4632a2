// SPDX-License-Identifier: BSD-2-Clause
// Memory that goes away while it is in use, and the proof that nothing else suffers. Used by main.cc.
#pragma once

#include <string>

#include "tests/e2e/memory_faults/endpoint.h"
#include "tests/e2e/memory_faults/region.h"

namespace uroce::memory_faults {

// One process, the victim, loses its memory; the other one is its peer.
enum class Side { kVictim, kPeer };

// `role`: what the victim's memory is (trial.cc, kRoles). Both sides keep their work queues full until it is gone.
void run_trial(const Device& device, const Control& control, Side side, const std::string& role, Way way, Drive drive);

// A new QP pair between the same processes: every kind of request in both directions, data and completions right.
void run_healthy(const Device& device, const Control& control, Side side, Drive drive);

}  // namespace uroce::memory_faults
