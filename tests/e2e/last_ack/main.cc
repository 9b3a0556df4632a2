// SPDX-License-Identifier: BSD-2-Clause
// last_ack: receives one message and ends at once; the sender is to hear that the message has arrived, as it does from
// an adapter, which acknowledges whatever becomes of the program. Over any libibverbs. Run by last_ack.py:
//
//     last_ack --device D --shared FILE --role receiver|sender [--wait poll|event|memory] [--end HOW] [--rounds N]
//
// FILE is of one run, empty at first; both have it. HOW: see end.cc. The receiver makes a process for each round. Exit
// code: 0 all messages were acknowledged (if HOW is "kill": or the sender's QP has ended with an error), 1 not, and
// stderr says what.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <getopt.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/last_ack/end.h"
#include "tests/e2e/last_ack/endpoint.h"

namespace uroce::last_ack {
namespace {

struct Options {
  std::string device, shared, role, end = "_exit";
  Wait wait = Wait::kPoll;
  uint32_t rounds = 10;
};

Wait wait_named(const std::string& name) {
  if (name == "event") return Wait::kEvent;
  if (name == "memory") return Wait::kMemory;
  check(name == "poll", "no such way to wait: " + name);
  return Wait::kPoll;
}

Options parse(int argc, char** argv) {
  static const option kLong[] = {
      {"device", required_argument, nullptr, 'd'},
      {"shared", required_argument, nullptr, 'f'},
      {"role", required_argument, nullptr, 'r'},
      {"wait", required_argument, nullptr, 'w'},
      {"end", required_argument, nullptr, 'e'},
      {"rounds", required_argument, nullptr, 'n'},
      {nullptr, 0, nullptr, 0},
  };
  Options options;
  for (int letter; (letter = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    if (letter == 'd') options.device = optarg;
    if (letter == 'f') options.shared = optarg;
    if (letter == 'r') options.role = optarg;
    if (letter == 'w') options.wait = wait_named(optarg);
    if (letter == 'e') options.end = optarg;
    if (letter == 'n') options.rounds = static_cast<uint32_t>(std::atol(optarg));
    check(letter != '?', "usage: see main.cc");
  }
  check(options.role == "receiver" || options.role == "sender", "no such role: " + options.role);
  check(options.rounds >= 1 && options.rounds <= kMostRounds, "rounds: 1 to " + std::to_string(kMostRounds));
  check_name(options.end);
  return options;
}

Shared& map(const std::string& file) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0, "cannot open " + file);
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check(memory != MAP_FAILED, "cannot map " + file);
  ::close(fd);
  return *static_cast<Shared*>(memory);  // zeros are what its counts begin with
}

// By turns one packet and nine.
uint32_t size_of(uint32_t round) {
  return round % 2 == 0 ? 2 : kLargest;
}

[[noreturn]] void receive_one(const Options& options, Shared& shared, uint32_t number) {
  try {
    Endpoint endpoint(options.device, options.wait);
    endpoint.connect(shared, shared.rounds[number], 1);
    endpoint.receive(shared, size_of(number));
    end(options.end, endpoint);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "last_ack: receiver, round %u: %s\n", number, error.what());
    shared.failed.store(1);
    _exit(1);
  }
}

void run_receiver(const Options& options, Shared& shared) {
  for (uint32_t i = 0; i < options.rounds; ++i) {
    const pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) receive_one(options, shared, i);
    int status = 0;
    check(waitpid(child, &status, 0) == child, "waitpid");
    const bool well = kills(options.end) ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                         : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    check(well, "round " + std::to_string(i) + ": wait status " + std::to_string(status));
  }
}

void run_sender(const Options& options, Shared& shared) {
  Endpoint endpoint(options.device, options.wait == Wait::kMemory ? Wait::kMemory : Wait::kPoll);
  uint32_t acknowledged = 0;
  for (uint32_t i = 0; i < options.rounds; ++i) {
    Round& round = shared.rounds[i];
    endpoint.connect(shared, round, 0);
    const ibv_wc_status status = endpoint.send(shared, round.sides[1], size_of(i));
    if (status == IBV_WC_SUCCESS) ++acknowledged;
    const bool excused = kills(options.end) && status == IBV_WC_RETRY_EXC_ERR;
    if (status != IBV_WC_SUCCESS && !excused) {
      std::fprintf(stderr, "last_ack: round %u, %u bytes: %s\n", i, size_of(i), ibv_wc_status_str(status));
    }
    endpoint.destroy_qp();
  }
  std::printf("last_ack: %u of %u messages acknowledged\n", acknowledged, options.rounds);
  check(kills(options.end) || acknowledged == options.rounds, "a message that arrived was not acknowledged");
}

int run(const Options& options) {
  Shared& shared = map(options.shared);
  try {
    options.role == "receiver" ? run_receiver(options, shared) : run_sender(options, shared);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "last_ack: %s: %s\n", options.role.c_str(), error.what());
    shared.failed.store(1);
    return 1;
  }
}

}  // namespace
}  // namespace uroce::last_ack

int main(int argc, char** argv) {
  try {
    return uroce::last_ack::run(uroce::last_ack::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "last_ack: %s\n", error.what());
    return 2;
  }
}
