// SPDX-License-Identifier: BSD-2-Clause
#include "tests/simulator/traffic.h"

#include <algorithm>
#include <cstring>

namespace uroce::simulator {

using queue::WcOpcode;
using queue::WcStatus;
using queue::WrOpcode;

namespace {

bool is_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
}
bool completes_receive(WrOpcode opcode) {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImmediate ||
         opcode == WrOpcode::kRdmaWriteWithImmediate;
}
bool sends_data(WrOpcode opcode) {
  return !is_atomic(opcode) && opcode != WrOpcode::kRdmaRead;
}
uint32_t immediate_of(uint64_t id) {
  return static_cast<uint32_t>(id * 77);
}

}  // namespace

Traffic::Traffic(Host& from_host, SimQp& from, Host& to_host, SimQp& to, std::mt19937_64& random,
                 const TrafficConfig& config, uint32_t path_mtu)
    : to_host_(to_host), from_(from), to_(to), random_(random), config_(config), path_mtu_(path_mtu) {
  const size_t bytes = size_t{config.under_way} * config.max_size;
  local_.resize(bytes);
  remote_.resize(bytes);
  local_key_ = from_host.register_memory(local_.data(), bytes, memory::kLocalWrite);
  remote_key_ = to_host.register_memory(
      remote_.data(), bytes, memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead | memory::kRemoteAtomic);
  word_key_ = to_host.register_memory(&word_, sizeof(word_), memory::kLocalWrite | memory::kRemoteAtomic);
}

void Traffic::step() {
  while (auto cqe = from_.poll(from_.send_cq)) on_send_completion(*cqe);
  while (auto cqe = to_.poll(to_.recv_cq)) on_receive_completion(*cqe);
  while (!failed() && !ended_ && posted_ < config_.messages &&
         posted_ - completed_ < static_cast<int>(config_.under_way)) {
    post_one();
  }
}

void Traffic::finish() {
  step();
  while (auto cqe = from_.poll(from_.send_cq)) on_send_completion(*cqe);
  if (!under_way_.empty()) fail(std::to_string(under_way_.size()) + " sends never completed");
  if (!receives_.empty()) fail(std::to_string(receives_.size()) + " receives never completed");
  if (!ended_ && word_ != expected_word_) fail("atomics executed more or less than once");
}

// Unsignaled messages before the one that completed are complete with it.
void Traffic::on_send_completion(const queue::Cqe& cqe) {
  while (!failed()) {
    if (under_way_.empty()) return fail("a completion that nobody waits for: " + std::to_string(cqe.wr_id));
    const Message m = under_way_.front();
    under_way_.pop_front();
    const bool this_one = cqe.wr_id == m.id;
    if (!this_one && m.signaled) return fail("completion of " + std::to_string(m.id) + " is missing or out of order");
    if (!this_one || cqe.status == WcStatus::kSuccess) {
      if (ended_) return fail("success after the QP failed: " + std::to_string(m.id));
      check_effect(m);
      ++completed_;
      bytes_ += m.size;
      if (this_one && !m.signaled) return fail("completion of unsignaled " + std::to_string(m.id));
      if (this_one) return;
      continue;
    }
    const bool retries_exhausted = cqe.status == WcStatus::kRetryExceeded || cqe.status == WcStatus::kRnrRetryExceeded;
    const bool expected = cqe.status == WcStatus::kFlushError ? ended_ : config_.errors_allowed && retries_exhausted;
    if (!expected) {
      return fail("status " + std::to_string(static_cast<int>(cqe.status)) + " of message " + std::to_string(m.id));
    }
    ended_ = true;
    return;
  }
}

void Traffic::on_receive_completion(const queue::Cqe& cqe) {
  if (failed()) return;
  if (receives_.empty()) return fail("a receive completion that nobody waits for");
  const Message m = receives_.front();
  receives_.pop_front();
  const std::string name = "receive " + std::to_string(m.id);
  if (cqe.wr_id != m.id) return fail(name + " completed out of order");
  if (cqe.status == WcStatus::kFlushError && (ended_ || to_.rc.state() == transport::QpState::kErr)) return;
  if (cqe.status != WcStatus::kSuccess) return fail(name + ": status " + std::to_string(static_cast<int>(cqe.status)));
  const bool write = m.opcode == WrOpcode::kRdmaWriteWithImmediate;
  if (cqe.opcode != (write ? WcOpcode::kReceiveRdmaWithImmediate : WcOpcode::kReceive)) return fail(name + ": opcode");
  if (!std::equal(m.expected.begin(), m.expected.end(), remote(m))) return fail(name + ": wrong bytes");
  if (cqe.byte_length != m.size || cqe.solicited != m.solicited) return fail(name + ": length or solicited");
  if (m.opcode != WrOpcode::kSend && cqe.immediate_or_rkey != immediate_of(m.id)) return fail(name + ": immediate");
}

void Traffic::post_one() {
  Message m{};
  m.id = static_cast<uint64_t>(posted_);
  m.opcode = config_.kinds[random_() % config_.kinds.size()];
  const uint32_t limit = random_() % 3 == 0 ? config_.max_size : std::min(3 * path_mtu_, config_.max_size);
  m.size = config_.fixed_size    ? config_.max_size
           : random_() % 10 == 0 ? 0
                                 : static_cast<uint32_t>(random_() % (limit + 1));
  if (is_atomic(m.opcode)) m.size = 8;
  // The last one is signaled, so that all completions become visible; some must be, or the queue stays full.
  m.signaled = config_.all_signaled || random_() % 3 != 0 || posted_ + 1 == config_.messages ||
               posted_ % std::max(1u, config_.under_way / 2) == 0;
  m.solicited = completes_receive(m.opcode) && random_() % 4 == 0;

  queue::SendWqe wqe{};
  wqe.wr_id = m.id;
  wqe.opcode = m.opcode;
  wqe.flags = static_cast<uint8_t>((m.signaled ? queue::kSignaled : 0) | (m.solicited ? queue::kSolicited : 0) |
                                   (random_() % 8 == 0 && !config_.fixed_size ? queue::kFence : 0));
  wqe.immediate_or_rkey = immediate_of(m.id);
  wqe.remote_address = reinterpret_cast<uint64_t>(remote(m));
  wqe.rkey = remote_key_;
  prepare(m, wqe);
  const bool is_inline = sends_data(m.opcode) && m.size > 0 && m.size <= from_.sq.max_inline();
  if (completes_receive(m.opcode)) post_receive(m);
  under_way_.push_back(m);
  ++posted_;
  const bool posted = is_inline ? from_.post(wqe, std::span<const queue::Sge>{}, std::span(local(m), m.size))
                                : from_.post(wqe, split(local(m), m.size, local_key_));
  if (!posted && !ended_) fail("send queue full with " + std::to_string(under_way_.size()) + " messages under way");
}

// In order, the later ones behind those that lag.
void Traffic::post_receive(const Message& m) {
  receives_.push_back(m);
  const bool write = m.opcode == WrOpcode::kRdmaWriteWithImmediate;
  const auto sges = write ? std::vector<queue::Sge>{} : split(remote(m), m.size, remote_key_);
  const auto post = [this, id = m.id, sges] {
    if (!to_.post_receive(id, sges)) fail("receive queue full");
  };
  if (config_.receive_lag.count() == 0) return post();
  const Duration lag(static_cast<int64_t>(random_() % static_cast<uint64_t>(config_.receive_lag.count())));
  last_receive_ = std::max(last_receive_, to_host_.events.now() + (random_() % 4 == 0 ? lag : Duration{}));
  to_host_.events.at(last_receive_, post);
}

void Traffic::prepare(Message& m, queue::SendWqe& wqe) {
  const auto fill = [this](uint8_t* at, uint32_t size) {
    uint64_t word = random_();
    for (uint32_t i = 0; i < size; ++i, word = word >> 8 | word << 56) at[i] = static_cast<uint8_t>(word + i);
  };
  fill(local(m), m.size);
  if (m.opcode == WrOpcode::kRdmaRead) fill(remote(m), m.size);
  const uint8_t* const source = m.opcode == WrOpcode::kRdmaRead ? remote(m) : local(m);
  m.expected.assign(source, source + m.size);
  if (!is_atomic(m.opcode)) return;
  wqe.remote_address = reinterpret_cast<uint64_t>(&word_);
  wqe.rkey = word_key_;
  wqe.operands.compare_add = random_() % 2 == 0 ? expected_word_ : random_();  // half of the swaps match
  wqe.operands.swap = random_();
  m.expected_original = expected_word_;
  if (m.opcode == WrOpcode::kFetchAdd) {
    expected_word_ += wqe.operands.compare_add;
  } else if (expected_word_ == wqe.operands.compare_add) {
    expected_word_ = wqe.operands.swap;
  }
}

void Traffic::check_effect(const Message& m) {
  const std::string name = "message " + std::to_string(m.id);
  if (is_atomic(m.opcode)) {
    uint64_t original;
    std::memcpy(&original, local(m), sizeof(original));
    if (original != m.expected_original) fail(name + ": atomic found another value");
  } else if (m.opcode == WrOpcode::kRdmaRead) {
    if (!std::equal(m.expected.begin(), m.expected.end(), local(m))) fail(name + ": READ brought wrong bytes");
  } else if (m.opcode == WrOpcode::kRdmaWrite || m.opcode == WrOpcode::kRdmaWriteWithImmediate) {
    if (!std::equal(m.expected.begin(), m.expected.end(), remote(m))) fail(name + ": WRITE left wrong bytes");
  }
}

std::vector<queue::Sge> Traffic::split(uint8_t* base, uint32_t size, uint32_t key) {
  std::vector<queue::Sge> sges;
  uint32_t offset = 0;
  for (int i = 0; i < 3 && offset < size; ++i) {
    const auto piece = i == 2 ? size - offset : static_cast<uint32_t>(random_() % (size - offset + 1));
    sges.push_back({reinterpret_cast<uint64_t>(base + offset), piece, key});
    offset += piece;
  }
  return sges;
}

}  // namespace uroce::simulator
