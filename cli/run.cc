// SPDX-License-Identifier: BSD-2-Clause
#include "cli/run.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "capture/settings.h"
#include "cli/complaint.h"
#include "cli/exit_codes.h"
#include "cli/host_probe.h"
#include "cli/library.h"
#include "cli/no_devices.h"
#include "cli/start_broker.h"
#include "cli/target.h"
#include "cli/user.h"
#include "engine/io/dpdk/devargs.h"
#include "engine/io/fault_spec.h"
#include "engine/net/device_identity.h"
#include "engine/net/net_view.h"
#include "engine/net/port_file.h"

namespace uroce::cli {
namespace {

std::string environment(const char* name, const char* otherwise = "") {
  const char* value = secure_getenv(name);
  return value == nullptr ? otherwise : value;
}

// A device name is as good as the netdev's: uroce_eth0 -> eth0.
std::string netdev_of(const std::string& name, const std::vector<net::Netdev>& netdevs) {
  static constexpr std::string_view kPrefix = "uroce_";
  const bool known =
      std::any_of(netdevs.begin(), netdevs.end(), [&](const auto& netdev) { return netdev.name == name; });
  return known || name.rfind(kPrefix, 0) != 0 ? name : name.substr(kPrefix.size());
}

// Why the program is not started, and the exit code that says so.
struct Refusal {
  int code;
  std::string text;
};

Refusal wrong_usage(std::string text) {
  return {kExitUsage, std::move(text)};
}

Refusal failed(std::string text) {
  return {kExitFailed, std::move(text)};
}

// The port that has them is named with --io; the name becomes absolute, because the program may change its directory.
std::optional<Refusal> check_dpdk_addresses(RunOptions& options) {
  if (options.dpdk_addresses.empty()) return std::nullopt;
  if (options.io.rfind("dpdk:", 0) != 0) {
    return wrong_usage("--dpdk-addresses: only with --io dpdk:PORT, which names the port that has them");
  }
  const auto file = net::read_port_file(options.dpdk_addresses);
  if (const auto* const problem = std::get_if<std::string>(&file)) return failed(*problem);
  std::error_code error;
  options.dpdk_addresses = std::filesystem::absolute(options.dpdk_addresses, error).string();
  return std::nullopt;
}

// It is the process's only netdev.
std::optional<Refusal> check_dpdk_tap(RunOptions& options) {
  if (options.dpdk_tap.empty()) return std::nullopt;
  constexpr std::string_view kPort = "dpdk:";
  std::optional<io::DpdkDevargs> port;
  if (options.io.rfind(kPort, 0) == 0) port = io::parse_dpdk_devargs(options.io.substr(kPort.size()));
  if (!port || port->is_af_packet()) {
    return wrong_usage("--dpdk-tap: only with --io dpdk:PORT, which names a port that has no netdev");
  }
  if (!options.dpdk_addresses.empty()) {
    return wrong_usage("--dpdk-tap: not with --dpdk-addresses; a port has the tap's addresses, or those of a file");
  }
  std::ifstream flags(fmt::format("/sys/class/net/{}/tun_flags", options.dpdk_tap));
  std::string value;
  constexpr unsigned kTap = 2;  // IFF_TAP
  if (options.dpdk_tap.find('/') != std::string::npos || !(flags >> value) ||
      (std::strtoul(value.c_str(), nullptr, 16) & kTap) == 0) {
    return failed(
        fmt::format("--dpdk-tap {0}: no such tap; make it: sudo ip tuntap add dev {0} mode tap user NAME, and "
                    "give it addresses",
                    options.dpdk_tap));
  }
  options.netdev = options.dpdk_tap;
  return std::nullopt;
}

// Makes sure that each name and pattern in options.netdev matches a usable netdev.
std::optional<Refusal> check_netdev(RunOptions& options) {
  if (options.netdev.empty()) return std::nullopt;
  try {
    const std::vector<net::Netdev> netdevs = net::open_view(options.dpdk_addresses)->netdevs();
    if (!engine::is_list_of_names(options.netdev)) {
      return wrong_usage(fmt::format("--netdev '{}': no list of netdevs; for example: eth0,ens*", options.netdev));
    }
    std::string chosen;
    for (const std::string& part : engine::split_names(options.netdev)) {
      const std::string name = netdev_of(part, netdevs);
      chosen += (chosen.empty() ? "" : ",") + name;
      if (!engine::devices_of(netdevs, name).empty()) continue;
      std::string names;
      for (const net::Netdev& netdev : netdevs) names += (names.empty() ? "" : ", ") + netdev.name;
      return failed(fmt::format("no usable netdev '{}'; there {}", name, names.empty() ? "is none" : "are: " + names));
    }
    options.netdev = chosen;
    return std::nullopt;
  } catch (const std::system_error& error) {
    return failed(net::why_not_read(error));
  }
}

// The name becomes absolute, because the program may change its directory. What is wrong with it is said here, where
// the message reaches the user before the program starts.
std::optional<Refusal> check_capture(RunOptions& options) {
  const std::pair<const char*, const std::string&> details[] = {{"--capture-snap", options.capture_snap},
                                                                {"--capture-files", options.capture_files},
                                                                {"--capture-size", options.capture_size},
                                                                {"--capture-qpn", options.capture_qpn}};
  for (const auto& [name, value] : details) {
    if (options.capture.empty() && !value.empty()) return wrong_usage(fmt::format("{}: only with --capture", name));
  }
  if (options.capture.empty()) return std::nullopt;
  if (options.capture == "-") {
    return wrong_usage("--capture -: it takes a file; to watch in a pipe: uroce capture -w -");
  }
  if (options.capture_files.empty() != options.capture_size.empty()) {
    return wrong_usage("--capture-files, --capture-size: only together; they make a ring of files");
  }
  if (!io::expand_capture_name(options.capture, 0, "")) {
    return wrong_usage(
        fmt::format("--capture '{}': after % there may be p (process id), d (device) or %", options.capture));
  }
  if (!options.capture_qpn.empty() && !io::parse_capture_qpns(options.capture_qpn)) {
    return wrong_usage(
        fmt::format("--capture-qpn '{}': no list of up to 16 QPNs; for example: 0x11,0x12", options.capture_qpn));
  }
  std::error_code error;
  options.capture = std::filesystem::absolute(options.capture, error).string();
  const std::string directory = std::filesystem::path(options.capture).parent_path().string();
  if (directory.find('%') == std::string::npos && access(directory.c_str(), W_OK | X_OK) != 0) {
    return failed(fmt::format("cannot write to {}: {}", directory, std::strerror(errno)));
  }
  return std::nullopt;
}

std::optional<Refusal> check_settings(RunOptions& options) {
  if (!options.faults.empty()) {
    const auto spec = io::parse_fault_spec(options.faults);
    if (const auto* problem = std::get_if<std::string>(&spec)) return wrong_usage("--faults: " + *problem);
  }
  if (options.io == "af_xdp") {
    const Privileges privileges = current_privileges();
    if (!privileges.af_xdp()) return failed(privilege_problem(privileges));
  }
  if (auto problem = check_capture(options)) return problem;
  if (auto problem = check_dpdk_addresses(options)) return problem;
  if (auto problem = check_dpdk_tap(options)) return problem;
  return check_netdev(options);
}

int complain_about(const Target& target, const std::string& command) {
  switch (target.kind) {
    case TargetKind::kNotFound:
      return complain(kExitNotFound, fmt::format("{}: command not found", command));
    case TargetKind::kNotExecutable:
      return complain(kExitNotExecutable, fmt::format("{}: not an executable file", target.path));
    case TargetKind::kStatic:
      return complain(kExitNotExecutable, fmt::format("{}: it is statically linked, so nothing can be preloaded into "
                                                      "it; a dynamically linked build is needed",
                                                      target.path));
    case TargetKind::kForeign:
      return complain(kExitNotExecutable,
                      fmt::format("{}: it is built for another machine or word size than liburoce.so", target.path));
    case TargetKind::kChangesUser:
      return complain(kExitNotExecutable,
                      fmt::format("{} does not let uroce through to the program that it starts; put it "
                                  "in front: {} uroce run ...",
                                  target.path, std::filesystem::path(command).filename().string()));
    case TargetKind::kPrivileged:
      return complain(
          kExitNotExecutable,
          fmt::format("{} gains privileges when started, so the loader ignores uroce; run a copy without its "
                      "set-user-ID bit or capabilities, with ambient ones if it needs any (uroce(1), NOTES)",
                      target.path));
    case TargetKind::kUsable:
      break;
  }
  return kExitOk;
}

// liburoce.so. nullopt, after a line on stderr: it cannot be preloaded.
std::optional<std::string> library_to_preload() {
  std::optional<std::string> library = find_library();
  if (!library) {
    complain(kExitFailed, fmt::format("there is no liburoce.so in {}; {}", library_directory(), kHowToGetLibraries));
    return std::nullopt;
  }
  if (library->find_first_of(" :;") != std::string::npos) {
    complain(kExitFailed,
             fmt::format("{}: LD_PRELOAD and LD_LIBRARY_PATH cannot name a path with a blank, a colon or a "
                         "semicolon; move it",
                         *library));
    return std::nullopt;
  }
  return library;
}

// With what shows the files behind it.
std::string libraries_to_preload(const RunOptions& options, const std::string& library) {
  if (options.no_files) return library;
  const std::optional<std::string> files = find_files_library();
  if (files) return preload_value(*files, library);
  if (!options.quiet) {
    complain(kExitOk,
             "warning: liburoce_files.so is missing, so there is no /sys/class/infiniband and no /dev/infiniband");
  }
  return library;
}

// The program may say little of it, or nothing (ibv_devices).
void warn_without_devices(const RunOptions& options) {
  if (options.quiet || !options.dpdk_addresses.empty() || !options.dpdk_tap.empty()) return;
  try {
    const std::string names = options.netdev.empty() ? environment("UROCE_NETDEV") : options.netdev;
    const std::string why = why_no_devices(net::open_view("")->netdevs(), names);
    if (!why.empty()) complain(kExitOk, why);
  } catch (const std::system_error&) {  // the library says it
  }
}

// What is before the caller's own settings, which come last and win.
void put_in_front(const char* variable, const std::string& setting) {
  const std::string before = environment(variable);
  setenv(variable, (before.empty() ? setting : setting + ":" + before).c_str(), 1);
}

// Programs that are built with -fsanitize=address and its run-time as a library want that to be the first one, since it
// has to replace malloc() in all; ours replace no function that it does. And ThreadSanitizer knows nothing of the
// threads and locks of libraries that it has not compiled.
void set_sanitizers() {
  put_in_front("ASAN_OPTIONS", "verify_asan_link_order=0");
  put_in_front("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
}

void set_environment(const RunOptions& options, const std::string& library) {
  const std::pair<const char*, const std::string&> settings[] = {{"UROCE_IO", options.io},
                                                                 {"UROCE_NETDEV", options.netdev},
                                                                 {"UROCE_NAMES", options.names},
                                                                 {"UROCE_DPDK_ADDRESSES", options.dpdk_addresses},
                                                                 {"UROCE_DPDK_TAP", options.dpdk_tap},
                                                                 {"UROCE_BROKER", options.broker},
                                                                 {"UROCE_FAULTS", options.faults},
                                                                 {"UROCE_XDP_MODE", options.xdp_mode},
                                                                 {"UROCE_PATIENCE", options.patience},
                                                                 {"UROCE_CAPTURE", options.capture},
                                                                 {"UROCE_CAPTURE_SNAP", options.capture_snap},
                                                                 {"UROCE_CAPTURE_FILES", options.capture_files},
                                                                 {"UROCE_CAPTURE_SIZE", options.capture_size},
                                                                 {"UROCE_CAPTURE_QPN", options.capture_qpn}};
  for (const auto& [name, value] : settings) {
    if (!value.empty()) setenv(name, value.c_str(), 1);
  }
  set_sanitizers();
  if (options.quiet) setenv("UROCE_QUIET", "1", 1);
  if (options.wakes_by_events_only) setenv("UROCE_WAKE_BY_PACKETS", "0", 1);
  if (options.counters) setenv("UROCE_COUNTERS", "1", 1);
  if (options.keep_capabilities) setenv("UROCE_KEEP_CAPABILITIES", "1", 1);
  const std::string libraries = libraries_to_preload(options, library);
  setenv("LD_PRELOAD", preload_value(libraries, environment("LD_PRELOAD")).c_str(), 1);
  setenv("UROCE_PRELOAD", libraries.c_str(), 1);  // abi/verbs/lost_preload.cc
  setenv("LD_LIBRARY_PATH", search_path_value(library, environment("LD_LIBRARY_PATH")).c_str(), 1);
}

// Programs share the netdevs of a host through a broker, so one runs, unless the user says otherwise or where it is.
void find_or_start_broker(RunOptions& options) {
  if (options.alone) {
    options.broker = "none";
    const auto say = [&](const std::string& broker) {
      if (!options.quiet) complain(kExitOk, fmt::format("waiting for {} to end, which nobody uses any more", broker));
    };
    return let_broker_end(say);
  }
  if (!options.broker.empty()) return;
  const std::optional<std::string> problem = start_broker({.user = options.user, .faults = options.faults});
  if (!problem) return;
  options.broker = "none";
  if (!options.quiet) complain(kExitOk, fmt::format("no broker, so the program runs alone: {}", *problem));
}

}  // namespace

int run(RunOptions options) {
  if (!options.user.empty()) {
    if (const auto problem = why_not_user(options.user)) return complain(kExitFailed, *problem);
    find_or_start_broker(options);  // with the rights that are about to go
    // So that what is checked is what the user may do.
    if (const auto problem = become_user(options.user)) return complain(kExitFailed, *problem);
  }
  if (const auto refusal = check_settings(options)) return complain(refusal->code, refusal->text);
  const Target target = find_target(options.command.front(), environment("PATH", "/usr/local/bin:/usr/bin:/bin"));
  if (target.kind != TargetKind::kUsable) return complain_about(target, options.command.front());
  const std::optional<std::string> library = library_to_preload();
  if (!library) return kExitFailed;
  if (options.user.empty()) find_or_start_broker(options);
  warn_without_devices(options);
  set_environment(options, *library);

  std::vector<char*> arguments;
  for (std::string& argument : options.command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execvp(target.path.c_str(), arguments.data());
  return complain(kExitNotExecutable, fmt::format("{}: {}", target.path, std::strerror(errno)));
}

}  // namespace uroce::cli
