// SPDX-License-Identifier: BSD-2-Clause
// Makes the packets of a netdev's packet I/O visible: to the file that UROCE_CAPTURE names, and to `uroce capture`.
// Called when the packet I/O opens.
#pragma once

#include "engine/engine.h"
#include "process/open_io.h"
#include "process/options.h"

namespace uroce::engine {

// Puts the fault injector, if one is asked for, around the packet I/O, and a capture stage around both; and one around
// the loop between QPs of the device, which has no faults.
void add_faults_and_capture(OpenedIo& opened, const net::Netdev& netdev, const Options& options);

// The process ends: captures are completed.
void finish_captures();
// The same where it ends without exit handlers (CaptureHub::end_now). Packet I/O has been opened.
void end_captures_now();

}  // namespace uroce::engine
