// SPDX-License-Identifier: BSD-2-Clause
// The command line: uroce run | devices | doctor | stat | capture | check | version. Parses the arguments and hands
// over.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <sys/auxv.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/usage.h"
#include "broker/protocol/statistics.h"
#include "capture/settings.h"
#include "cli/arguments.h"
#include "cli/capture.h"
#include "cli/check.h"
#include "cli/complaint.h"
#include "cli/device_list.h"
#include "cli/devices.h"
#include "cli/doctor.h"
#include "cli/exit_codes.h"
#include "cli/run.h"
#include "cli/screen.h"
#include "cli/stat.h"
#include "cli/version.h"
#include "engine/net/device_names.h"
#include "process/options.h"

namespace uroce::cli {
namespace {

using usage::number_from;
using usage::one_of;

// What stands behind an option's name in --help is option_text(): without it CLI11 shows its types and checks.
constexpr const char* kExitCodes = "Exit codes: 0 ok, 1 failed, 2 wrong usage. See uroce(1).";

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run a program that uses libibverbs, with uroce as its RDMA provider");
  run->add_option("command", options.command, "The program and its arguments; whatever follows it is not for uroce")
      ->option_text(" ")
      ->required();
  run->add_option("--io", options.io,
                  "Packet I/O: af_xdp (root), udp (anybody), a port of DPDK, or auto: what is best for the netdev")
      ->check([](const std::string& text) {
        engine::Options unused;
        return engine::Options::parse_io(text, unused) ? std::string() : text + " is none of " + unused.kIoWords;
      })
      ->envname("UROCE_IO")
      ->option_text("auto|af_xdp|udp|dpdk[:PORT]");
  run->add_option("--dpdk-addresses", options.dpdk_addresses, "File with the addresses of a DPDK port without netdev")
      ->envname("UROCE_DPDK_ADDRESSES")
      ->option_text("FILE");
  run->add_option("--dpdk-tap", options.dpdk_tap, "Tap that has a DPDK port's addresses and all its other traffic")
      ->envname("UROCE_DPDK_TAP")
      ->option_text("NAME");
  run->add_option("--netdev", options.netdev, "Only these netdevs become devices, e.g. eth0 or eth0,ens*")
      ->envname("UROCE_NETDEV")
      ->option_text("NAME");
  run->add_option("--name", options.names, "What the device of a netdev is called, for programs that insist on it")
      ->join(',')
      ->check([](const std::string& text) { return engine::wrong_device_names(text); })
      ->envname("UROCE_NAMES")
      ->option_text("NETDEV=NAME");
  run->add_option("--faults", options.faults, "Make faults, e.g. drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,seed=7")
      ->envname("UROCE_FAULTS")
      ->option_text("SPEC");
  run->add_option("--xdp-mode", options.xdp_mode, "XDP in the driver (native), in the stack (generic), or auto")
      ->check(one_of({"auto", "native", "generic"}))
      ->envname("UROCE_XDP_MODE")
      ->option_text("auto|native|generic");
  run->add_option("--patience", options.patience,
                  "Wait for a peer that is away for so many seconds at least, also where the program would not")
      ->check(number_from(1, 86400))
      ->envname("UROCE_PATIENCE")
      ->option_text("SECONDS");
  run->add_option("--capture", options.capture,
                  "Write all packets to FILE (pcapng); %p in it becomes the process id, %d the device")
      ->envname("UROCE_CAPTURE")
      ->option_text("FILE");
  run->add_option("--capture-snap", options.capture_snap, "Keep so many bytes of each packet, at least 64")
      ->check(number_from(io::kSmallestSnap, 1 << 18))
      ->option_text("BYTES");
  run->add_option("--capture-files", options.capture_files, "A ring of so many files, of --capture-size each")
      ->check(number_from(2, 99999))
      ->option_text("N");
  run->add_option("--capture-size", options.capture_size, "Megabytes per file of the ring")
      ->check(number_from(1, 1 << 20))
      ->option_text("MB");
  run->add_option("--capture-qpn", options.capture_qpn, "Only packets of these QPs, e.g. 0x11,0x12")
      ->option_text("QPN,...");
  run->add_flag("--alone", options.alone, "Without broker: the program is the only one with uroce on its netdevs")
      ->option_text(" ");
  run->add_option("--broker", options.broker, "Where the broker listens: a path or @NAME; by default it is found")
      ->excludes("--alone")
      ->envname("UROCE_BROKER")
      ->option_text("ADDRESS");
  run->add_flag("--no-files", options.no_files, "Do not show the program /sys/class/infiniband and /dev/infiniband");
  run->add_flag("--counters", options.counters, "At the end of the program, print the counters that moved on stderr");
  run->add_option("--user", options.user,
                  "Run the program as this user, with just the capabilities that AF_XDP takes (as root)")
      ->option_text("NAME");
  run->add_flag("--keep-capabilities", options.keep_capabilities,
                "Do not give up these capabilities once the packet I/O is open");
  run->add_flag("--no-wake-by-packets", options.wakes_by_events_only,
                "Only events wake a program that polls a non-blocking channel: slower, and never for an empty queue");
  run->add_flag("--quiet", options.quiet, "No line about the packet I/O on stderr");
  run->footer(
      "Examples:\n"
      "  sudo uroce run ib_send_lat -d uroce_eth0            (server)\n"
      "  sudo uroce run ib_send_lat -d uroce_eth0 192.0.2.1  (client)\n"
      "  sudo uroce run --user alice ib_send_lat -d uroce_eth0\n"
      "  uroce run --io udp -- ibv_rc_pingpong -g 0 192.0.2.1\n"
      "  sudo uroce run --faults drop=1% -- ib_write_bw -d uroce_eth0 192.0.2.1\n"
      "  uroce run --capture trace.pcapng ib_write_lat -d uroce_eth0 192.0.2.1\n\n"
      "Environment variables (UROCE_IO ...) are in uroce(1).\n"
      "Exit code: the command's; 1 refused beforehand, 2 wrong usage, 126 not executable, 127 not found.");
  return run;
}

CLI::App* add_devices(CLI::App& app, bool& gids, bool& json) {
  CLI::App* devices = app.add_subcommand("devices", "List the RDMA devices that programs will see");
  CLI::Option* list = devices->add_flag("--gids", gids, "A line for each GID, as show_gids prints them");
  devices->add_flag("--json", json, "Print JSON")->excludes(list);
  devices->footer(
      std::string(
          "Examples:\n  uroce devices\n  uroce devices --gids\n  sudo uroce devices --json | jq '.[].device'\n\n") +
      kExitCodes);
  return devices;
}

CLI::App* add_doctor(CLI::App& app, std::string& netdev, bool& json) {
  CLI::App* doctor = app.add_subcommand("doctor", "Check whether uroce can work here, and say what to do if not");
  doctor->add_option("--netdev", netdev, "Look at this netdev only")->option_text("NAME");
  doctor->add_flag("--json", json, "Print JSON");
  doctor->footer(
      "Examples:\n  uroce doctor\n  sudo uroce doctor --netdev eth0\n\n"
      "Exit code: 0 at least one device can be used, 1 none can, 2 wrong usage.");
  return doctor;
}

CLI::App* add_stat(CLI::App& app, StatOptions& options) {
  CLI::App* stat = app.add_subcommand("stat", "Show what the programs of this host move: processes, QPs, rates, drops");
  CLI::Option* json = stat->add_flag("--json", options.json, "Print JSON");
  CLI::Option* prometheus = stat->add_flag("--prometheus", options.prometheus, "Print the text format of Prometheus");
  CLI::Option* watch = stat->add_flag("--watch", options.watch,
                                      "Show it again and again: on a terminal full screen, q ends it; else in lines");
  json->excludes(prometheus)->excludes(watch);
  prometheus->excludes(watch);
  stat->add_option("--serve", options.serve, "Serve Prometheus by HTTP: PORT of 127.0.0.1, or ADDRESS:PORT")
      ->excludes(json)
      ->excludes(prometheus)
      ->excludes(watch)
      ->option_text("[ADDRESS:]PORT");
  stat->add_option("--interval", options.interval, "Rates are of so long (default 1); 0: totals instead")
      ->check(number_from(0, 86400))
      ->option_text("SECONDS");
  stat->add_option("--count", options.count, "With --watch: end after so many times")
      ->check(number_from(1))
      ->needs(watch)
      ->option_text("N");
  stat->add_option("--qps", options.most_qps, "List so many QPs of each process (default 256)")
      ->check(number_from(0, broker::kMostQps))
      ->option_text("N");
  stat->add_option("--broker", options.broker, "Where the broker listens: a path or @NAME; by default it is found")
      ->envname("UROCE_BROKER")
      ->option_text("ADDRESS");
  stat->footer(
      "Examples:\n"
      "  uroce stat\n"
      "  sudo uroce stat --watch                               (all users' programs)\n"
      "  uroce stat --json --interval 0 | jq '.processes[].program'\n"
      "  sudo uroce stat --prometheus >/var/lib/node_exporter/uroce.prom\n"
      "  sudo uroce stat --serve 9791                          (http://127.0.0.1:9791/metrics)\n\n"
      "Exit code: 0 ok, 1 failed, 2 wrong usage, 3 there is no broker.");
  return stat;
}

CLI::App* add_capture(CLI::App& app, CaptureOptions& options) {
  CLI::App* capture = app.add_subcommand("capture", "Listen to the packets of a process that is running");
  capture
      ->add_option("target", options.target,
                   "Process id, device or netdev, needed if there are several; uroced: the broker's QP1")
      ->option_text(" ");
  capture->add_option("-w,--write", options.file, "Write pcapng to this file, - for standard output")
      ->option_text("FILE");
  capture->add_option("-s,--snap", options.snap, "Keep so many bytes of each packet, at least 64")
      ->check(number_from(io::kSmallestSnap, 1 << 18))
      ->option_text("BYTES");
  capture->add_option("--qpn", options.qpns, "Only packets of these QPs, e.g. 0x11,0x12")
      ->take_all()
      ->expected(1)
      ->option_text("QPN,...");
  capture->add_option("-c,--count", options.count, "Stop after so many packets")
      ->check(number_from(1))
      ->option_text("N");
  capture->add_option("--duration", options.duration, "Stop after so many seconds")
      ->check(number_from(0.001, 1e9))
      ->option_text("SECONDS");
  capture->add_option("--files", options.files, "A ring of so many files, of --size each")
      ->check(number_from(2, 99999))
      ->option_text("N");
  capture->add_option("--size", options.size, "Megabytes per file of the ring")
      ->check(number_from(1, 1 << 20))
      ->option_text("MB");
  capture->add_flag("-l,--list", options.list, "List the processes that can be listened to");
  capture->add_flag("-q,--quiet", options.quiet, "No lines on stderr unless packets are missing");
  capture->footer(
      "Examples:\n"
      "  uroce capture -w trace.pcapng                    (the only process there is)\n"
      "  uroce capture 4711 -w trace.pcapng --duration 5\n"
      "  uroce capture uroce_eth0 -w - | tshark -r -\n"
      "  uroce capture -w - | wireshark -k -i -\n"
      "  uroce capture uroced -w cm.pcapng                (what the connection manager says)\n\n"
      "Ctrl-C ends the capture, not the process. Exit code: 0 ok, 1 failed, 2 wrong usage.");
  return capture;
}

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* check = app.add_subcommand("check", "Judge whether the endpoints in a capture kept the rules of RC");
  check->add_option("file", options.file, "A capture, pcapng or pcap")->required()->option_text(" ");
  check->add_option("--at", options.at, "Judge the host with this address, at which the capture was taken")
      ->take_all()
      ->expected(1)
      ->option_text("ADDRESS");
  check->add_option("--slack", options.slack, "What may lie between capture point and transport (default 1ms)")
      ->option_text("DURATION");
  check->add_option("--mtu", options.path_mtu, "The path MTU, if it does not show")
      ->check(one_of({"256", "512", "1024", "2048", "4096"}))
      ->option_text("BYTES");
  check
      ->add_option("--patience", options.patience,
                   "Allow that all retries together take so long, as uroce run --patience does")
      ->check(number_from(1, 86400))
      ->option_text("SECONDS");
  check->add_option("--limit", options.limit, "Print this many violations and count the rest (default 50)")
      ->check(number_from(0))
      ->option_text("N");
  CLI::Option* quiet = check->add_flag("--quiet", options.quiet, "Print nothing but violations");
  check->add_flag("--json", options.json, "Print JSON")->excludes(quiet);
  check->footer(
      "Examples:\n"
      "  uroce check trace.pcapng\n"
      "  uroce check --at 192.0.2.1 --at 192.0.2.2 --slack 100us trace.pcap\n"
      "  uroce check --json trace.pcapng | jq '.violations[].rule'\n\n"
      "Exit code: 0 no rule was broken, 1 some were, 2 wrong usage or no readable capture of RoCE v2.");
  return check;
}

int show_devices(bool gids, bool json) {
  const auto devices = list_devices();
  if (!devices) return kExitFailed;
  if (json) {
    fmt::print("{}", devices_json(*devices));
    return kExitOk;
  }
  if (!devices->empty()) fmt::print("{}", gids ? gids_text(*devices) : devices_text(*devices));
  const std::string why = why_no_device_is_listed();
  if (!why.empty()) fmt::print("{}\n", why);
  return kExitOk;
}

int show_doctor(const std::string& netdev, bool json) {
  if (!netdev.empty()) setenv("UROCE_NETDEV", "*,lo", 1);  // also one that is no device unless named
  auto devices = list_devices();
  if (!devices) return kExitFailed;
  if (!netdev.empty()) {
    std::erase_if(*devices, [&](const Device& device) { return device.netdev != netdev && device.name != netdev; });
    if (devices->empty()) {
      return complain(kExitFailed, fmt::format("no usable netdev '{}'; see uroce devices", netdev));
    }
  }
  HostFacts host = collect_host_facts();
  if (netdev.empty()) host.no_devices = why_no_device_is_listed();
  for (Device& device : *devices) {
    device.no_udp = host.broker.found() ? host.broker.refuses : udp_obstacle(device.netdev);
  }
  const Report report = diagnose(host, *devices);
  const bool colour = Screen::is_there() && secure_getenv("NO_COLOR") == nullptr;
  fmt::print("{}", json ? format_json(report) : format_text(report, colour));
  return report.usable ? kExitOk : kExitFailed;
}

// For who has typed the name alone. With a device of this host, so that lines can be copied.
int show_first_steps() {
  const auto devices = list_devices();
  if (!devices) return kExitFailed;
  const auto active =
      std::find_if(devices->begin(), devices->end(), [](const Device& device) { return device.active; });
  const std::string device = active == devices->end() ? "uroce_eth0" : active->name;
  const std::string run = fmt::format("uroce run ib_write_bw -d {}", device);
  fmt::print("RDMA programs on any netdev, without an RDMA device.\n\n");
  for (const auto& [command, what] : {
           std::pair{std::string("uroce doctor"), "can it work here, and what to do if not?"},
           std::pair{std::string("uroce devices"), "the devices that programs get"},
           std::pair{run, "a program that uses one of them"},
       }) {
    fmt::print("  {:{}}  {}\n", command, run.size(), what);
  }
  fmt::print("\nAll of it: uroce --help, man uroce\n");
  return kExitOk;
}

std::vector<std::string> options_with_value(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected() == 0) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Options of `run` are checked whatever the subcommand is, when they come from the environment. "" unless this is one,
// else its variable.
std::string variable_at_fault(const CLI::App& run, const std::string& what, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : run.get_options()) {
    const std::string name = option->get_name();
    if (option->get_envname().empty() || !what.starts_with(name + ": ")) continue;
    const auto names_it = [&](const std::string& word) { return word == name || word.starts_with(name + "="); };
    return std::any_of(arguments.begin(), arguments.end(), names_it) ? "" : option->get_envname();
  }
  return "";
}

int complain_about_usage(const CLI::App& app, const CLI::App& run, const CLI::ParseError& error,
                         const std::vector<std::string>& arguments) {
  const auto parsed = app.get_subcommands();
  std::string command = parsed.empty() ? "uroce" : "uroce " + parsed.front()->get_name();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return complain(kExitUsage, command == "uroce run" ? "a program is missing; for example: uroce run ibv_devices"
                                                       : "a file is missing; for example: uroce check trace.pcapng");
  }
  std::string what = usage::describe(error);
  if (const std::string variable = variable_at_fault(run, what, arguments); !variable.empty()) {
    what = variable + what.substr(what.find(": "));
    command = "uroce run";
  }
  return complain(kExitUsage, fmt::format("{}; see {} --help", what, command));
}

// Of a program that gained privileges when it was started (set-user-ID, file capabilities) the environment is its
// caller's. CLI11 asks getenv(), and what uroce starts would get them, too.
void forget_settings_of_the_caller() {
  if (getauxval(AT_SECURE) == 0) return;
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("UROCE_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

int main(int argc, char** argv) {
  forget_settings_of_the_caller();
  CLI::App app{"RoCE v2 in user space: RDMA programs on any netdev, no RDMA device and no kernel module"};
  app.name("uroce");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_line());
  app.footer(std::string("Examples:\n  uroce doctor\n  uroce devices\n  sudo uroce run ib_write_bw -d uroce_eth0\n\n") +
             kExitCodes);

  RunOptions run_options;
  CaptureOptions capture_options;
  CheckOptions check_options;
  StatOptions stat_options;
  bool gids = false, devices_as_json = false, doctor_as_json = false;
  std::string doctor_netdev;
  const CLI::App* run_command = add_run(app, run_options);
  const CLI::App* devices_command = add_devices(app, gids, devices_as_json);
  const CLI::App* doctor_command = add_doctor(app, doctor_netdev, doctor_as_json);
  const CLI::App* stat_command = add_stat(app, stat_options);
  const CLI::App* capture_command = add_capture(app, capture_options);
  const CLI::App* check_command = add_check(app, check_options);
  const CLI::App* version_command = app.add_subcommand("version", "Print the version");

  std::vector<std::string> arguments = mark_command({argv + 1, argv + argc}, options_with_value(*run_command));
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return complain_about_usage(app, *run_command, error, {argv + 1, argv + argc});
    app.exit(error);  // prints help or version
    return kExitOk;
  }

  if (run_command->parsed()) return run(std::move(run_options));
  if (devices_command->parsed()) return show_devices(gids, devices_as_json);
  if (doctor_command->parsed()) return show_doctor(doctor_netdev, doctor_as_json);
  if (stat_command->parsed()) return stat(stat_options);
  if (capture_command->parsed()) return capture(capture_options);
  if (check_command->parsed()) return check(check_options);
  if (version_command->parsed()) {
    fmt::print("{}\n", version_line());
    return kExitOk;
  }
  return show_first_steps();
}

}  // namespace
}  // namespace uroce::cli

int main(int argc, char** argv) {
  return uroce::cli::main(argc, argv);
}
