// SPDX-License-Identifier: BSD-2-Clause
// messages_bench: measures one configuration of bench/messages, which says what the figures mean, and prints it as
// JSON. Alone, so that valgrind and perf can be put in front of it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "bench/messages_src/measure.h"
#include "bench/messages_src/network.h"

namespace {

using namespace uroce::messages;

const std::map<std::string, ibv_wr_opcode> kOps{
    {"send", IBV_WR_SEND}, {"write", IBV_WR_RDMA_WRITE}, {"read", IBV_WR_RDMA_READ}};
const std::map<std::string, Place> kPlaces{{"sides", Place::kSides}, {"one", Place::kOne}, {"spread", Place::kSpread}};
constexpr uint32_t kMemoryQps = 8192;

void print_split(const char* side, const Split& split, double messages) {
  const double unit = messages * cycles_per_nanosecond();
  const auto nanoseconds = [unit](uint64_t spent) { return static_cast<double>(spent) / unit; };
  std::printf(R"(, "%s": {"post": %.2f, "round": %.2f, "wire": %.2f, "completion": %.2f})", side,
              nanoseconds(split.post), nanoseconds(split.round), nanoseconds(split.wire),
              nanoseconds(split.completion));
}

void print_messages(const Settings& settings, bool counters) {
  const Result result = measure(settings);
  const uint64_t messages = settings.messages_per_thread() * settings.threads;
  std::printf(R"({"messages": %lu, "repetitions": [)", messages);
  const char* separator = "";
  for (const Repetition& repetition : result.repetitions) {
    std::printf(R"(%s{"seconds": %.6f, "cpu_seconds": %.6f)", separator, repetition.times.seconds,
                repetition.times.cpu_seconds);
    if (settings.split) {
      print_split("requester", repetition.requester, static_cast<double>(messages));
      print_split("responder", repetition.responder, static_cast<double>(messages));
    }
    std::printf("}");
    separator = ", ";
  }
  std::printf("]");
  std::printf("}\n");
  if (counters) std::fputs(result.counters.c_str(), stderr);
}

void print_memory() {
  const IdleMemory memory = idle_memory(kMemoryQps);
  std::printf(R"({"smallest": %.0f, "deep": %.0f})"
              "\n",
              memory.smallest, memory.deep);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures messages between two engines over a memory link, by calls of verbs; see bench/messages --help");
  Settings settings;
  std::pair<int, int> cpus{settings.cpus[0], settings.cpus[1]};
  bool memory = false, counters = false;
  app.add_option("--op", settings.op, "send, write or read")->transform(CLI::CheckedTransformer(kOps));
  app.add_option("--size", settings.size, "bytes of a message")->check(CLI::Range(1, 1 << 20));
  app.add_option("--qps", settings.qps, "used in turn; a multiple of --threads")->check(CLI::Range(1, 65536));
  app.add_option("--idle", settings.idle, "more that are not used")->check(CLI::Range(0, 65535));
  app.add_option("--list", settings.list, "work requests of one post")->check(CLI::Range(1, 1024));
  app.add_option("--threads", settings.threads, "of each side, or that drive both")->check(CLI::Range(1, 64));
  app.add_option("--window", settings.window, "messages of a thread under way")->check(CLI::Range(1, 16384));
  app.add_option("--place", settings.place, "sides, one or spread")->transform(CLI::CheckedTransformer(kPlaces));
  app.add_option("--cpus", cpus, "two CPUs");
  app.add_option("--messages", settings.messages, "of a repetition");
  app.add_option("--repetitions", settings.repetitions, "after one that does not count");
  app.add_flag("--split", settings.split, "say where the time goes, which costs some");
  app.add_flag("--counters", counters, "print what the engines counted, to stderr");
  app.add_flag("--memory", memory, "instead: bytes of an idle QP");
  CLI11_PARSE(app, argc, argv);
  settings.cpus[0] = cpus.first;
  settings.cpus[1] = cpus.second;

  try {
    if (settings.qps % settings.threads != 0) throw CLI::ValidationError("--qps", "not a multiple of --threads");
    make_network(settings.split);
    memory ? print_memory() : print_messages(settings, counters);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "messages_bench: %s\n", error.what());
    return 1;
  }
}
