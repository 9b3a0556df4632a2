// SPDX-License-Identifier: BSD-2-Clause
// Wakes a process that nobody has to trust: a pair of ends, each of which can ring the other one and sees its end.
// Nothing can be sent through it.
//
// That is the point of it. Over a UNIX socket descriptors come along, and what a receiver drops it closes, which can
// take as long as the sender likes (a TCP socket that lingers); a pipe is locked while somebody writes to it from
// memory that he makes slow (FUSE), for whoever reads or closes it; an eventfd's flags and count belong to both sides,
// so a write to it can be made to wait. So this is a pair of connected UNIX sockets that have been shut down in both
// directions before anybody gets them: to shut down a side again reaches the other side's waiters and is all that a
// side can do (Linux, net/unix/af_unix.c: unix_shutdown()). Closing an end with a byte unread is an error at
// the other one: each has one, and who reads it has left as well. A ring costs as much as there are waiters at the
// other end: 0.3 us for one, 0.2 us for each more.
#pragma once

#include <array>

#include "base/unique_fd.h"

namespace uroce {

// Both are empty if there are no more descriptors. They are close-on-exec, and not to be read or written.
std::array<UniqueFd, 2> make_bell();

// Whoever waits at the other end is woken. Does not wait, whatever that side does.
void ring_bell(int end);

// The other end has been closed, by whoever had it last, or read. Takes no ring away.
bool bell_has_ended(int end);

// Rings are waited for in an epoll set, where each is told once, with those before it: an event of `end` (and EPOLLERR
// among its bits once the other end is closed). The first event comes unrung. 0 or an errno value.
int wait_for_bell(int epoll, int end, void* data);

}  // namespace uroce
