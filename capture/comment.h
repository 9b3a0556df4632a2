// SPDX-License-Identifier: BSD-2-Clause
// What a capture says of a packet, in words: why it was sent, what became of it, what a fault injector did to it.
// Called by the writer thread of a capture.
#pragma once

#include <string>

#include "capture/tap.h"

namespace uroce::io {

// Appends to `text`, which is empty; it stays so for a packet of which there is nothing to say. Several remarks are
// joined with "; ".
void capture_comment(const CapturedPacket& packet, std::string& text);

}  // namespace uroce::io
