// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups that a socket has joined, of which the kernel tells nobody the list.
#pragma once

namespace uroce::broker {

// Tries all groups that this host is in, on all netdevs.
void leave_all_groups(int fd, int family);

}  // namespace uroce::broker
