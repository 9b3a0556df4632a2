// SPDX-License-Identifier: BSD-2-Clause
// Random scenarios by the thousand: simulator_seeds [--seeds N] [--first SEED|fresh] [--capture FILE]
// Exit code 0 if all passed. The first failure writes a capture and prints the command that repeats it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simulator/scenario.h"

using namespace uroce::simulator;

namespace {

struct Options {
  uint64_t first = 1;
  uint64_t seeds = 1000;
  std::string capture = "simulator-failure.pcapng";
};

void usage() {
  std::puts("usage: simulator_seeds [--seeds N] [--first SEED|fresh] [--capture FILE]");
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    const std::string name = argv[i];
    if (name == "--seeds") {
      options.seeds = std::strtoull(argv[i + 1], nullptr, 0);
    } else if (name == "--first") {
      options.first = parse_seed(argv[i + 1]);
    } else if (name == "--capture") {
      options.capture = argv[i + 1];
    } else {
      return false;
    }
  }
  return options.seeds > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return usage(), 2;
  uint64_t frames = 0, lost = 0, retransmissions = 0, ended = 0, messages = 0;
  double virtual_seconds = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    const Outcome outcome = run(random_scenario(seed), seed, options.capture);
    if (!outcome.error.empty()) {
      std::printf("seed %llu: %s\nrepeat: %s --first %llu --seeds 1\n", static_cast<unsigned long long>(seed),
                  outcome.error.c_str(), argv[0], static_cast<unsigned long long>(seed));
      return 1;
    }
    frames += outcome.frames;
    lost += outcome.frames_lost;
    retransmissions += outcome.retransmissions;
    ended += outcome.ended_by_error;
    messages += static_cast<uint64_t>(outcome.completed);
    virtual_seconds += std::chrono::duration<double>(outcome.duration).count();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "seeds %llu..%llu passed: %llu messages exact, %llu frames, %llu lost, %llu sent again, retries exhausted in "
      "%llu "
      "runs; %.1f s of virtual time in %.1f s\n",
      static_cast<unsigned long long>(options.first),
      static_cast<unsigned long long>(options.first + options.seeds - 1), static_cast<unsigned long long>(messages),
      static_cast<unsigned long long>(frames), static_cast<unsigned long long>(lost),
      static_cast<unsigned long long>(retransmissions), static_cast<unsigned long long>(ended), virtual_seconds,
      seconds);
  return 0;
}
