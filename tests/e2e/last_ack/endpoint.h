// SPDX-License-Identifier: BSD-2-Clause
// One end of an RC connection, and what the two processes tell each other of it in a file that both map.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <infiniband/verbs.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace uroce::last_ack {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(bool condition, const std::string& text) {
  if (!condition) throw Failure(text);
}

// How the receiver hears of the message: completions that it polls for or sleeps on, or bytes of a WRITE.
enum class Wait : uint8_t { kPoll, kEvent, kMemory };

constexpr uint32_t kLargest = 9 * 1024 - 512;  // nine packets
constexpr uint32_t kMostRounds = 1024;

struct Side {
  ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t memory;
  std::atomic<uint32_t> told, connected;
};
struct Round {
  Side sides[2];
};
struct Shared {
  Round rounds[kMostRounds];
  std::atomic<uint32_t> failed;
};

// Gives the core away meanwhile.
template <class Condition>
void wait_for(const Shared& shared, const char* what, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    check(shared.failed.load() == 0, "the other side has failed");
    check(std::chrono::steady_clock::now() < end, std::string("waited too long for ") + what);
    std::this_thread::yield();
  }
}

class Endpoint {
 public:
  Endpoint(const std::string& device, Wait wait);
  // `side` of the round is this one.
  void connect(Shared& shared, Round& round, uint32_t side);
  // The sender: posts the message, and returns how it completed.
  ibv_wc_status send(const Shared& shared, const Side& to, uint32_t size);
  // The receiver: after it the message is there, and nothing else has been called.
  void receive(const Shared& shared, uint32_t size);

  void destroy_qp();
  void modify(ibv_qp_state state);
  void close();
  // A poll that finds nothing.
  void poll_once();

 private:
  const Wait wait_;
  std::vector<uint8_t> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}  // namespace uroce::last_ack
