// SPDX-License-Identifier: BSD-2-Clause
// The end of a Session (session.h): is everything as it must be, and does the other side agree?

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "tests/e2e/transfer/failure.h"
#include "tests/e2e/transfer/session.h"

namespace uroce::transfer {
namespace {

constexpr auto kSilence = std::chrono::milliseconds(100);

uint64_t load_word(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

// Both sides have all their completions; a retransmission answered twice would show up now.
void Session::watch_silence() {
  const Clock::time_point end = Clock::now() + kSilence;
  while (Clock::now() < end) {
    completions_->poll(batch_);
    if (batch_.empty()) continue;
    throw Failure(ExitCode::kMismatch,
                  fmt::format("another completion after all were there: the {}, status {}",
                              WorkId::decode(batch_[0].wr_id).describe(), ibv_wc_status_str(batch_[0].status)));
  }
  if (const std::string events = device_.unexpected_events(options_.port_changes); !events.empty()) {
    throw Failure(ExitCode::kMismatch, "asynchronous events: " + events);
  }
}

void Session::check_words() {
  uint64_t sum = initial_add_word(options_.plan, incoming_);
  const auto expect_word = [this](uint64_t index, uint64_t expected, const std::string& what) {
    if (const uint64_t actual = load_word(word(index)); actual != expected) {
      throw Failure(ExitCode::kMismatch, fmt::format("{} is {:#x}, expected {:#x}", what, actual, expected));
    }
    const Pieces piece = {{kWordPieceOffset, sizeof(uint64_t)}};
    if (const auto offset = words_->memory.guard_difference(index, piece)) {
      throw Failure(ExitCode::kMismatch, fmt::format("guard bytes around {} are damaged at {}", what,
                                                     static_cast<int64_t>(*offset - kWordPieceOffset)));
    }
  };
  for (const Channel& channel : channels_) {
    if (channel.requester) channel.requester->check_memory();
    if (!channel.responder) continue;
    channel.responder->check_memory();
    sum += channel.responder->added();
    expect_word(1 + channel.qp->index(), channel.responder->final_swap_word(),
                fmt::format("the compare-and-swap word of qp {}", channel.qp->index()));
  }
  expect_word(0, sum, "the fetch-and-add word");
  check_fetched_adds();
}

// Every fetch-and-add must have found the word as another one left it: sorted, the results are the partial sums.
void Session::check_fetched_adds() const {
  std::vector<FetchedAdd> all;
  for (const Channel& channel : channels_) {
    if (!channel.requester) continue;
    const auto& its = channel.requester->fetched_adds();
    all.insert(all.end(), its.begin(), its.end());
  }
  std::sort(all.begin(), all.end(), [](const FetchedAdd& a, const FetchedAdd& b) { return a.result < b.result; });
  uint64_t expected = initial_add_word(options_.plan, outgoing_);
  for (const FetchedAdd& one : all) {
    if (one.result != expected) {
      throw Failure(ExitCode::kMismatch, fmt::format("no fetch-and-add of {} found the word at {:#x}, one found {:#x}",
                                                     all.size(), expected, one.result));
    }
    expected += one.add;
  }
}

Result Session::summarise() {
  Result total;
  for (const Channel& channel : channels_) {
    Result qp;
    const auto add = [&](const auto& part) {
      qp.messages += options_.plan.messages;
      qp.bytes += part.bytes();
      qp.completions += part.completions();
      qp.digest += part.digest();
    };
    if (channel.requester) add(*channel.requester);
    if (channel.responder) add(*channel.responder);
    fmt::print("{} qp {} ({:#08x}): {} messages, {} bytes, {} completions, hash {:016x}\n", name(), channel.qp->index(),
               channel.qp->qpn(), qp.messages, qp.bytes, qp.completions, qp.digest);
    total.messages += qp.messages;
    total.bytes += qp.bytes;
    total.completions += qp.completions;
    total.digest += qp.digest;
  }
  return total;
}

void Session::compare_verdicts(const Result& result) {
  control_.send(RecordType::kVerdict, {result.messages, result.bytes, result.digest});
  const Record peer = control_.expect(RecordType::kVerdict, 3, deadline());
  if (peer.words != std::vector<uint64_t>{result.messages, result.bytes, result.digest}) {
    throw Failure(ExitCode::kMismatch, fmt::format("the other side counts {} messages, {} bytes, hash {:016x}",
                                                   peer.words[0], peer.words[1], peer.words[2]));
  }
  control_.flush(deadline());
}

}  // namespace uroce::transfer
