// SPDX-License-Identifier: BSD-2-Clause
// The control connection between the two sides: TCP, or a socket pair with --self.
//
// Carries the exchange of addresses at set-up, the progress of each QP while messages flow, and the verdict. A record
// is a type, a count and that many 64-bit words, all big-endian. Used by session.cc, and by rc_errors (../errors).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace uroce::transfer {

using Clock = std::chrono::steady_clock;

enum class RecordType : uint32_t {
  kOptions,    // client: PlanOptions::to_words()
  kEndpoint,   // GID (2 words), active MTU, READs and atomics accepted at once, fetch-and-add address and rkey
  kQueuePair,  // index, QPN, starting PSN, target address, target rkey, swap word address, rkeys of memory windows
  kProgress,   // index, number of messages that may be posted, hashes of messages completed since the last record
  kFinished,   // all messages completed and verified
  kVerdict,    // messages, bytes, digest
  kFailed,     // exit code
  kOfOtherPrograms = 100,  // from here on: what another program that uses this connection says
};

struct Record {
  RecordType type;
  std::vector<uint64_t> words;
};

class Control {
 public:
  // Waits for one client. Port 0 picks a free one; it is printed.
  static Control serve(uint16_t port, Clock::time_point deadline);
  // Repeats until a server listens.
  static Control connect(const std::string& host, uint16_t port, Clock::time_point deadline);
  static std::pair<Control, Control> local_pair();

  explicit Control(int fd);
  Control(Control&& other) noexcept;
  Control& operator=(Control&&) = delete;
  ~Control();

  int descriptor() const { return fd_; }
  // Hands a record to the kernel as far as that takes it; pump() does the rest.
  void send(RecordType type, std::span<const uint64_t> words);
  void send(RecordType type, std::initializer_list<uint64_t> words) {
    send(type, std::span<const uint64_t>(words.begin(), words.size()));
  }
  bool output_pending() const { return !output_.empty(); }
  // Moves what can be moved without waiting.
  void pump();
  // The next complete record. Throws on kFailed, and when the peer is gone.
  std::optional<Record> next();
  // Waits for the next record.
  Record expect_any(Clock::time_point deadline);
  // The same; it must be of this type and have at least `min_words`.
  Record expect(RecordType type, size_t min_words, Clock::time_point deadline);
  // Waits until everything sent has been taken by the kernel.
  void flush(Clock::time_point deadline);

 private:
  void write_output();
  void read_input();
  void parse_input();
  void wait(Clock::time_point deadline, const char* what) const;

  int fd_;
  bool closed_ = false;
  std::vector<uint8_t> output_;
  std::vector<uint8_t> input_;
  std::deque<Record> records_;
};

}  // namespace uroce::transfer
