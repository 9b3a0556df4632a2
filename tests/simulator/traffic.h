// SPDX-License-Identifier: BSD-2-Clause
// Random work from one QP to another, with a plan that says what must be seen: every byte in its place, every
// completion exactly once and in order, every atomic executed once. Tells the first thing that is wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/simulator/host.h"

namespace uroce::simulator {

struct TrafficConfig {
  std::vector<queue::WrOpcode> kinds = {queue::WrOpcode::kSend,        queue::WrOpcode::kSendWithImmediate,
                                        queue::WrOpcode::kRdmaWrite,   queue::WrOpcode::kRdmaRead,
                                        queue::WrOpcode::kCompareSwap, queue::WrOpcode::kRdmaWriteWithImmediate,
                                        queue::WrOpcode::kFetchAdd};
  int messages = 400;
  uint32_t under_way = 32;      // messages posted and not completed, at most; also buffers at both ends
  uint32_t max_size = 40000;    // bytes
  bool fixed_size = false;      // all of max_size
  bool all_signaled = false;    // else two of three
  Duration receive_lag{};       // receive requests are posted up to this much later than the send: RNR
  bool errors_allowed = false;  // a network this bad may exhaust the retries
};

class Traffic {
 public:
  Traffic(Host& from_host, SimQp& from, Host& to_host, SimQp& to, std::mt19937_64& random, const TrafficConfig& config,
          uint32_t path_mtu);

  // Polls both ends and posts what may be posted. Call after every event.
  void step();
  bool done() const { return failed() || ((ended_ || completed_ == config_.messages) && receives_settled()); }
  // After done(), with both QPs in the error state: everything that was posted has completed exactly once.
  void finish();

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  int completed() const { return completed_; }
  bool ended_by_error() const { return ended_; }
  uint64_t bytes() const { return bytes_; }  // of messages completed with success

 private:
  struct Message {
    uint64_t id = 0;
    queue::WrOpcode opcode{};
    uint32_t size = 0;
    bool signaled = false;
    bool solicited = false;
    std::vector<uint8_t> expected;
    uint64_t expected_original = 0;
  };

  void post_one();
  void prepare(Message& m, queue::SendWqe& wqe);
  void post_receive(const Message& m);
  void on_send_completion(const queue::Cqe& cqe);
  void on_receive_completion(const queue::Cqe& cqe);
  void check_effect(const Message& m);
  bool receives_settled() const { return ended_ || receives_.empty(); }
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }
  uint8_t* local(const Message& m) { return &local_[m.id % config_.under_way * config_.max_size]; }
  uint8_t* remote(const Message& m) { return &remote_[m.id % config_.under_way * config_.max_size]; }
  std::vector<queue::Sge> split(uint8_t* base, uint32_t size, uint32_t key);

  Host& to_host_;
  SimQp& from_;
  SimQp& to_;
  std::mt19937_64& random_;
  const TrafficConfig config_;
  const uint32_t path_mtu_;
  std::vector<uint8_t> local_, remote_;
  uint32_t local_key_, remote_key_, word_key_;
  alignas(8) uint64_t word_ = 0;
  uint64_t expected_word_ = 0;
  std::deque<Message> under_way_, receives_;
  Time last_receive_{};
  int posted_ = 0, completed_ = 0;
  uint64_t bytes_ = 0;
  bool ended_ = false;  // by an error completion that is allowed
  std::string error_;
};

}  // namespace uroce::simulator
