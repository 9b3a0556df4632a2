// SPDX-License-Identifier: BSD-2-Clause
// Which packet I/O is best for a netdev, and why. One answer for all: the engine opens what it says (open_io.h), `uroce
// devices` and `uroce doctor` show it. docs/packet-io.md has it as a table by kind of netdev.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/io/af_xdp/xdp_program.h"
#include "engine/net/net_view.h"
#include "engine/net/netdev_features.h"
#include "process/options.h"

namespace uroce::engine {

// Where XDP would run for AF_XDP.
enum class XdpMode : uint8_t { kGeneric, kNative, kZeroCopy };

// What the answer depends on.
struct IoFacts {
  net::NetdevFeatures features;
  XdpMode xdp_mode = XdpMode::kGeneric;
  // Frames do not go to a wire but to software: another namespace, a guest, a host. Runs of packets may stay whole.
  bool to_software = false;
  std::optional<io::AttachedProgram> attached;  // the XDP program that the netdev has now
  std::optional<io::IoError> taken;             // another uroce process has the netdev
  std::optional<io::IoError> no_frames;         // the netdev has no Ethernet frames, which AF_XDP and DPDK ports carry
  std::optional<io::IoError> no_af_xdp;         // what keeps this process from opening AF_XDP
};

enum class IoKind : uint8_t { kNone, kAfXdp, kUdp, kDpdk };

struct IoChoice {
  IoKind kind = IoKind::kNone;
  std::string why;                                  // for people
  std::optional<io::IoError> error = std::nullopt;  // kNone: what to do
};

// Asks the kernel; nothing is opened or attached. Needs no privilege.
IoFacts io_facts(const net::Netdev& netdev, const Options& options);
// `wanted`: what UROCE_IO says.
IoChoice choose_io(const IoFacts& facts, Options::Io wanted);

}  // namespace uroce::engine
