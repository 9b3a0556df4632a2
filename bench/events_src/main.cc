// SPDX-License-Identifier: BSD-2-Clause
// events_bench: round trips and streams between programs that sleep. Run by bench/events; over verbs below `uroce run`.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "bench/events_src/descriptor_wait.h"
#include "bench/events_src/events_bench.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"
#include "bench/usage.h"

namespace {

using namespace uroce::events;
using namespace uroce::limits;

constexpr uint64_t kWarmUpNs = 200'000'000;

// Connects to the server, or waits for the client; of TCP and for verbs TCP.
class Meeting {
 public:
  explicit Meeting(const Options& options) : options_(options) {
    peer_.tcp = true;
    peer_.address = options.address;
    if (!options.server) return;
    if (options.over == Over::kUnix) {
      listening_ = socket(AF_UNIX, SOCK_STREAM, 0);
      const sockaddr_un address = path();
      unlink(address.sun_path);
      if (bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail_with_errno("bind");
    } else {
      listening_ = open_socket(peer_);
      const int on = 1;
      setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      peer_.address = "0.0.0.0";
      const Endpoint any = peer_endpoint(peer_);
      if (bind(listening_, &any.any, any.length) != 0) fail_with_errno("bind");
    }
    if (listen(listening_, 128) != 0) fail_with_errno("listen");
    announce_ready();
  }

  int connect() const {
    if (options_.server) {
      const int fd = accept(listening_, nullptr, nullptr);
      if (fd < 0) fail_with_errno("accept");
      const int on = 1;
      if (options_.over != Over::kUnix) setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
      return fd;
    }
    if (options_.over != Over::kUnix) return connect_to_peer(peer_);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = path();
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail_with_errno("connect");
    return fd;
  }

 private:
  sockaddr_un path() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options_.address.size() >= sizeof address.sun_path) throw std::runtime_error("the path is too long");
    std::strcpy(address.sun_path, options_.address.c_str());
    return address;
  }

  const Options& options_;
  PeerOptions peer_;
  int listening_ = -1;
};

void serve(Exchange& exchange) {
  const uroce::bench::Usage before;
  while (!stop_requested()) exchange.wait([&exchange](uint32_t connection) { exchange.send(connection); });
  std::printf("{");
  uroce::bench::Usage().print_since(before, stdout);
  std::puts("}");
}

void ask(const Options& options, Exchange& exchange) {
  std::vector<uint64_t> round_trips;
  std::vector<std::vector<uint64_t>> sent(options.connections, std::vector<uint64_t>(options.window));
  std::vector<std::pair<uint32_t, uint32_t>> turns(options.connections);  // of what was sent, and of what came
  const auto send = [&](uint32_t connection) {
    if (options.pause_us > 0) usleep(options.pause_us);
    sent[connection][turns[connection].first++ % options.window] = now_ns();
    exchange.send(connection);
  };
  for (uint32_t connection = 0; connection < options.connections; ++connection) {
    for (uint32_t i = 0; i < options.window; ++i) send(connection);
  }
  const uroce::bench::Usage before;
  uint64_t all = 0;
  const uint64_t begin = now_ns() + kWarmUpNs, end = begin + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t now = 0;
  while (now < end && !stop_requested()) {
    exchange.wait([&](uint32_t connection) {
      now = now_ns();
      ++all;
      const uint64_t since = sent[connection][turns[connection].second++ % options.window];
      if (now >= begin && now < end) round_trips.push_back(now - since);
      if (now < end) send(connection);
    });
  }
  const uint64_t messages = round_trips.size();
  const double bytes = options.request == Request::kRead ? options.response_bytes
                                                         : std::max(options.request_bytes, options.response_bytes);
  std::printf(R"({"per_second": %.0f, "mb_per_second": %.1f, )", static_cast<double>(messages) / options.seconds,
              static_cast<double>(messages) * bytes / options.seconds / 1e6);
  Latency(std::move(round_trips)).print_json(stdout);
  // Of all of them, as it is with the server: those of the warm-up included.
  std::printf(R"(, "requests": %llu, )", static_cast<unsigned long long>(all));
  uroce::bench::Usage().print_since(before, stdout);
  std::puts("}");
}

template <class E>
auto one_of(std::map<std::string, E> names) {
  return CLI::CheckedTransformer(std::move(names), CLI::ignore_case);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures what a message costs between two programs that sleep");
  Options options;
  app.add_option("--over", options.over, "verbs, tcp, unix")
      ->transform(one_of<Over>({{"verbs", Over::kVerbs}, {"tcp", Over::kTcp}, {"unix", Over::kUnix}}));
  app.add_option("--wait", options.wait, "blocking, epoll, polling")
      ->transform(one_of<Wait>({{"blocking", Wait::kBlocking}, {"epoll", Wait::kEpoll}, {"polling", Wait::kPolling}}));
  std::vector<std::string> names;
  for (const auto& [name, make] : descriptor_waits()) names.push_back(name);
  app.add_option("--descriptor", options.descriptor_wait, "verbs, --wait epoll: how to wait for the descriptor")
      ->check(CLI::IsMember(names));
  app.add_option("--request", options.request, "send, write, read")
      ->transform(
          one_of<Request>({{"send", Request::kSend}, {"write", Request::kWriteWithImm}, {"read", Request::kRead}}));
  app.add_option("--request-bytes", options.request_bytes, "of each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--response-bytes", options.response_bytes, "of each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--connections", options.connections, "how many")->check(CLI::Range(1, 1024));
  app.add_option("--window", options.window, "requests under way on each connection")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds, "client: how long");
  app.add_option("--pause", options.pause_us, "client: microseconds before each request");
  app.add_option("--dev", options.device, "RDMA device");
  app.add_option("--peer", options.address, "IPv4 address of the server; of unix the path of its socket");
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* const server = app.add_subcommand("server", "answer until SIGTERM");
  app.add_subcommand("client", "ask, wait for the answers, and report");
  CLI11_PARSE(app, argc, argv);
  options.server = server->parsed();

  try {
    stop_on_signals();
    const Meeting meeting(options);
    const std::unique_ptr<Exchange> exchange =
        options.over == Over::kVerbs ? exchange_over_verbs(options, meeting.connect())
                                     : exchange_over_sockets(options, [&meeting] { return meeting.connect(); });
    options.server ? serve(*exchange) : ask(options, *exchange);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "events_bench: %s\n", error.what());
    return 1;
  }
}
