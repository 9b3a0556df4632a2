// SPDX-License-Identifier: BSD-2-Clause
// One side of a transfer from the handshake to the verdict. main.cc runs one, or with --self two in two threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/transfer/control.h"
#include "tests/e2e/transfer/endpoint.h"
#include "tests/e2e/transfer/options.h"
#include "tests/e2e/transfer/requester.h"
#include "tests/e2e/transfer/responder.h"

namespace uroce::transfer {

struct Result {
  uint64_t messages = 0;  // of all QPs in both directions
  uint64_t bytes = 0;
  uint64_t completions = 0;  // polled at this side
  uint64_t digest = 0;       // of all messages' hashes
};

class Session {
 public:
  // `is_server` tells the two sides of --self apart. `heartbeat` goes up as long as this side lives. On a server
  // `options.plan` becomes the client's.
  Session(Options& options, bool is_server, Control control, Device& device, std::atomic<uint64_t>& heartbeat);

  ~Session() {
    for (Channel& channel : channels_) {
      if (channel.responder) channel.responder->release_windows();
    }
  }

  // Throws Failure, after having told the peer, unless everything is as it must be.
  Result run();

 private:
  struct Channel {  // a QP and what is done with it
    std::unique_ptr<Requester> requester;
    std::unique_ptr<Responder> responder;
    std::unique_ptr<QueuePair> qp;  // destroyed before the memory that it uses
    QueuePairAddress address{};
    uint64_t announced = 0;  // Responder::allowed() as the peer knows it
  };

  // Set-up, in this order.
  void agree_on_plan();
  void agree_on_parameters();
  void check_capabilities() const;
  void create_channels();
  void connect_channels();
  std::vector<uint64_t> describe_channel(uint32_t index) const;
  void connect_channel(std::span<const uint64_t> words);

  // The transfer.
  void transfer();
  bool take_completions();
  void take_completion(const ibv_wc& wc);
  bool take_records();
  void take_progress(std::span<const uint64_t> words);
  bool post();
  bool report(bool everything);
  void announce_finish();
  void wait_for_something() const;
  void moved();
  void check_deadline();
  // What this side waits for, over several lines.
  std::string outstanding();

  // The verdict (verdict.cc), in this order; check_fetched_adds() is part of check_words().
  void watch_silence();
  void check_words();
  void check_fetched_adds() const;
  Result summarise();
  void compare_verdicts(const Result& result);

  Clock::time_point deadline() const { return Clock::now() + options_.timeout; }
  const char* name() const { return is_server_ ? "server" : "client"; }
  // The words that atomics work on: the fetch-and-add word of all QPs, then the compare-and-swap word of each.
  uint8_t* word(uint64_t index) const { return words_->memory.slot(index) + kWordPieceOffset; }
  static constexpr size_t kWordPieceOffset = 64;

  Options& options_;
  const bool is_server_;
  const Direction outgoing_;
  const Direction incoming_;
  Control control_;
  Device& device_;
  std::atomic<uint64_t>& heartbeat_;

  ConnectionParameters parameters_{};
  RemoteTarget peer_words_;
  // Destroyed in reverse.
  Verbs<ibv_pd> pd_;
  std::unique_ptr<Completions> completions_;
  std::unique_ptr<RegisteredMemory> words_;
  std::vector<Channel> channels_;

  std::vector<ibv_wc> batch_;
  Clock::time_point last_move_ = Clock::now();
  bool finished_ = false;
  bool peer_finished_ = false;
};

}  // namespace uroce::transfer
