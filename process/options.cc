// SPDX-License-Identifier: BSD-2-Clause
#include "process/options.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/concat.h"
#include "broker/protocol/lease_range.h"
#include "capture/settings.h"
#include "engine/io/fault_spec.h"
#include "engine/net/device_identity.h"
#include "engine/net/device_names.h"

namespace uroce::engine {

namespace {

// Nothing in a program that gained privileges when it was started: its environment is its caller's.
std::string_view variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

constexpr uint32_t kMostPatience = 24 * 60 * 60;  // seconds

bool is_on(const char* name) {
  const std::string_view value = variable(name);
  return !value.empty() && value != "0";
}

// Sets `out` to a number between `least` and `most`; unset leaves it.
template <class T>
std::optional<std::string> read_number(const char* name, uint64_t least, uint64_t most, uint64_t unit, T& out) {
  const std::string_view text = variable(name);
  if (text.empty()) return std::nullopt;
  const auto value = io::parse_capture_number(text, most);
  if (!value || *value < least) return concat(name, "=", text, ": a number from ", least, " to ", most);
  out = static_cast<T>(*value * unit);
  return std::nullopt;
}

std::optional<std::string> read_capture(Options& out) {
  out.capture = variable("UROCE_CAPTURE");
  if (!io::expand_capture_name(out.capture, 0, "")) {
    return concat("UROCE_CAPTURE=", out.capture, ": after % there may be p (process id), d (device) or %");
  }
  if (auto problem = read_number("UROCE_CAPTURE_SNAP", io::kSmallestSnap, 1 << 18, 1, out.capture_snap)) {
    return problem;
  }
  if (auto problem = read_number("UROCE_CAPTURE_FILES", 2, 99999, 1, out.capture_files)) return problem;
  if (auto problem = read_number("UROCE_CAPTURE_SIZE", 1, 1 << 20, io::kMegabyte, out.capture_size)) {
    return problem;
  }
  if ((out.capture_files == 0) != (out.capture_size == 0)) {
    return "UROCE_CAPTURE_FILES and UROCE_CAPTURE_SIZE make a ring of files together";
  }
  const std::string_view qpns = variable("UROCE_CAPTURE_QPN");
  if (qpns.empty()) return std::nullopt;
  const auto numbers = io::parse_capture_qpns(qpns);
  if (!numbers) return concat("UROCE_CAPTURE_QPN=", qpns, ": up to 16 QPNs, e.g. 0x11,0x12");
  out.capture_qpns = *numbers;
  return std::nullopt;
}

std::optional<std::string> read_congestion(congestion::Algorithm& out) {
  using congestion::Algorithm;
  const std::string_view value = variable("UROCE_CC");
  const std::pair<std::string_view, Algorithm> known[] = {{"", Algorithm::kAuto},
                                                          {"auto", Algorithm::kAuto},
                                                          {"dcqcn", Algorithm::kDcqcn},
                                                          {"delay", Algorithm::kDelay},
                                                          {"off", Algorithm::kOff}};
  for (const auto& [name, algorithm] : known) {
    if (value != name) continue;
    out = algorithm;
    return std::nullopt;
  }
  return concat("UROCE_CC=", value, " is not known; use auto, dcqcn, delay or off");
}

}  // namespace

bool Options::parse_io(std::string_view text, Options& out) {
  constexpr std::string_view kDpdkPort = "dpdk:";
  out.dpdk = {};
  if (text.empty() || text == "auto") {
    out.io = Io::kAuto;
  } else if (text == "af_xdp") {
    out.io = Io::kAfXdp;
  } else if (text == "udp") {
    out.io = Io::kUdp;
  } else if (text == "dpdk") {
    out.io = Io::kDpdk;
  } else if (text.substr(0, kDpdkPort.size()) == kDpdkPort) {
    const auto devargs = io::parse_dpdk_devargs(std::string(text.substr(kDpdkPort.size())));
    if (!devargs) return false;
    out.io = Io::kDpdk;
    out.dpdk = *devargs;
  } else {
    return false;
  }
  return true;
}

std::optional<std::string> Options::from_environment(Options& out) {
  const std::string_view io = variable("UROCE_IO");
  if (!parse_io(io, out)) return concat("UROCE_IO=", io, " is not known; use ", kIoWords);

  out.dpdk_addresses = variable("UROCE_DPDK_ADDRESSES");
  if (!out.dpdk_addresses.empty() && (out.io != Io::kDpdk || out.dpdk.device.empty())) {
    return "UROCE_DPDK_ADDRESSES is for a port that UROCE_IO=dpdk:PORT names";
  }

  out.dpdk_tap = variable("UROCE_DPDK_TAP");
  if (!out.dpdk_tap.empty() && (out.io != Io::kDpdk || out.dpdk.device.empty() || out.dpdk.is_af_packet())) {
    return "UROCE_DPDK_TAP is for a port without netdev that UROCE_IO=dpdk:PORT names";
  }
  if (!out.dpdk_tap.empty() && !out.dpdk_addresses.empty()) {
    return "UROCE_DPDK_TAP and UROCE_DPDK_ADDRESSES exclude each other: a port has the tap's addresses, or a file's";
  }

  const std::string_view mode = variable("UROCE_XDP_MODE");
  if (!mode.empty() && mode != "auto" && mode != "native" && mode != "generic") {
    return concat("UROCE_XDP_MODE=", mode, " is not known; use auto, native or generic");
  }
  out.force_generic_xdp = mode == "generic";

  out.faults = variable("UROCE_FAULTS");
  if (!out.faults.empty()) {
    const auto spec = io::parse_fault_spec(out.faults);
    if (const auto* error = std::get_if<std::string>(&spec)) return concat("UROCE_FAULTS: ", *error);
  }
  uint32_t patience = 0;
  if (auto problem = read_number("UROCE_PATIENCE", 1, kMostPatience, 1, patience)) return problem;
  out.patience = std::chrono::seconds(patience);
  if (auto problem = read_congestion(out.congestion)) return problem;
  if (auto problem = read_capture(out)) return problem;
  out.broker = variable("UROCE_BROKER");
  out.netdev = variable("UROCE_NETDEV");
  if (!is_list_of_names(out.netdev)) {
    return concat("UROCE_NETDEV=", out.netdev, ": names of netdevs or patterns, with commas between, e.g. eth0,ens*");
  }
  if (!out.dpdk_tap.empty()) out.netdev = out.dpdk_tap;
  out.names = variable("UROCE_NAMES");
  if (const std::string wrong = wrong_device_names(out.names); !wrong.empty()) return concat("UROCE_NAMES: ", wrong);
  out.wakes_by_packets = variable("UROCE_WAKE_BY_PACKETS") != "0";
  out.quiet = is_on("UROCE_QUIET");
  out.keep_capabilities = is_on("UROCE_KEEP_CAPABILITIES");
  out.print_counters = is_on("UROCE_COUNTERS");
  return std::nullopt;
}

DeviceOptions Options::of_devices() const {
  // As long as nothing else is known: what the kernel allows a socket if it was not told otherwise.
  constexpr uint32_t kGroupsOfALease = 20;
  DeviceOptions device{
      .congestion = congestion, .patience = patience, .wakes_by_packets = wakes_by_packets, .shards = shards};
  if (broker != "none") {
    device.max_qps = broker::LeaseRange::count();
    device.max_multicast_groups = kGroupsOfALease;
  }
  return device;
}

}  // namespace uroce::engine
