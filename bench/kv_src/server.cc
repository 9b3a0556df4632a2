// SPDX-License-Identifier: BSD-2-Clause
// Until SIGTERM; then a line of JSON says what there was.
#include <cstdio>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "bench/kv_src/kv.h"
#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"
#include "bench/usage.h"

namespace uroce::kv {
namespace {

class Server {
 public:
  explicit Server(const Options& options)
      : transport_(options.over == Over::kTcp ? over_tcp(loop_) : over_verbs(loop_, options)),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options.port);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      limits::fail_with_errno("bind");
    if (listen(listener_.get(), 1024) != 0) limits::fail_with_errno("listen");
    loop_.add(listener_.get(), EPOLLIN, [this](uint32_t) { take_clients(); });
  }

  void run() {
    const bench::Usage before;
    limits::announce_ready();
    while (!limits::stop_requested()) loop_.turn(-1);
    std::printf(R"({"connections": %llu, "open": %zu, "requests": %llu, "keys": %zu, )",
                static_cast<unsigned long long>(last_), clients_.size(), static_cast<unsigned long long>(requests_),
                store_.size());
    bench::Usage().print_since(before, stdout);
    std::puts("}");
  }

 private:
  void take_clients() {
    while (true) {
      UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) return;
      const uint64_t id = ++last_;
      clients_[id] = transport_->make(
          std::move(socket),
          [this, id](const Message& message, std::span<const uint8_t> value) { answer(*clients_[id], message, value); },
          [this, id](const std::string&) { clients_.erase(id); });
    }
  }

  void answer(Connection& to, const Message& request, std::span<const uint8_t> value) {
    ++requests_;
    if (request.op == Op::kSet) {
      store_[request.key].assign(value.begin(), value.end());
      return to.send({Op::kStored, 0, request.sequence, request.key}, {});
    }
    if (request.op != Op::kGet) throw Ended("no request");
    const auto found = store_.find(request.key);
    if (found == store_.end()) return to.send({Op::kMissing, 0, request.sequence, request.key}, {});
    to.send({Op::kValue, static_cast<uint32_t>(found->second.size()), request.sequence, request.key}, found->second);
  }

  Loop loop_;
  std::unique_ptr<Transport> transport_;
  UniqueFd listener_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> clients_;
  std::unordered_map<uint64_t, std::vector<uint8_t>> store_;
  uint64_t last_ = 0, requests_ = 0;
};

}  // namespace

void serve(const Options& options) {
  Server(options).run();
}

}  // namespace uroce::kv
