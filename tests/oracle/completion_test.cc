// SPDX-License-Identifier: BSD-2-Clause
// Completions against posts and the wire.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

constexpr wire::Qpn kQp(Trace::kLocalQpn);

struct Posted : Trace {
  void post(uint64_t wr_id, WorkKind kind = WorkKind::kSend, uint64_t length = 64, bool signaled = true) {
    oracle.posted(kQp, wr_id, signaled, kind, length);
  }
  void complete(uint64_t wr_id, Outcome outcome = Outcome::kSuccess) { oracle.completed(kQp, wr_id, outcome); }
};

TEST(Completions, InOrderAfterTheAcknowledgement) {
  Posted t;
  t.post(1);
  t.post(2, WorkKind::kWrite, 64, false);
  t.post(3, WorkKind::kLocal, 0);
  t.post(4, WorkKind::kRead, 4);
  t.out(send(100));
  t.out(write(101));
  t.out(read(102, 4));
  t.in(ack(100, 1));
  t.complete(1);
  t.in(response(Opcode::kRcReadResponseOnly, 102, 4, 3));
  t.complete(3);
  t.complete(4);
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Completions, NotBeforeTheAcknowledgement) {
  Posted t;
  t.post(1);
  t.out(send(100));
  t.complete(1);
  EXPECT_EQ(t.found(), "completion-early@1");
}

TEST(Completions, OnceAndInOrder) {
  Posted swapped;
  swapped.post(1);
  swapped.post(2);
  swapped.out(send(100));
  swapped.out(send(101));
  swapped.in(ack(101, 2));
  swapped.complete(2);
  EXPECT_EQ(swapped.found(), "completion-order@3");
  Posted twice;
  twice.post(1);
  twice.out(send(100));
  twice.in(ack(100, 1));
  twice.complete(1);
  twice.complete(1);
  EXPECT_EQ(twice.found(), "completion-order@2");
  Posted unsignaled;
  unsignaled.post(1, WorkKind::kSend, 64, false);
  unsignaled.out(send(100));
  unsignaled.in(ack(100, 1));
  unsignaled.complete(1);
  EXPECT_EQ(unsignaled.found(), "completion-order@2");
}

TEST(Completions, AfterAnErrorAllAreFlushed) {
  Posted t;
  t.post(1);
  t.post(2, WorkKind::kSend, 64, false);
  t.post(3);
  t.complete(1, Outcome::kError);
  t.complete(2, Outcome::kFlushed);
  t.complete(3, Outcome::kFlushed);
  EXPECT_EQ(t.found(), "");
  Posted skipped;
  skipped.post(1);
  skipped.post(2, WorkKind::kSend, 64, false);
  skipped.post(3);
  skipped.complete(1, Outcome::kError);
  skipped.complete(3, Outcome::kFlushed);
  EXPECT_EQ(skipped.found(), "completion-order@0");
  Posted success;
  success.post(1);
  success.post(2);
  success.out(send(100));
  success.out(send(101));
  success.in(ack(101, 2));
  success.complete(1, Outcome::kError);
  success.complete(2);
  EXPECT_EQ(success.found(), "completion-order@3");
}

TEST(Completions, AllThatWasAcknowledgedCompletes) {
  Posted t;
  t.post(1);
  t.out(send(100));
  t.in(ack(100, 1));
  t.wait(seconds(2));
  EXPECT_EQ(t.found(), "completion-missing@2");
}

TEST(Completions, OnlyWhatWasPostedIsSent) {
  Posted nothing;
  nothing.post(1);
  nothing.out(send(100));
  nothing.out(send(101));
  EXPECT_EQ(nothing.found(), "not-posted@2");
  Posted other_kind;
  other_kind.post(1, WorkKind::kWrite, 64);
  other_kind.out(send(100));
  EXPECT_EQ(other_kind.found(), "not-posted@1");
  Posted other_length;
  other_length.post(1, WorkKind::kSend, 63);
  other_length.out(send(100));
  EXPECT_EQ(other_length.found(), "not-posted@1");
}

}  // namespace
}  // namespace uroce::oracle
