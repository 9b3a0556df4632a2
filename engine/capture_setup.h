// Makes the packets of a netdev's packet I/O visible: to the file that UROCE_CAPTURE names, and to `uroce capture`.
// Called when the packet I/O opens.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/io/packet_io.h"

namespace uroce::engine {

// `io`, and the fault injector around it if one is asked for, with a capture stage around both.
std::unique_ptr<io::PacketIo> with_faults_and_capture(std::unique_ptr<io::PacketIo> io, const net::Netdev& netdev,
                                                      const Options& options);

// The process ends: captures are completed.
void finish_captures();

}  // namespace uroce::engine
