// SPDX-License-Identifier: BSD-2-Clause
// data_in_order: watches the bytes of messages come into memory, as programs do that poll memory instead of
// completions, and finds any that is there before one in front of it. Over any libibverbs. Run by data_in_order.py:
//
//     data_in_order --device D --shared FILE --role source|destination|both [--operation write|send|read] [--mtu N]
//                   [--messages N] [--seed N] [--sleeps]
//
// FILE is of one run, empty at first; both sides have it. `both`: in one process, which then talks to itself. Exit
// code: 0 all came in order, 1 not, and stderr says what.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <getopt.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/e2e/data_in_order/sides.h"

namespace uroce::data_in_order {
namespace {

struct Options : Settings {
  std::string shared, role;
};

Operation operation_named(const std::string& name) {
  if (name == "send") return Operation::kSend;
  if (name == "read") return Operation::kRead;
  check(name == "write", "no operation: " + name);
  return Operation::kWrite;
}

Options parse(int argc, char** argv) {
  static const option kLong[] = {
      {"device", required_argument, nullptr, 'd'},    {"gid-index", required_argument, nullptr, 'g'},
      {"shared", required_argument, nullptr, 'f'},    {"role", required_argument, nullptr, 'r'},
      {"operation", required_argument, nullptr, 'o'}, {"mtu", required_argument, nullptr, 'm'},
      {"messages", required_argument, nullptr, 'n'},  {"seed", required_argument, nullptr, 's'},
      {"sleeps", no_argument, nullptr, 'S'},          {nullptr, 0, nullptr, 0},
  };
  Options options;
  for (int letter; (letter = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    if (letter == 'd') options.device = optarg;
    if (letter == 'g') options.gid_index = std::atoi(optarg);
    if (letter == 'f') options.shared = optarg;
    if (letter == 'r') options.role = optarg;
    if (letter == 'o') options.operation = operation_named(optarg);
    if (letter == 'm') options.path_mtu = std::atoi(optarg);
    if (letter == 'n') options.messages = static_cast<uint32_t>(std::atol(optarg));
    if (letter == 's') options.seed = static_cast<uint32_t>(std::atol(optarg));
    if (letter == 'S') options.sleeps = true;
    check(letter != '?', "usage: see main.cc");
  }
  return options;
}

Shared& map(const std::string& file) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0, "cannot open " + file);
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check(memory != MAP_FAILED, "cannot map " + file);
  close(fd);
  return *static_cast<Shared*>(memory);  // zeros are what its counts begin with
}

// The other side is told of a failure, as it waits.
template <class Side>
int run_side(Shared& shared, uint32_t number, Side side) {
  try {
    side();
    return 0;
  } catch (const std::exception& error) {
    shared.sides[number].failed.store(1);
    std::fprintf(stderr, "data_in_order: %s: %s\n", number == 0 ? "source" : "destination", error.what());
    return 1;
  }
}

int run(const Options& options) {
  Shared& shared = map(options.shared);
  const auto source = [&] { return run_side(shared, 0, [&] { run_source(options, shared); }); };
  const auto destination = [&] {
    return run_side(shared, 1, [&] {
      const uint32_t early = run_destination(options, shared);
      std::printf("data_in_order: %u messages, %u out of order\n", options.messages, early);
      check(early == 0, "data has come out of order");
    });
  };
  if (options.role == "source") return source();
  if (options.role == "destination") return destination();
  check(options.role == "both", "no role: " + options.role);
  int code = 0;
  std::thread other([&] { code = source(); });
  const int own = destination();
  other.join();
  return code + own == 0 ? 0 : 1;
}

}  // namespace
}  // namespace uroce::data_in_order

int main(int argc, char** argv) {
  try {
    return uroce::data_in_order::run(uroce::data_in_order::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_in_order: %s\n", error.what());
    return 1;
  }
}
