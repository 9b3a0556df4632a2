// SPDX-License-Identifier: BSD-2-Clause
// rc_transfer: proves data integrity and exactly-once, in-order completions of RC between two processes or, with
// --self, between two QPs of one. Knows nothing of uroce: it runs over any libibverbs, and over ours when ours is
// preloaded. Run by hand, by the end-to-end tests and the fault soak; README.md says what is checked and how.

#include <atomic>
#include <cstdio>
#include <fmt/format.h>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tests/e2e/transfer/failure.h"
#include "tests/e2e/transfer/session.h"

namespace uroce::transfer {
namespace {

// Ends the process when a library call does not come back, which no deadline in the loop can see.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds patience) : thread_([this, patience] { watch(patience); }) {}
  ~Watchdog() {
    stop_.set_value();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  std::atomic<uint64_t>& heartbeat() { return heartbeat_; }

 private:
  void watch(std::chrono::seconds patience) {
    const std::future<void> stopped = stop_.get_future();
    uint64_t seen = heartbeat_;
    while (stopped.wait_for(patience) == std::future_status::timeout) {
      if (heartbeat_ == seen) {
        fmt::print(stderr, "rc_transfer: a library call has not returned for {} s\n", patience.count());
        _exit(static_cast<int>(ExitCode::kTimeout));
      }
      seen = heartbeat_;
    }
  }

  std::atomic<uint64_t> heartbeat_{0};
  std::promise<void> stop_;
  std::thread thread_;  // last: uses the others
};

struct Outcome {
  Result result;
  std::optional<Failure> failure;
};

Outcome outcome(Session& session) {
  try {
    return {session.run(), {}};
  } catch (const Failure& failure) {
    return {{}, failure};
  }
}

Result run_self(Options& options, Device& device, std::atomic<uint64_t>& heartbeat) {
  auto [server_control, client_control] = Control::local_pair();
  Session server_session(options, true, std::move(server_control), device, heartbeat);
  Session client_session(options, false, std::move(client_control), device, heartbeat);
  std::future<Outcome> served = std::async(std::launch::async, [&] { return outcome(server_session); });
  const Outcome client = outcome(client_session);
  const Outcome server = served.get();
  if (client.failure || server.failure) {
    const bool client_caused = client.failure && (!client.failure->echo || !server.failure);
    const Failure& cause = client_caused ? *client.failure : *server.failure;
    const std::optional<Failure>& other = client_caused ? server.failure : client.failure;
    std::string text = cause.what();
    if (other && cause.code == ExitCode::kTimeout) text += fmt::format("\n  {}", other->what());
    throw Failure(cause.code, text);
  }
  Result total = client.result;
  total.completions += server.result.completions;
  return total;
}

Result run(Options& options, std::atomic<uint64_t>& heartbeat) {
  Device device(options.device, options.gid_index);
  if (options.mode == Mode::kSelf) return run_self(options, device, heartbeat);
  const Clock::time_point deadline = Clock::now() + options.timeout;
  const bool is_server = options.mode == Mode::kServer;
  Control control =
      is_server ? Control::serve(options.port, deadline) : Control::connect(options.host, options.port, deadline);
  return Session(options, is_server, std::move(control), device, heartbeat).run();
}

int transfer_main(int argc, char** argv) {
  Options options = parse_options(argc, argv);
  Watchdog watchdog(options.timeout + std::chrono::seconds(5));
  try {
    const Result result = run(options, watchdog.heartbeat());
    fmt::print("OK: {} messages, {} bytes, {} completions, hash {:016x}\n", result.messages, result.bytes,
               result.completions, result.digest);
    return static_cast<int>(ExitCode::kOk);
  } catch (const Failure& failure) {
    std::fflush(stdout);
    fmt::print(stderr, "rc_transfer: {}\n", failure.what());
    if (failure.code != ExitCode::kUsage) {
      fmt::print(stderr, "rc_transfer: seed {}, repeat with '{}'\n", options.plan.seed, options.command());
    }
    return static_cast<int>(failure.code);
  }
}

}  // namespace
}  // namespace uroce::transfer

int main(int argc, char** argv) {
  return uroce::transfer::transfer_main(argc, argv);
}
