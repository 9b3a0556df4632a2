// SPDX-License-Identifier: BSD-2-Clause
// Connections that nobody declared: which directions belong together, and captures that begin in the middle.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

using enum Opcode;

struct Captured : Trace {
  Captured() : Trace(Undeclared{}) {}
};

Spec to(uint32_t qp, Spec spec) {
  spec.dest_qp = qp;
  return spec;
}

TEST(Captures, DirectionsArePaired) {
  Captured t;
  t.out(send(100));
  t.in(send(500));
  t.in(ack(100, 1));
  t.out(ack(500, 1));
  t.out(send(100));  // acknowledged
  EXPECT_EQ(t.found(), "resends-acknowledged@5");
  const auto summary = t.oracle.summary();
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary[0].name.text(), "10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202");
  EXPECT_EQ(summary[0].counts.packets_out, 3u);
  EXPECT_EQ(summary[0].counts.packets_in, 2u);
}

TEST(Captures, PairsByPsnAmongSeveral) {
  Captured t;
  t.out(to(0x202, send(100)));
  t.out(to(0x203, send(9000)));
  t.in(to(0x103, ack(9000, 1)));
  t.in(to(0x102, ack(100, 1)));
  EXPECT_EQ(t.found(), "");
  const auto summary = t.oracle.summary();
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0].name.text(), "10.0.0.1 qp 0x102 -> 10.0.0.2 qp 0x202");
  EXPECT_EQ(summary[1].name.text(), "10.0.0.1 qp 0x103 -> 10.0.0.2 qp 0x203");
}

// Two connections with the same PSNs: not paired before they differ, and nothing is made up meanwhile.
TEST(Captures, AmbiguousDirectionsStayApart) {
  Captured t;
  t.out(to(0x202, send(100)));
  t.out(to(0x203, send(100)));
  t.in(to(0x102, ack(100, 1)));
  t.in(to(0x103, ack(100, 1)));
  t.out(to(0x202, send(100)));
  EXPECT_EQ(t.found(), "");
  auto summary = t.oracle.summary();
  ASSERT_EQ(summary.size(), 4u);
  EXPECT_EQ(summary[0].not_judged.size(), 2u);

  Captured later;
  later.out(to(0x202, send(100)));
  later.out(to(0x203, send(100)));
  later.in(to(0x102, ack(100, 1)));
  later.out(to(0x203, send(101)));
  later.in(to(0x103, ack(101, 2)));
  EXPECT_EQ(later.found(), "");
  summary = later.oracle.summary();
  ASSERT_EQ(summary.size(), 3u);
  EXPECT_EQ(summary[1].name.text(), "10.0.0.1 qp 0x103 -> 10.0.0.2 qp 0x203");
}

TEST(Captures, JudgesUnpairedRequests) {
  Captured t;
  t.out(send(100));
  t.out(send(102));  // perhaps the capture began after going back
  t.out(send(104));
  EXPECT_EQ(t.found(), "psn-consecutive@3");
}

// The oldest packet in flight and the newest that is worth it are sent again early (probes), and then it goes on; long
// READs lie in front of that, whose requests left before the capture began.
TEST(Captures, BeginWithProbesInFrontOfReads) {
  const auto with = [](const std::vector<Spec>& specs) {
    Captured t;
    for (const Spec& spec : specs) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(with({send(200), send(203), send(251), send(252)}), "");
  EXPECT_EQ(with({send(200), send(203), send(200), send(203), send(251), send(252)}), "");
  EXPECT_EQ(with({send(200), send(203), send(251), send(200), send(203), send(252)}), "");
  EXPECT_EQ(with({send(200), send(203), send(251), send(260)}), "psn-consecutive@4");
  EXPECT_EQ(with({send(200), send(203), send(251), send(252), send(260)}), "psn-consecutive@5");
  // With more than the newest packet it is no probe.
  EXPECT_EQ(with({send(200), send(203), send(204), send(251)}), "psn-consecutive@4");
  // READs of a single response are newest packets themselves, long ones are not.
  EXPECT_EQ(with({send(200), send(203), send(205)}), "psn-consecutive@3");
  EXPECT_EQ(with({part(kRcSendFirst, 200, 256), read(203, 300), send(251)}), "psn-consecutive@3");
}

// Responses before the directions are paired are not known to whom: what is judged begins again with the pairing, and
// be it in the middle of probes.
TEST(Captures, PairedInTheMiddleOfProbes) {
  Captured t;
  t.out(to(0x203, send(199)));
  for (uint32_t psn = 199; psn < 204; ++psn) t.out(to(0x202, send(psn)));
  t.out(to(0x202, read(204, 47105)));  // 47 PSNs of 1024 bytes
  t.in(to(0x102, ack(199, 1)));        // of which of them?
  t.in(to(0x102, ack(200, 2)));
  for (const uint32_t psn : {201, 203, 251, 252}) t.out(to(0x202, send(psn)));
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Captures, BeginInTheMiddleOfMessages) {
  Captured t;
  t.in(part(kRcWriteMiddle, 500, 1024));
  t.out(part(kRcSendMiddle, 100, 1024));
  t.out(part(kRcSendLast, 101, 3));
  t.in(part(kRcWriteLast, 501, 7));
  t.out(ack(501, 4711));
  t.in(ack(101, 99));
  t.in(send(502));
  t.out(ack(502, 4712));
  EXPECT_EQ(t.found(), "") << t.texts();
  Captured msn;
  msn.in(send(500));
  msn.out(ack(500, 4711));
  msn.in(send(501));
  msn.out(ack(501, 4712));
  msn.in(send(502));
  msn.out(ack(502, 4712));
  EXPECT_EQ(msn.found(), "msn@6");
  Captured duplicates;
  duplicates.in(send(500));
  duplicates.out(ack(501, 4711));
  duplicates.in(send(501));
  duplicates.out(ack(501, 4711));
  duplicates.in(send(502));
  duplicates.out(ack(502, 4712));
  EXPECT_EQ(duplicates.found(), "") << duplicates.texts();
}

TEST(Captures, ResponsesToWhatWasRequestedBefore) {
  Captured t;
  t.in(send(503));
  t.out(ack(503, 8));
  t.out(response(kRcReadResponseLast, 502, 100, 7));  // not in order, but of before
  t.in(ack(99, 5));
  EXPECT_EQ(t.found(), "");
}

TEST(Captures, PathMtuIsLearnt) {
  Captured t;
  t.out(part(kRcSendFirst, 100, 512));
  t.out(part(kRcSendMiddle, 101, 256));
  EXPECT_EQ(t.found(), "payload-size@2");
  Captured by_response;
  by_response.in(read(500, 2000));
  by_response.out(response(kRcReadResponseFirst, 500, 1024, 1));
  by_response.out(response(kRcReadResponseLast, 501, 976, 1));
  by_response.in(read(502, 2000));
  by_response.out(response(kRcReadResponseFirst, 502, 1000, 2));
  EXPECT_EQ(by_response.found(), "response-size@5") << by_response.texts();
  Captured by_next;
  by_next.out(read(100, 2000));
  by_next.out(send(102));
  by_next.out(send(103));
  EXPECT_EQ(by_next.found(), "") << by_next.texts();
}

// Before the path MTU is known, the next request seems to tell how many responses a READ has; but others between them
// may have been lost. The responses tell it.
TEST(Captures, RequestsBehindAReadAreLost) {
  Attributes unknown = Trace::usual();
  unknown.path_mtu.reset();
  const auto with = [&](const Spec& request, uint32_t next, const std::vector<Spec>& responses) {
    Trace t(unknown);
    t.in(request);
    t.in(send(next));
    t.in(send(next + 1));
    for (const Spec& response : responses) t.out(response);
    for (uint32_t psn = responses.back().psn; psn < next + 2; ++psn) t.in(send(psn));
    t.out(ack(next + 1, 1 + next + 2 - responses.back().psn));
    return t.found();
  };
  EXPECT_EQ(with(read(500, 300), 502, {response(kRcReadResponseOnly, 500, 300, 1), nak(501, 1)}), "");
  const Spec first = response(kRcReadResponseFirst, 500, 1024, 1), last = response(kRcReadResponseLast, 501, 176, 1);
  EXPECT_EQ(with(read(500, 1200), 505, {first, last, nak(502, 1)}), "");
  // What it says has to be true.
  EXPECT_EQ(with(read(500, 300), 502, {response(kRcReadResponseOnly, 500, 256, 1), nak(502, 1)}),
            "response-position@4 response-size@4 response-order@5 nak-psn@5");
  Trace t(unknown);
  t.in(read(500, 300));
  t.in(send(502));
  t.out(response(kRcReadResponseOnly, 500, 300, 1));
  t.out(ack(502, 2));
  EXPECT_EQ(t.found(), "acks-unreceived@4");
}

TEST(Captures, LostResponsesOfAPeerThatIsDead) {
  Captured t;
  t.in(send(500));
  t.out(ack(500, 1));
  t.in(send(501));
  t.wait(seconds(5));
  EXPECT_EQ(t.found(), "");  // the host may be gone
  Captured alive;
  alive.in(send(500));
  alive.out(ack(500, 1));
  alive.in(send(501));
  alive.wait(seconds(5));
  alive.out(send(100));
  EXPECT_EQ(alive.found(), "unanswered@4");
}

TEST(Captures, SameNumbersAgain) {
  Captured t;
  t.out(send(100));
  t.in(nak(100, 0, wire::NakCode::kRemoteAccessError));
  t.out(send(700000));
  t.in(ack(700000, 1));
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Captures, LocalAddressesAreLearntFromOutboundRecords) {
  Oracle oracle;
  pcapng::Record record;
  EXPECT_EQ(oracle.packet_count(), 0u);
  oracle.add(record);
  EXPECT_EQ(oracle.packet_count(), 0u);
}

TEST(Declarations, BeginAnew) {
  Trace t;
  t.out(send(100));
  Attributes again = Trace::usual();
  again.sq_psn = wire::Psn(7);
  t.oracle.declare(address(1), wire::Qpn(Trace::kLocalQpn), address(2), wire::Qpn(Trace::kRemoteQpn), again);
  t.out(send(7));
  EXPECT_EQ(t.found(), "");
}

TEST(Memory, IsBoundedByWhatIsOutstanding) {
  // A long run whose responses are never seen must not keep every packet: it would be killed by its size under
  // sanitizers long before it were wrong.
  Captured t;
  for (uint32_t i = 0; i < 200000; ++i) t.out(send(i, 0));
  EXPECT_EQ(t.found(), "");
}

}  // namespace
}  // namespace uroce::oracle
