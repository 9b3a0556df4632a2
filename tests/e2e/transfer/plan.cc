// SPDX-License-Identifier: BSD-2-Clause
#include "tests/e2e/transfer/plan.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <fmt/format.h>

#include "tests/e2e/transfer/failure.h"

namespace uroce::transfer {
namespace {

constexpr std::array<const char*, kMixWords> kMixNames = {
    "send", "send_imm", "send_inv", "write", "write_imm", "read", "cas", "faa", "inline", "zero", "multi-sge", "fence"};
constexpr uint32_t kAnyKind = (1u << kKinds) - 1;
constexpr uint64_t kOptionWords = 9;

uint64_t plan_key(const PlanOptions& options, uint32_t qp, Direction direction) {
  return mix(mix(options.seed) + 2ull * qp + static_cast<uint64_t>(direction));
}

}  // namespace

const char* mix_word(unsigned bit) {
  return kMixNames[bit];
}

std::string PlanOptions::problem() const {
  const auto outside = [](uint64_t value, uint64_t low, uint64_t high) { return value < low || value > high; };
  if (outside(messages, 1, 1ull << 40)) return "--messages must be 1 to 2^40";
  if (outside(max_size, 1, 1u << 30)) return "--max-size must be 1 to 2^30 bytes";
  if (outside(queue_depth, 1, 16384)) return "--queue-depth must be 1 to 16384";
  if (outside(qps, 1, 4096)) return "--qps must be 1 to 4096";
  if (mtu != 0 && mtu != 256 && mtu != 512 && mtu != 1024 && mtu != 2048 && mtu != 4096) {
    return "--mtu must be 256, 512, 1024, 2048 or 4096";
  }
  if ((mix & kAnyKind) == 0) return "--mix names no operation";
  if (mix >> kMixWords != 0) return "--mix has unknown bits";
  return {};
}

std::vector<uint64_t> PlanOptions::to_words() const {
  return {seed, messages, max_size, mix, queue_depth, qps, mtu, bidirectional, unsignaled};
}

PlanOptions PlanOptions::from_words(std::span<const uint64_t> words) {
  if (words.size() != kOptionWords) throw Failure(ExitCode::kUsage, "the client speaks another version of rc_transfer");
  PlanOptions options;
  options.seed = words[0];
  options.messages = words[1];
  options.max_size = static_cast<uint32_t>(words[2]);
  options.mix = static_cast<uint32_t>(words[3]);
  options.queue_depth = static_cast<uint32_t>(words[4]);
  options.qps = static_cast<uint32_t>(words[5]);
  options.mtu = static_cast<uint32_t>(words[6]);
  options.bidirectional = words[7] != 0;
  options.unsignaled = words[8] != 0;
  if (const std::string problem = options.problem(); !problem.empty()) {
    throw Failure(ExitCode::kUsage, "the client asks for the impossible: " + problem);
  }
  return options;
}

Plan::Plan(const PlanOptions& options, uint32_t qp, Direction direction)
    : options_(options),
      qp_(qp),
      direction_(direction),
      key_(plan_key(options, qp, direction)),
      random_(key_),
      window_(options.slots()),
      swap_word_(initial_swap_word()) {
  for (unsigned bit = 0; bit < kKinds; ++bit) {
    if (options_.mixes(static_cast<Kind>(bit))) kinds_.push_back(static_cast<Kind>(bit));
  }
}

const Message& Plan::at(uint64_t number) {
  assert(number < messages() && number + window_.size() >= generated_);
  while (generated_ <= number) {
    window_[generated_ % window_.size()] = generate();
    ++generated_;
  }
  return window_[number % window_.size()];
}

Message Plan::generate() {
  Message message{};
  message.number = generated_;
  message.kind = kinds_[random_.below(kinds_.size())];
  message.size = is_atomic(message.kind) ? 8 : pick_size();
  const bool may_inline = is_send(message.kind) || is_write(message.kind);
  if (may_inline && options_.mixes(Variation::kInline) && random_.below(4) == 0) {
    message.inlined = true;
    message.size = std::min<uint32_t>(message.size, kMaxInline);
  }
  message.signaled = pick_signaled(message.number);
  message.fenced = random_.below(16) == 0 && options_.mixes(Variation::kFence);
  message.solicited = random_.below(2) == 0 && consumes_receive(message.kind);
  message.immediate = static_cast<uint32_t>(random_.next());
  message.remote_offset = kRemoteOffset + static_cast<uint32_t>(random_.below(kRemoteOffset));
  plan_operands(message);
  return message;
}

// Half of the sizes lie at and beside multiples of the path MTU, where packets begin and end; the others are spread
// evenly over the orders of magnitude.
uint32_t Plan::pick_size() {
  if (options_.mixes(Variation::kZeroLength) && random_.below(16) == 0) return 0;
  const uint32_t max = options_.max_size;
  const uint32_t mtu = options_.mtu;
  if (random_.below(2) == 0 && mtu != 0 && mtu <= max) {
    const uint64_t packets = 1 + random_.below(std::min<uint64_t>(max / mtu, 1 + random_.below(64)));
    return static_cast<uint32_t>(std::min<uint64_t>(packets * mtu - 1 + random_.below(3), max));
  }
  uint32_t bits = 0;
  while (bits < 31 && (1u << bits) < max) ++bits;
  const uint64_t bound = 1ull << random_.below(bits + 1);
  return static_cast<uint32_t>(std::min<uint64_t>(bound + random_.below(bound), max));
}

// Unsignaled WRs hold their place in the send queue until a later signaled one completes, so no run of them may fill
// it.
bool Plan::pick_signaled(uint64_t number) {
  const bool last = number + 1 == messages();
  const bool run_ends = unsignaled_run_ + 1 >= std::max(1u, options_.queue_depth / 2);
  const bool signaled = !options_.unsignaled || last || run_ends || random_.below(4) == 0;
  unsignaled_run_ = signaled ? 0 : unsignaled_run_ + 1;
  return signaled;
}

void Plan::plan_operands(Message& message) {
  if (message.kind == Kind::kFetchAdd) {
    message.compare_add = 1 + random_.below(1ull << 20);  // never 0: every result must be different
  } else if (message.kind == Kind::kCompareSwap) {
    const bool hit = random_.below(2) == 0;
    message.original = swap_word_;
    message.compare_add = hit ? swap_word_ : swap_word_ ^ (1ull << random_.below(64));
    message.swap = random_.next();
    if (hit) swap_word_ = message.swap;
  }
}

uint64_t Plan::initial_swap_word() const {
  return mix(key_ ^ 0x636173);
}

std::string Plan::describe(uint64_t number) {
  const Message& message = at(number);
  return fmt::format("message {} ({}{}, {} bytes) of qp {}, {}", number, mix_word(static_cast<unsigned>(message.kind)),
                     message.inlined ? " inline" : "", message.size, qp_,
                     direction_ == Direction::kClientToServer ? "client to server" : "server to client");
}

uint64_t initial_add_word(const PlanOptions& options, Direction direction) {
  return mix(plan_key(options, 0, direction) ^ 0x666161) >> 2;  // far from wrapping
}

}  // namespace uroce::transfer
