// SPDX-License-Identifier: BSD-2-Clause
// The rights that a process gets only so that it can open AF_XDP, as `uroce run --user` gives them to a program of an
// ordinary user: ambient capabilities. Once the packet I/O is open nobody needs them any more, and they are given up.
//
// A thread can give up its own only. Ours do when they start, the application's thread that opens the I/O when that is
// done, and those that it starts later have none. Rights of another kind are the application's own business: root's,
// and those of a program with file capabilities.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace uroce {

// What AF_XDP takes: numbers of capabilities.
std::span<const int> af_xdp_capabilities();

// The process keeps them: drop_ambient_capabilities() does nothing (UROCE_KEEP_CAPABILITIES=1).
void keep_ambient_capabilities();

// The calling thread gives up those of them that are ambient capabilities. CAP_BPF stays before Linux 6.0, which may
// ask for it when the addresses in the XDP program's map change. False: there was nothing to give up.
bool drop_ambient_capabilities();

// Threads of this process that still have some as ambient capabilities.
size_t threads_with_ambient_capabilities();

}  // namespace uroce
