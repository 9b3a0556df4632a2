// SPDX-License-Identifier: BSD-2-Clause
// What the environment of a process says (UROCE_*, docs/environment.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "engine/congestion/controller.h"
#include "engine/device/device_options.h"
#include "engine/io/dpdk/devargs.h"

namespace uroce::engine {

// Parsed once per process.
struct Options {
  enum class Io : uint8_t { kAuto, kAfXdp, kUdp, kDpdk };
  Io io = Io::kAuto;
  io::DpdkDevargs dpdk;        // UROCE_IO=dpdk:DEVARGS; without device: net_af_packet on the netdev
  std::string dpdk_addresses;  // UROCE_DPDK_ADDRESSES: file with those of a port that the kernel does not see
  std::string dpdk_tap;        // UROCE_DPDK_TAP: netdev whose frames are the port's (io/dpdk/tap_path.h)
  congestion::Algorithm congestion = congestion::Algorithm::kAuto;  // UROCE_CC
  Duration patience{};                 // UROCE_PATIENCE: a peer that is away is waited for so long at least
  bool wakes_by_packets = true;        // UROCE_WAKE_BY_PACKETS: of programs that poll a channel (attendance.h)
  uint32_t shards = 0;                 // of a device at most, a power of two; 0: as many as CPUs
  std::string broker;                  // UROCE_BROKER: where to look for it (broker/client/link.h)
  std::string netdev;                  // UROCE_NETDEV: which netdevs become devices (devices_of)
  std::string names;                   // UROCE_NAMES: what devices are called (device_names.h)
  std::string faults;                  // UROCE_FAULTS, see io/fault_injector.h
  bool force_generic_xdp = false;      // UROCE_XDP_MODE=generic
  bool quiet = false;                  // UROCE_QUIET=1: no informational line
  std::string capture;                 // UROCE_CAPTURE: file that packets are captured to; %p: process id, %d: device
  uint32_t capture_snap = 0;           // UROCE_CAPTURE_SNAP: bytes kept of each frame; 0: all
  uint32_t capture_files = 0;          // UROCE_CAPTURE_FILES: a ring of so many files; 0: one file
  uint64_t capture_size = 0;           // UROCE_CAPTURE_SIZE: bytes per file of the ring
  std::vector<uint32_t> capture_qpns;  // UROCE_CAPTURE_QPN: only packets of these QPs; none: all
  bool keep_capabilities = false;      // UROCE_KEEP_CAPABILITIES=1, see base/capabilities.h
  bool print_counters = false;         // UROCE_COUNTERS=1: counters that moved, on stderr, at the end of the process

  // The process has its device for itself, and no broker to share it by.
  bool own_port() const { return !dpdk_addresses.empty() || !dpdk_tap.empty(); }

  DeviceOptions of_devices() const;

  // UROCE_IO. False: it is none of kIoWords.
  static bool parse_io(std::string_view text, Options& out);
  static constexpr const char* kIoWords = "auto, af_xdp, udp, dpdk or dpdk:PORT, as dpdk:net_af_packet0,qpairs=2";
  // Reads the environment; on a bad value returns what is wrong and what is allowed.
  static std::optional<std::string> from_environment(Options& out);
};

}  // namespace uroce::engine
