// SPDX-License-Identifier: BSD-2-Clause
// The plan: which messages one QP carries in one direction, derived from the seed alike by both sides.
// The requester posts it, the responder prepares for it, and both check completions and memory against it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace uroce::transfer {

// Finaliser of splitmix64: a bijection of 64-bit words without visible structure.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
inline constexpr uint64_t kGoldenGamma = 0x9E3779B97F4A7C15u;

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mix(state_ += kGoldenGamma); }
  uint64_t below(uint64_t bound) { return next() % bound; }  // bound > 0

 private:
  uint64_t state_;
};

enum class Kind : uint8_t { kSend, kSendImm, kSendInv, kWrite, kWriteImm, kRead, kCompareSwap, kFetchAdd };
inline constexpr unsigned kKinds = 8;
// What else may be mixed in, as bits beside those of the kinds.
enum class Variation : uint8_t { kInline = kKinds, kZeroLength, kMultiSge, kFence };
inline constexpr unsigned kMixWords = kKinds + 4;

const char* mix_word(unsigned bit);  // "send" ... "fence", as in --mix
constexpr uint32_t mix_bit(Kind kind) {
  return 1u << static_cast<unsigned>(kind);
}
constexpr uint32_t mix_bit(Variation variation) {
  return 1u << static_cast<unsigned>(variation);
}

constexpr bool is_atomic(Kind kind) {
  return kind == Kind::kCompareSwap || kind == Kind::kFetchAdd;
}
constexpr bool is_send(Kind kind) {
  return kind <= Kind::kSendInv;
}
constexpr bool is_write(Kind kind) {
  return kind == Kind::kWrite || kind == Kind::kWriteImm;
}
constexpr bool has_immediate(Kind kind) {
  return kind == Kind::kSendImm || kind == Kind::kWriteImm;
}
constexpr bool consumes_receive(Kind kind) {
  return is_send(kind) || kind == Kind::kWriteImm;
}

enum class Direction : uint8_t { kClientToServer, kServerToClient };

inline constexpr uint32_t kMaxInline = 128;  // bytes of an inline message
// The responder's place for WRITE and READ lies at a random offset in [kRemoteOffset, 2 * kRemoteOffset) of its slot.
inline constexpr uint32_t kRemoteOffset = 128;

// Decided by the client and sent to the server.
struct PlanOptions {
  uint64_t seed = 1;
  uint64_t messages = 1000;   // per QP and direction
  uint32_t max_size = 65536;  // bytes
  uint32_t mix = 0;           // mix_bit()s
  uint32_t queue_depth = 32;  // outstanding requests per QP and direction
  uint32_t qps = 1;
  uint32_t mtu = 0;  // path MTU; 0: the smaller of the active MTUs
  bool bidirectional = false;
  bool unsignaled = false;

  bool mixes(Kind kind) const { return (mix & mix_bit(kind)) != 0; }
  bool mixes(Variation variation) const { return (mix & mix_bit(variation)) != 0; }
  // Slots of memory per QP and direction: twice the queue depth, so that the send queue stays full while the other side
  // verifies.
  uint64_t slots() const { return 2ull * queue_depth; }
  // What is wrong with the values, or an empty string.
  std::string problem() const;

  std::vector<uint64_t> to_words() const;
  static PlanOptions from_words(std::span<const uint64_t> words);  // throws Failure
};

struct Message {
  uint64_t number;
  Kind kind;
  uint32_t size;  // bytes; 8 for atomics
  bool signaled;
  bool inlined;
  bool fenced;
  bool solicited;
  uint32_t immediate;      // has_immediate(): host order
  uint32_t remote_offset;  // WRITE and READ: in the responder's slot
  uint64_t compare_add;    // atomics
  uint64_t swap;           // compare-and-swap
  uint64_t original;       // compare-and-swap: the value that must come back
};

class Plan {
 public:
  Plan(const PlanOptions& options, uint32_t qp, Direction direction);

  const PlanOptions& options() const { return options_; }
  uint64_t messages() const { return options_.messages; }
  uint32_t qp() const { return qp_; }
  Direction direction() const { return direction_; }

  // Message `number` < messages(). Only the last options().slots() numbers asked for remain available.
  const Message& at(uint64_t number);
  // Selects the pseudo-random stream that is the payload of a message.
  uint64_t payload_key(uint64_t number) const { return mix(key_ + (number + 1) * kGoldenGamma); }
  // The compare-and-swap word before the first message, and after all that were generated so far.
  uint64_t initial_swap_word() const;
  uint64_t swap_word() const { return swap_word_; }
  // "message 17 (write_imm, 4096 bytes) of qp 0, client to server"
  std::string describe(uint64_t number);

 private:
  Message generate();
  uint32_t pick_size();
  void plan_operands(Message& message);
  bool pick_signaled(uint64_t number);

  const PlanOptions options_;
  const uint32_t qp_;
  const Direction direction_;
  const uint64_t key_;
  Random random_;
  std::vector<Kind> kinds_;
  std::vector<Message> window_;
  uint64_t generated_ = 0;
  uint64_t swap_word_;
  uint32_t unsignaled_run_ = 0;
};

// The fetch-and-add word that all QPs of one direction share, before the first message.
uint64_t initial_add_word(const PlanOptions& options, Direction direction);

}  // namespace uroce::transfer
