// SPDX-License-Identifier: BSD-2-Clause
// Random verbs calls, right, borderline and wrong, on two contexts of one netdev, with faults on the wire; in the
// spirit of msquic's spinquic. One thread calls, so that a seed repeats the calls; the engine's own thread works beside
// it. It judges: no crash, no hang, every errno among those of its function, EBUSY exactly when in use, valid transfers
// intact, everything can be destroyed in the end. Exit codes: 0 all right, 1 a check failed, 2 wrong usage, 77 skipped:
// no right to make a network namespace.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <thread>

#include "tests/abi/verbs/own_network.h"
#include "tests/stress/soak_objects.h"

namespace {

using namespace uroce::stress;

constexpr int kSkipped = 77;
constexpr uint32_t kPatience = 60;   // seconds
constexpr uint32_t kRound = 20'000;  // calls between clean slates

struct Options {
  uint32_t seconds = 10;
  uint64_t seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) % 1'000'000;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seconds")
      options.seconds = static_cast<uint32_t>(value);
    else if (name == "--seed")
      options.seed = value;
    else
      return false;
  }
  return true;
}

ibv_context* open_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (context == nullptr) give_up("ibv_open_device: %s", std::strerror(errno));
  ibv_free_device_list(list);
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  return context;
}

void one_call(Objects& objects) {
  const uint32_t kind = objects.random.below(1000);
  if (kind < 300)
    random_call(objects);
  else if (kind < 940)
    random_work(objects);
  else if (kind < 998)
    random_query(objects);
  else
    transfer(objects);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs("usage: soak [--seconds N] [--seed N]\n", stderr);
    return 2;
  }
  const std::string command =
      "soak --seed " + std::to_string(options.seed) + " --seconds " + std::to_string(options.seconds);
  set_command(command);
  std::printf("%s\n", command.c_str());
  std::fflush(stdout);
  if (!enter_own_network()) {
    std::fputs("skipped: this needs the right to make a network namespace\n", stderr);
    return kSkipped;
  }
  setenv("UROCE_NETDEV", "rdma0", 1);
  setenv("UROCE_IO", "udp", 0);
  setenv("UROCE_QUIET", "1", 0);
  setenv("UROCE_FAULTS", ("drop=0.5%,dup=0.5%,reorder=0.5%,corrupt=0.5%,seed=" + std::to_string(options.seed)).c_str(),
         0);

  Random random(options.seed);
  Objects objects(random);
  Watchdog watchdog(kPatience);
  watchdog.watch(pthread_self(), objects.activity, "the caller");
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      watchdog.check();
    }
  });
  uint64_t calls = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  while (std::chrono::steady_clock::now() < end) {
    objects.contexts = {open_device(), open_device()};
    for (uint32_t i = 0; i < kRound && std::chrono::steady_clock::now() < end; ++i, ++calls) one_call(objects);
    destroy_everything(objects);
    for (ibv_context* context : objects.contexts) {
      objects.activity.at("close");
      if (ibv_close_device(context) != 0) give_up("ibv_close_device");
    }
  }
  stop = true;
  watcher.join();
  std::printf("%lu calls: %lu succeeded, %lu failed as they should, %lu of them busy; %lu transfers\n",
              static_cast<unsigned long>(calls), static_cast<unsigned long>(objects.successes),
              static_cast<unsigned long>(objects.failures), static_cast<unsigned long>(objects.busy),
              static_cast<unsigned long>(objects.transfers));
  if (objects.transfers == 0 || objects.busy == 0) give_up("nothing was tried");
  return 0;
}
