// SPDX-License-Identifier: BSD-2-Clause
// For programs that test verbs: a network namespace of their own.
#pragma once

// Gives the process a network namespace with one veth pair: rdma0 (192.0.2.1, 198.51.100.1) and other0, both up. The
// kernel removes all of it when the process ends. Call it before anything looks at the network. False: no right to.
bool enter_own_network();
