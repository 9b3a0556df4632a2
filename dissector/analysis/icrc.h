// SPDX-License-Identifier: GPL-2.0-or-later
// The ICRC of a captured datagram, straight from the IP header's bytes. Called by Analysis for every packet.
#pragma once

#include "dissector/analysis/datagram.h"

namespace uroce::dissector {

enum class IcrcStatus : uint8_t {
  kUnchecked,  // cut short, reassembled from IP fragments, IP options: cannot be computed; or checking is off
  kGood,
  kBad,
};

struct IcrcCheck {
  IcrcStatus status = IcrcStatus::kUnchecked;
  uint32_t expected = 0;  // as a number: its bytes go on the wire least significant first
};

IcrcCheck check_icrc(const Datagram& datagram);

}  // namespace uroce::dissector
