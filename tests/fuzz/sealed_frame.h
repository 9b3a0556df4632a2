// SPDX-License-Identifier: BSD-2-Clause
// The frame around a packet, with the ICRC made right, so that nothing in front of the transport hides it from it.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/envelope.h"
#include "wire/psn.h"

namespace uroce::fuzz {

// `ib`: BTH to ICRC, the latter to be filled in, as is the QP that it is addressed to.
std::vector<uint8_t> sealed_frame(const wire::Envelope& envelope, wire::Qpn qpn, std::vector<uint8_t> ib);

}  // namespace uroce::fuzz
