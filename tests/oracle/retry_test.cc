// SPDX-License-Identifier: BSD-2-Clause
// RNR waits, PSN NAKs and retry budgets of the requester.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

using enum Opcode;

TEST(Retry, GoesBackToTheNak) {
  Trace t;
  for (uint32_t psn = 100; psn < 104; ++psn) t.out(send(psn));
  t.in(nak(101, 1));
  for (uint32_t psn = 101; psn < 105; ++psn) t.out(send(psn));
  EXPECT_EQ(t.found(), "") << t.texts();
  EXPECT_EQ(t.counts().naks_in, 1u);
  Trace broken;
  for (uint32_t psn = 100; psn < 104; ++psn) broken.out(send(psn));
  broken.in(nak(101, 1));
  broken.out(send(104));
  EXPECT_EQ(broken.found(), "nak-ignored@6");
  Trace not_all;  // a NAK is not answered by a probe
  for (uint32_t psn = 100; psn < 104; ++psn) not_all.out(send(psn));
  not_all.in(nak(101, 1));
  not_all.out(send(101));
  not_all.out(send(104));
  EXPECT_EQ(not_all.found(), "go-back-order@7");
  Trace repeated;  // but after that one may be, whatever has become of its copies
  for (uint32_t psn = 100; psn < 104; ++psn) repeated.out(send(psn));
  repeated.in(nak(101, 1));
  for (uint32_t psn = 101; psn < 104; ++psn) repeated.out(send(psn));
  repeated.in(nak(101, 1));
  repeated.out(send(101));
  repeated.out(send(103));
  EXPECT_EQ(repeated.found(), "") << repeated.texts();
}

TEST(Retry, NakBeforeTheSlackIsOverNeedNotBeKnown) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  t.out(send(100));
  t.out(send(101));
  t.in(nak(100, 0));
  t.out(send(102));
  t.wait(milliseconds(2));
  t.out(send(103));
  EXPECT_EQ(t.found(), "nak-ignored@5");
}

// Going back at once is going back: later packets follow when the peer's silence is over.
TEST(Retry, NakAnsweredWithinTheSlackIsAnswered) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  t.out(send(100));
  t.out(send(101));
  t.in(nak(100, 0));
  t.out(send(100));
  t.out(send(101));
  t.wait(milliseconds(2));
  t.out(send(102));
  EXPECT_EQ(t.found(), "") << t.texts();
}

// ... and what is sent again later is a probe.
TEST(Retry, ProbeAfterANakAnsweredWithinTheSlack) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  for (uint32_t psn = 100; psn < 104; ++psn) t.out(send(psn));
  t.in(nak(100, 0));
  for (uint32_t psn = 100; psn < 104; ++psn) t.out(send(psn));
  t.wait(milliseconds(2));
  t.out(send(100));
  t.out(send(103));
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Retry, LateNakForThePartOfAReadThatIsAnswered) {
  Trace t;
  t.out(read(100, 300));
  t.out(send(102));
  t.in(response(Opcode::kRcReadResponseFirst, 100, 256, 1));
  t.in(nak(100, 0));
  t.out(read(101, 44, 0x1100));
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Retry, NakAcknowledgesWhatIsBeforeIt) {
  Trace t;
  t.out(send(100));
  t.out(send(101));
  t.in(nak(101, 1));
  t.out(send(100));
  EXPECT_EQ(t.found(), "resends-acknowledged@4");
}

TEST(Retry, RnrWait) {
  for (const Duration waited : {microseconds(9), microseconds(11)}) {
    Trace t;
    t.out(send(100));
    t.in(rnr_nak(100, 0, 1));  // 10 us
    t.wait(waited - microseconds(1));
    t.out(send(100));
    EXPECT_EQ(t.found(), waited < microseconds(10) ? "rnr-wait@3" : "");
  }
  Trace newer;
  newer.out(send(100));
  newer.in(rnr_nak(100, 0, 1));
  newer.out(send(101));
  EXPECT_EQ(newer.found(), "rnr-wait@3");
}

TEST(Retry, ProgressEndsTheRnrWait) {
  Trace t;
  t.out(send(100));
  t.in(rnr_nak(100, 0, 20));
  t.in(ack(100, 1));
  t.out(send(101));
  EXPECT_EQ(t.found(), "");
}

TEST(Retry, StaleRnrNakDoesNotMatter) {
  Trace t;
  t.out(send(100));
  t.in(ack(100, 1));
  t.in(rnr_nak(100, 0, 20));
  t.out(send(101));
  EXPECT_EQ(t.found(), "");
}

TEST(Retry, RnrBudget) {
  for (const uint8_t budget : {2, 7}) {  // 7 is for ever
    Attributes a = Trace::usual();
    a.rnr_retry = budget;
    Trace t(a);
    t.out(send(100));
    for (int i = 0; i < 3; ++i) {
      t.in(rnr_nak(100, 0, 1));
      t.wait(microseconds(10));
      t.out(send(100));
    }
    EXPECT_EQ(t.found(), budget == 7 ? "" : "rnr-budget@7");
  }
}

TEST(Retry, ProgressRenewsTheRnrBudget) {
  Trace t;
  for (uint32_t psn = 100; psn < 105; ++psn) {
    t.out(send(psn));
    for (int i = 0; i < 2; ++i) {
      t.in(rnr_nak(psn, psn - 100, 1));
      t.wait(microseconds(10));
      t.out(send(psn));
    }
    t.in(ack(psn, psn - 99));
  }
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Retry, NakBudget) {
  Trace t;  // retry_cnt 2
  t.out(send(100));
  t.out(send(101));
  for (int i = 0; i < 3; ++i) {
    t.in(nak(100, 0));
    t.out(send(100));
    t.out(send(101));
  }
  EXPECT_EQ(t.found(), "retry-budget@10");
}

// An RNR NAK says that the packet has arrived, and has a budget of its own.
TEST(Retry, RnrNakGivesTheNakBudgetBack) {
  Attributes for_ever = Trace::usual();
  for_ever.rnr_retry = 7;
  Trace t(for_ever);
  t.out(send(100));
  t.out(send(101));
  for (int i = 0; i < 5; ++i) {
    t.in(rnr_nak(100, 0));
    t.wait(milliseconds(1));
    t.out(send(100));
    t.out(send(101));
    t.in(nak(100, 0));
    t.out(send(100));
    t.out(send(101));
  }
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Retry, TimeBudget) {
  // Timeout 10 is 4.19 ms, up to four times as long, and two retries: 50 ms.
  Trace t;
  t.out(send(100));
  for (int i = 0; i < 4; ++i) {
    t.wait(milliseconds(12));
    t.out(send(100));
  }
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.out(send(100));
  for (int i = 0; i < 6; ++i) {
    broken.wait(milliseconds(12));
    broken.out(send(100));
  }
  EXPECT_EQ(broken.found(), "retry-budget@6");
  Trace idle;
  idle.out(send(100));
  idle.in(ack(100, 1));
  idle.wait(seconds(5));
  idle.out(send(101));
  EXPECT_EQ(idle.found(), "");
}

// Timeout 10 and two retries allow 50 ms; the user has asked for 6 s, 2 s for each.
TEST(Retry, PatienceIsTheLeastTimeOfAllRetries) {
  Options patient;
  patient.patience = seconds(6);
  for (const bool over : {false, true}) {
    Trace t(Trace::usual(), patient);
    t.out(send(100));
    for (int i = 0; i < (over ? 4 : 3); ++i) {
      t.wait(milliseconds(1990));
      t.out(send(100));
    }
    EXPECT_EQ(t.found(), over ? "retry-budget@5" : "") << t.texts();
  }
  Attributes longer = Trace::usual();  // who allows more keeps it
  longer.timeout = 20;
  Trace t(longer, patient);
  t.out(send(100));
  t.wait(seconds(7));
  t.out(send(100));
  EXPECT_EQ(t.found(), "") << t.texts();
}

// A silence longer than the timer may run: the requester was stopped, and has the rest of its budget afterwards. Two of
// them are a timer that is too slow.
TEST(Retry, TimeInWhichTheRequesterStoodStillDoesNotCount) {
  Trace t;
  t.out(send(100));
  t.wait(milliseconds(12));
  t.out(send(100));
  t.wait(seconds(60));
  for (int i = 0; i < 3; ++i) {
    t.out(send(100));
    t.wait(milliseconds(12));
  }
  EXPECT_EQ(t.found(), "");
  t.wait(milliseconds(20));
  t.out(send(100));
  EXPECT_EQ(t.found(), "retry-budget@6");
  Trace slow;
  for (int i = 0; i < 3; ++i) {
    slow.out(send(100));
    slow.wait(milliseconds(60));
  }
  EXPECT_EQ(slow.found(), "retry-budget@3");
}

TEST(Retry, TimeoutZeroIsForEver) {
  Attributes a = Trace::usual();
  a.timeout = 0;
  Trace t(a);
  t.out(send(100));
  t.wait(seconds(1000));
  t.out(send(100));
  EXPECT_EQ(t.found(), "");
}

}  // namespace
}  // namespace uroce::oracle
