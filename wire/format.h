// SPDX-License-Identifier: BSD-2-Clause
// A packet as one line of text for people, in the manner of tcpdump. Used by traces, test failures and the command
// line.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "wire/envelope.h"

namespace uroce::wire {

// "10.0.0.1 > 10.0.0.2 RC RDMA_WRITE_FIRST qp 0x000123 psn 4711 ack len 1024 va 0x7f00 rkey 0x1234 dmalen 65536".
// `ib`: BTH to ICRC. Also says what is malformed, and "ICRC bad" if so.
std::string format_packet(const Envelope& envelope, std::span<const uint8_t> ib);

}  // namespace uroce::wire
