// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/completion_judge.h"

#include <cinttypes>

namespace uroce::oracle {
namespace {

WorkKind kind_of(const Request& last_packet) {
  switch (last_packet.info->operation) {
    case wire::Operation::kSend:
      return WorkKind::kSend;
    case wire::Operation::kReadRequest:
      return WorkKind::kRead;
    case wire::Operation::kCompareSwap:
    case wire::Operation::kFetchAdd:
      return WorkKind::kAtomic;
    default:
      return last_packet.info->has_immdt ? WorkKind::kWriteImmediate : WorkKind::kWrite;
  }
}

}  // namespace

void CompletionJudge::posted(uint64_t wr_id, bool signaled, WorkKind kind, uint64_t length) {
  used_ = true;
  if (kind != WorkKind::kLocal) ++messages_;
  work_.push_back({.wr_id = wr_id, .message = messages_, .length = length, .kind = kind, .signaled = signaled});
}

void CompletionJudge::on_message(uint64_t number, const Request& last_packet, std::optional<uint64_t> size,
                                 Context& context) {
  if (!used_) return;
  // Local work has the number of the message before it, and stands behind that one.
  const auto work =
      std::lower_bound(work_.begin(), work_.end(), number, [](const Work& w, uint64_t n) { return w.message < n; });
  if (work == work_.end() || work->message != number) {
    context.violation(Rule::kNotPosted, text("message %" PRIu64 " (%s): %s", number, last_packet.info->name,
                                             number > messages_ ? "nothing was posted" : "has completed already"));
  } else if (work->kind != kind_of(last_packet)) {
    context.violation(Rule::kNotPosted, text("message %" PRIu64 " is a %s: something else was posted as wr_id %" PRIu64,
                                             number, last_packet.info->name, work->wr_id));
  } else if (size && *size != work->length) {
    context.violation(Rule::kNotPosted,
                      text("message %" PRIu64 " has %" PRIu64 " bytes: %" PRIu64 " were posted as wr_id %" PRIu64,
                           number, *size, work->length, work->wr_id));
  }
}

void CompletionJudge::completed(uint64_t wr_id, Outcome outcome, uint64_t acknowledged, Context& context) {
  if (!used_) return;
  const bool success = outcome == Outcome::kSuccess;
  if (success && failed_) {
    context.violation(Rule::kCompletionOrder, text("wr_id %" PRIu64 " succeeds after one that failed", wr_id));
  }
  // Success is told of signaled work only, failure of all; once one has failed nothing is left out any more.
  auto expected = work_.begin();
  while (!failed_ && expected != work_.end() && !expected->signaled && (success || expected->wr_id != wr_id)) {
    ++expected;
  }
  if (expected == work_.end() || expected->wr_id != wr_id) {
    context.violation(Rule::kCompletionOrder,
                      expected == work_.end()
                          ? text("wr_id %" PRIu64 " completes, but nothing is to complete", wr_id)
                          : text("wr_id %" PRIu64 " completes before wr_id %" PRIu64, wr_id, expected->wr_id));
    expected = std::find_if(work_.begin(), work_.end(), [wr_id](const Work& work) { return work.wr_id == wr_id; });
    if (expected == work_.end()) return;
  }
  if (success && acknowledged < expected->message) {
    context.violation(Rule::kCompletionEarly,
                      text("wr_id %" PRIu64 " succeeds: it is message %" PRIu64 ", %" PRIu64 " were acknowledged",
                           wr_id, expected->message, acknowledged));
  }
  failed_ = failed_ || !success;
  work_.erase(work_.begin(), std::next(expected));
}

void CompletionJudge::finish(uint64_t settled, Context& context) {
  if (failed_) return;
  const auto missing = std::find_if(work_.begin(), work_.end(), [](const Work& work) { return work.signaled; });
  if (missing == work_.end() || missing->kind == WorkKind::kLocal || missing->message > settled) return;
  context.violation(Rule::kCompletionMissing,
                    text("wr_id %" PRIu64 ": message %" PRIu64 " was acknowledged and has not completed",
                         missing->wr_id, missing->message));
}

}  // namespace uroce::oracle
