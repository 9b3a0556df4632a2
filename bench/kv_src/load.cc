// SPDX-License-Identifier: BSD-2-Clause
// The load generator. Each connection sets and gets keys that nobody else uses, so it knows what an answer must say:
// the answers come in order, and a value is the last that was set, all of it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench/kv_src/kv.h"
#include "bench/limits_src/latency.h"
#include "bench/limits_src/peer_socket.h"
#include "bench/limits_src/process.h"
#include "bench/usage.h"

namespace uroce::kv {
namespace {

using limits::now_ns;

constexpr uint64_t kWarmUpNs = 200'000'000, kStallNs = 10'000'000'000;
constexpr uint32_t kKeys = 16;  // of a connection

class Load {
 public:
  explicit Load(const Options& options)
      : options_(options),
        transport_(options.over == Over::kTcp ? over_tcp(loop_) : over_verbs(loop_, options)),
        clients_(options.connections) {}

  void run() {
    for (Client& client : clients_) open(client);
    limits::announce_ready();
    const bench::Usage before;
    begin_ = now_ns() + kWarmUpNs;
    end_ = begin_ + static_cast<uint64_t>(options_.seconds * 1e9);
    for (last_answer_ = now_ns(); now_ns() < end_ && !limits::stop_requested();) {
      loop_.turn(100);
      for (Client* client : std::exchange(ended_, {})) open(*client);
      if (now_ns() > last_answer_ + kStallNs) throw std::runtime_error("no answer for 10 s");
    }
    std::printf(R"({"per_second": %.0f, )", static_cast<double>(round_trips_.size()) / options_.seconds);
    limits::Latency(std::move(round_trips_)).print_json(stdout);
    std::printf(R"(, "requests": %llu, "connections": %llu, )", static_cast<unsigned long long>(answers_),
                static_cast<unsigned long long>(opened_));
    bench::Usage().print_since(before, stdout);
    std::puts("}");
  }

 private:
  struct Asked {
    Op op;
    uint64_t key, sequence, at;
    uint64_t version;  // what a GET must bring; 0: nothing
  };
  struct Client {
    std::unique_ptr<Connection> connection;
    std::deque<Asked> asked;
    std::vector<uint64_t> versions;  // of its keys
    uint64_t first_key = 0, sequence = 0;
  };

  void open(Client& client) {
    client = {};
    client.versions.resize(kKeys);
    client.first_key = (static_cast<uint64_t>(getpid()) << 40) + ++opened_ * kKeys;
    limits::PeerOptions peer;
    peer.tcp = true;
    peer.address = options_.peer;
    limits::Endpoint to = limits::peer_endpoint(peer);
    to.v4.sin_port = htons(options_.port);
    UniqueFd socket(limits::open_socket(peer));
    if (::connect(socket.get(), &to.any, to.length) != 0) limits::fail_with_errno("connect");
    client.connection = transport_->make(
        std::move(socket),
        [this, &client](const Message& message, std::span<const uint8_t> value) { take(client, message, value); },
        [](const std::string& why) { throw std::runtime_error("the server has ended a connection: " + why); });
    for (uint32_t i = 0; i < options_.window; ++i) ask(client);
  }

  void ask(Client& client) {
    const uint64_t sequence = ++client.sequence, n = random_() % kKeys;
    const bool sets = random_() % 100 >= options_.gets || (options_.gets < 100 && client.versions[n] == 0);
    Asked asked{sets ? Op::kSet : Op::kGet, client.first_key + n, sequence, now_ns(), client.versions[n]};
    if (sets) asked.version = ++client.versions[n];
    client.asked.push_back(asked);
    if (sets) fill(asked);
    client.connection->send({asked.op, sets ? options_.value_bytes : 0, sequence, asked.key},
                            sets ? std::span<const uint8_t>(value_) : std::span<const uint8_t>());
  }

  static uint64_t word_at(const Asked& of, size_t at) {
    return of.key * 0x9E3779B97F4A7C15 + of.version * 0xD1B54A32D192ED03 + at;
  }
  // All of it, or a word of each 512 bytes and the last one.
  bool is_right(const Asked& of, std::span<const uint8_t> value) {
    if (value.size() != options_.value_bytes) return false;
    if (options_.checks_all) {
      fill(of);
      return std::equal(value.begin(), value.end(), value_.begin());
    }
    const auto is_word = [&](size_t at) {
      const uint64_t word = word_at(of, at);
      return std::memcmp(value.data() + at, &word, std::min(sizeof word, value.size() - at)) == 0;
    };
    for (size_t at = 0; at < value.size(); at += 512) {
      if (!is_word(at)) return false;
    }
    return is_word((value.size() - 1) / sizeof(uint64_t) * sizeof(uint64_t));
  }

  // Eight bytes after the other, of the key, the version and where they are.
  void fill(const Asked& of) {
    value_.resize(options_.value_bytes);
    for (size_t at = 0; at < value_.size(); at += sizeof(uint64_t)) {
      const uint64_t word = word_at(of, at);
      std::memcpy(value_.data() + at, &word, std::min(sizeof word, value_.size() - at));
    }
  }

  void take(Client& client, const Message& message, std::span<const uint8_t> value) {
    const uint64_t now = last_answer_ = now_ns();
    if (client.asked.empty()) throw std::runtime_error("an answer to nothing");
    const Asked asked = client.asked.front();
    client.asked.pop_front();
    if (message.sequence != asked.sequence || message.key != asked.key)
      throw std::runtime_error("an answer out of order");
    const Op expected = asked.op == Op::kSet ? Op::kStored : asked.version > 0 ? Op::kValue : Op::kMissing;
    if (message.op != expected) throw std::runtime_error("not the answer to what was asked");
    if (message.op == Op::kValue && !is_right(asked, value)) throw std::runtime_error("another value than was set");
    ++answers_;
    if (now >= begin_ && now < end_) round_trips_.push_back(now - asked.at);
    if (now >= end_) return;
    if (options_.requests_each == 0 || client.sequence < options_.requests_each) return ask(client);
    if (client.asked.empty()) ended_.push_back(&client);
  }

  const Options options_;
  Loop loop_;
  std::unique_ptr<Transport> transport_;
  std::vector<Client> clients_;
  std::vector<Client*> ended_;  // those that have asked enough
  std::vector<uint8_t> value_;
  std::vector<uint64_t> round_trips_;
  std::mt19937_64 random_;
  uint64_t begin_ = UINT64_MAX, end_ = UINT64_MAX, last_answer_ = 0, answers_ = 0, opened_ = 0;
};

}  // namespace

void load(const Options& options) {
  Load(options).run();
}

}  // namespace uroce::kv
