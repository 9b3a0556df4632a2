// SPDX-License-Identifier: BSD-2-Clause
// Which packet I/O an engine gets: what UROCE_IO asks for, or the best that the process may open
// (io_choice/io_choice.h).
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "engine/device/port_io.h"
#include "process/options.h"

namespace uroce::engine {

std::variant<OpenedIo, io::IoError> open_packet_io(const net::Netdev& netdev, const Options& options);

// open_packet_io(), or what opens the DPDK port that `view` is of (net/port_view.h).
IoOpener opener_for(const std::shared_ptr<net::NetView>& view, const Options& options);

// Opens the DPDK port whose exception path is the tap that the options name. The tap is the opener's from now on, and
// has its carrier, so the device is active before its packet I/O is open, as programs expect that look for an active
// one.
std::variant<IoOpener, io::IoError> opener_with_tap(const Options& options);

}  // namespace uroce::engine
