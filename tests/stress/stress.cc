// SPDX-License-Identifier: BSD-2-Clause
// Eight threads, each with 64 QPs of all transports, connected to each other on one netdev; random work, random
// destruction, every byte and every completion checked (link.h). Beside them threads that open and close the device,
// query, and take asynchronous events. Built with ThreadSanitizer and AddressSanitizer, which see both sides of the
// API. Exit codes: 0 all right, 1 a check failed, 2 wrong usage, 77 skipped: no right to make a network namespace.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/verbs/own_network.h"
#include "tests/stress/group.h"
#include "tests/stress/link.h"

namespace {

using namespace uroce::stress;

constexpr int kSkipped = 77;
constexpr uint32_t kGroups = 4;  // of 8 links of 2 QPs

struct Options {
  uint32_t seconds = 10, threads = 8, patience = 90;
  uint64_t seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) % 1'000'000;
};

struct Run {
  Options options;
  Totals totals;
  std::atomic<bool> stop{false};
  std::vector<ibv_context*> contexts;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seconds")
      options.seconds = static_cast<uint32_t>(value);
    else if (name == "--threads")
      options.threads = static_cast<uint32_t>(value);
    else if (name == "--patience")
      options.patience = static_cast<uint32_t>(value);
    else if (name == "--seed")
      options.seed = value;
    else
      return false;
  }
  return options.threads != 0;
}

ibv_context* open_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (context == nullptr) give_up("ibv_open_device: %s", std::strerror(errno));
  ibv_free_device_list(list);
  return context;
}

void work(Run& run, uint32_t number, Activity& activity) {
  Random random(run.options.seed * 1000 + number);
  ibv_context* const context = run.contexts[number % run.contexts.size()];
  ibv_pd* const pd = ibv_alloc_pd(context);
  if (pd == nullptr) give_up("ibv_alloc_pd: %s", std::strerror(errno));
  std::vector<std::unique_ptr<Group>> groups(kGroups);
  while (!run.stop.load(std::memory_order_relaxed)) {
    std::unique_ptr<Group>& group = groups[random.below(kGroups)];
    if (group != nullptr && group->wants_remake()) group.reset();
    if (group == nullptr) group = std::make_unique<Group>(context, pd, random, run.totals, activity);
    group->step();
  }
  activity.at("the end");
  if (ibv_dealloc_pd(pd) != EBUSY) give_up("ibv_dealloc_pd: a domain in use goes");
  groups.clear();
  if (const int error = ibv_dealloc_pd(pd)) give_up("ibv_dealloc_pd: %s", std::strerror(error));
}

void take_events(Run& run, ibv_context* context, Activity& activity) {
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  while (!run.stop.load(std::memory_order_relaxed)) {
    activity.at("take asynchronous events");
    pollfd descriptor{context->async_fd, POLLIN, 0};
    ::poll(&descriptor, 1, 20);
    ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0) ibv_ack_async_event(&event);
  }
}

// Contexts come and go; the port is asked.
void disturb(Run& run, Activity& activity) {
  std::vector<uint8_t> memory(1 << 16);
  while (!run.stop.load(std::memory_order_relaxed)) {
    activity.at("open and close the device");
    ibv_context* const context = open_device();
    ibv_port_attr port;
    ibv_gid gid;
    ibv_device_attr device;
    if (ibv_query_port(context, 1, &port) != 0 || ibv_query_gid(context, 1, 0, &gid) != 0 ||
        ibv_query_device(context, &device) != 0) {
      give_up("a query failed: %s", std::strerror(errno));
    }
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_mr* const mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    if (pd == nullptr || mr == nullptr || cq == nullptr) give_up("an object cannot be made: %s", std::strerror(errno));
    if (ibv_destroy_cq(cq) != 0 || ibv_dereg_mr(mr) != 0 || ibv_dealloc_pd(pd) != 0) give_up("an object does not go");
    if (ibv_close_device(context) != 0) give_up("ibv_close_device");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void print(const Totals& totals) {
  const auto number = [](const std::atomic<uint64_t>& count) { return static_cast<unsigned long>(count); };
  std::printf(
      "sends %lu writes %lu reads %lu atomics %lu receives %lu (shared %lu, XRC %lu, UC %lu, UD %lu)\n"
      "through windows %lu refused %lu flushed %lu events %lu groups remade %lu\n",
      number(totals.sends), number(totals.writes), number(totals.reads), number(totals.atomics),
      number(totals.receives), number(totals.shared), number(totals.xrc), number(totals.unreliable),
      number(totals.datagrams), number(totals.windows), number(totals.refused), number(totals.flushed),
      number(totals.events), number(totals.remade));
}

// A run that did nothing of a kind proves nothing about it.
void check_coverage(const Totals& totals) {
  const std::pair<const char*, const std::atomic<uint64_t>*> kinds[] = {
      {"send", &totals.sends},     {"WRITE", &totals.writes},     {"READ", &totals.reads},
      {"atomic", &totals.atomics}, {"receive", &totals.receives}, {"shared receive", &totals.shared},
      {"XRC", &totals.xrc},        {"UC", &totals.unreliable},    {"UD", &totals.datagrams},
      {"window", &totals.windows}, {"refused", &totals.refused},  {"flush", &totals.flushed}};
  for (const auto& [name, count] : kinds) {
    if (*count == 0) give_up("nothing of the kind \"%s\" was done", name);
  }
}

void run_all(Run& run) {
  const uint32_t count = run.options.threads;
  std::vector<Activity> activities(count + 3);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back([&, i] { work(run, i, activities[i]); });
  threads.emplace_back([&] { take_events(run, run.contexts[0], activities[count]); });
  threads.emplace_back([&] { take_events(run, run.contexts[1], activities[count + 1]); });
  threads.emplace_back([&] { disturb(run, activities[count + 2]); });
  Watchdog watchdog(run.options.patience);
  for (uint32_t i = 0; i < threads.size(); ++i) {
    watchdog.watch(threads[i].native_handle(), activities[i], "thread " + std::to_string(i));
  }
  for (uint32_t second = 0; second < run.options.seconds; ++second) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    watchdog.check();
  }
  run.stop = true;
  // The workers end first: they need those that take events.
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  Run run;
  if (!parse(argc, argv, run.options)) {
    std::fputs("usage: stress [--seconds N] [--seed N] [--threads N] [--patience SECONDS]\n", stderr);
    return 2;
  }
  const std::string command = "stress --seed " + std::to_string(run.options.seed) + " --threads " +
                              std::to_string(run.options.threads) + " --seconds " + std::to_string(run.options.seconds);
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
  run.contexts = {open_device(), open_device()};
  run_all(run);
  for (ibv_context* context : run.contexts) ibv_close_device(context);
  print(run.totals);
  check_coverage(run.totals);
  return 0;
}
