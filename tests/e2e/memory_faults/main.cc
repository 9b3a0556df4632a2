// SPDX-License-Identifier: BSD-2-Clause
// memory_faults: an application that misbehaves as applications do, over any libibverbs. It unmaps, protects, truncates
// or deregisters memory that is in use, or never polls a completion queue. The server is the victim of that, the client
// its peer; both must end well. Run by memory_faults.py:
//
//     memory_faults --server --port P --device D ROLE WAY        and on the other host, with the same words,
//     memory_faults --client HOST --port P --device D ROLE WAY
//
// ROLE and WAY: see trial.cc and region.cc; or "send-cq overrun", "receive-cq overrun". Exit code: 0 all is as it must
// be, 1 it is not, and stderr says what.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <getopt.h>
#include <string>

#include "tests/e2e/memory_faults/application_fault.h"
#include "tests/e2e/memory_faults/failure.h"
#include "tests/e2e/memory_faults/overrun.h"

namespace uroce::memory_faults {
namespace {

struct Options {
  std::string host;  // empty: server
  uint16_t port = 0;
  std::string device;
  int gid_index = 0;
  Drive drive = Drive::kPoll;
  std::string handler = "before";  // the application's: before the library's, after it, none
  bool block_signals = false;      // as threads of programs do that take their signals with sigwait() or signalfd()
  std::string role, way;

  Side side() const { return host.empty() ? Side::kVictim : Side::kPeer; }
};

Options parse(int argc, char** argv) {
  static const option kLong[] = {
      {"server", no_argument, nullptr, 's'},
      {"client", required_argument, nullptr, 'c'},
      {"port", required_argument, nullptr, 'p'},
      {"device", required_argument, nullptr, 'd'},
      {"gid-index", required_argument, nullptr, 'g'},
      {"sleep", no_argument, nullptr, 'S'},
      {"handler", required_argument, nullptr, 'h'},
      {"block-signals", no_argument, nullptr, 'b'},
      {nullptr, 0, nullptr, 0},
  };
  Options options;
  for (int letter; (letter = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    if (letter == 'c') options.host = optarg;
    if (letter == 'p') options.port = static_cast<uint16_t>(std::atoi(optarg));
    if (letter == 'd') options.device = optarg;
    if (letter == 'g') options.gid_index = std::atoi(optarg);
    if (letter == 'S') options.drive = Drive::kSleep;
    if (letter == 'h') options.handler = optarg;
    if (letter == 'b') options.block_signals = true;
    check(letter != '?', "usage: see main.cc");
  }
  check(argc - optind == 2, "which role and way?");
  options.role = argv[optind];
  options.way = argv[optind + 1];
  return options;
}

void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

void run(const Options& options) {
  if (options.block_signals) block_all_signals();
  if (options.handler == "before") install_application_handler();
  const bool server = options.side() == Side::kVictim;
  const Control control = server ? Control::serve(options.port) : Control::connect(options.host, options.port);
  const Device device(options.device, options.gid_index);
  run_healthy(device, control, options.side(), options.drive);
  if (options.handler == "after") install_application_handler();  // the next registration puts the library in front
  if (options.way == "overrun") {
    run_overrun(device, control, options.side(), options.role);
  } else {
    run_trial(device, control, options.side(), options.role, way_by_name(options.way), options.drive);
  }
  expect_no_foreign_faults();
  run_healthy(device, control, options.side(), options.drive);
  if (options.block_signals) return;  // a fault of its own would kill it, with or without the library
  if (options.handler != "none") expect_own_fault_handled();
  expect_unknown_fault_kills(options.handler != "none");
}

}  // namespace
}  // namespace uroce::memory_faults

int main(int argc, char** argv) {
  try {
    const auto options = uroce::memory_faults::parse(argc, argv);
    uroce::memory_faults::run(options);
    std::puts("OK");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_faults: %s\n", error.what());
    return 1;
  }
}
