// SPDX-License-Identifier: BSD-2-Clause
#include "oracle/report.h"

#include <gtest/gtest.h>
#include <set>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

TEST(Report, ViolationAsALine) {
  Trace t;
  t.in(send(501));
  t.out(nak(500, 0));
  t.out(nak(500, 0));
  t.found();
  ASSERT_EQ(t.oracle.violations().size(), 1u);
  EXPECT_EQ(format_violation(t.oracle.violations()[0], Time(seconds(100))),
            "packet 3 0.000003 s  10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202: one-nak-per-gap: second NAK for PSN 500 "
            "(IBTA 9.7.5.1)");
}

TEST(Report, Quirk) {
  Violation violation{.packet = 7, .time = Time{}, .rule = Rule::kReplayBegin, .connection = {}, .text = "so"};
  EXPECT_NE(format_violation(violation).find("replay-begin [quirk]: so"), std::string::npos);
}

TEST(Report, Table) {
  Trace t;
  t.out(send(100, 200));
  t.in(ack(100, 1));
  const std::string table = format_summary(t.oracle.summary());
  EXPECT_NE(table.find("10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202  1/1      1/0       200 B/0 B"), std::string::npos)
      << table;
}

TEST(Report, ViolationsBeyondTheLimitAreCounted) {
  Options options;
  options.kept_violations = 2;
  Trace t(Trace::usual(), options);
  for (uint32_t psn = 100; psn < 105; ++psn) t.out_corrupt(send(psn));
  EXPECT_EQ(t.oracle.violations().size(), 2u);
  EXPECT_EQ(t.oracle.violation_count(), 5u);
  EXPECT_EQ(t.oracle.error_count(), 5u);
}

TEST(Rules, HaveNamesOfTheirOwn) {
  std::set<std::string> ids;
  for (size_t i = 0; i < static_cast<size_t>(Rule::kCount); ++i) {
    const RuleInfo& info = rule_info(static_cast<Rule>(i));
    EXPECT_TRUE(ids.insert(info.id).second) << info.id;
    EXPECT_NE(std::string(info.clause), "");
  }
}

}  // namespace
}  // namespace uroce::oracle
