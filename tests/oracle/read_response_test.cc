// SPDX-License-Identifier: BSD-2-Clause
// READ responses and atomic ACKs of the responder.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

using enum Opcode;

// Responses of 256, 256 and 100 bytes to a READ at PSN 500.
const Spec kFirst = response(kRcReadResponseFirst, 500, 256, 1);
const Spec kMiddle = response(kRcReadResponseMiddle, 501, 256, 0);
const Spec kLast = response(kRcReadResponseLast, 502, 100, 1);

std::string found(const std::vector<Spec>& in, const std::vector<Spec>& out) {
  Trace t;
  for (const Spec& spec : in) t.in(spec);
  for (const Spec& spec : out) t.out(spec);
  return t.found();
}

TEST(ReadResponses, PositionsAndSizes) {
  const Spec request = read(500, 612);
  EXPECT_EQ(found({request}, {kFirst, kMiddle, kLast}), "");
  EXPECT_EQ(found({read(500, 0)}, {response(kRcReadResponseOnly, 500, 0, 1)}), "");
  EXPECT_EQ(found({request}, {kFirst, response(kRcReadResponseMiddle, 501, 252, 1)}), "response-size@3");
  EXPECT_EQ(found({request}, {kFirst, kMiddle, response(kRcReadResponseLast, 502, 104, 1)}), "response-size@4");
  EXPECT_EQ(found({request}, {response(kRcReadResponseOnly, 500, 256, 1)}), "response-position@2");
  EXPECT_EQ(found({request}, {response(kRcReadResponseMiddle, 500, 256, 1)}), "response-position@2");
  EXPECT_EQ(found({request}, {kFirst, response(kRcReadResponseLast, 501, 256, 1)}), "response-position@3");
  EXPECT_EQ(found({request}, {kFirst, kMiddle, response(kRcReadResponseMiddle, 502, 100, 1)}), "response-position@4");
}

TEST(ReadResponses, InPsnOrder) {
  EXPECT_EQ(found({read(500, 612)}, {kFirst, kLast}), "response-order@3");
  const Spec second = response(kRcReadResponseOnly, 503, 4, 2);
  EXPECT_EQ(found({read(500, 612), read(503, 4)}, {kFirst, kMiddle, kLast, second}), "");
  EXPECT_EQ(found({read(500, 612), read(503, 4)}, {kFirst, second}), "response-order@4");
}

TEST(ReadResponses, AckDoesNotOvertake) {
  EXPECT_EQ(found({read(500, 612), send(503)}, {kFirst, kMiddle, kLast, ack(503, 2)}), "");
  EXPECT_EQ(found({read(500, 612), send(503)}, {kFirst, ack(503, 2)}), "response-order@4");
  EXPECT_EQ(found({send(500), read(501, 4)}, {ack(501, 2)}), "response-order@3");
  EXPECT_EQ(found({read(500, 4), send(502)}, {nak(501, 1)}), "response-order@3");
  EXPECT_EQ(found({fetch_add(500), send(501)}, {ack(501, 2)}), "response-order@3");
}

TEST(ReadResponses, OnlyForReads) {
  EXPECT_EQ(found({send(500)}, {response(kRcReadResponseOnly, 500, 4, 1)}), "response-unrequested@2");
  EXPECT_EQ(found({fetch_add(500)}, {response(kRcReadResponseOnly, 500, 8, 1)}), "response-unrequested@2");
  EXPECT_EQ(found({send(500)}, {atomic_ack(500, 1)}), "response-unrequested@2");
}

TEST(ReadResponses, Unanswered) {
  Trace t;
  t.in(read(500, 612));
  t.out(kFirst);
  t.wait(seconds(2));
  EXPECT_EQ(t.found(), "unanswered@2");
}

TEST(ReadResponses, Replays) {
  Trace t;
  t.in(read(500, 612));
  for (const Spec& spec : {kFirst, kMiddle, kLast}) t.out(spec);
  t.in(read(501, 356, 0x1100));  // only the rest
  t.out(response(kRcReadResponseFirst, 501, 256, 1));
  t.out(kLast);
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace not_asked;
  not_asked.in(read(500, 612));
  for (const Spec& spec : {kFirst, kMiddle, kLast, kFirst}) not_asked.out(spec);
  EXPECT_EQ(not_asked.found(), "response-unrequested@5");
  Trace once;
  once.in(read(500, 4));
  once.out(response(kRcReadResponseOnly, 500, 4, 1));
  once.in(read(500, 4));
  once.out(response(kRcReadResponseOnly, 500, 4, 1));
  once.out(response(kRcReadResponseOnly, 500, 4, 1));
  EXPECT_EQ(once.found(), "response-unrequested@5");
}

// As Linux Soft-RoCE does it: bad manners, but known ones.
TEST(ReadResponses, ReplayThatBeginsInTheMiddle) {
  Trace t;
  t.in(read(500, 612));
  for (const Spec& spec : {kFirst, kMiddle, kLast}) t.out(spec);
  t.in(read(501, 356, 0x1100));
  t.out(kMiddle);
  t.out(kLast);
  EXPECT_EQ(t.found(), "replay-begin@6") << t.texts();
  EXPECT_EQ(t.oracle.error_count(), 0u);
  EXPECT_EQ(t.oracle.violation_count(), 1u);
}

TEST(ReadResponses, InterruptedByAReplay) {
  Trace t;
  t.in(read(500, 612));
  t.out(kFirst);
  t.in(read(500, 612));
  for (const Spec& spec : {kFirst, kMiddle, kLast}) t.out(spec);
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(ReadResponses, AtomicReplaysHaveTheSameAnswer) {
  Trace t;
  t.in(fetch_add(500));
  t.out(atomic_ack(500, 1, 42));
  t.in(fetch_add(500));
  t.out(atomic_ack(500, 1, 42));
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.in(fetch_add(500));
  broken.out(atomic_ack(500, 1, 42));
  broken.in(fetch_add(500));
  broken.out(atomic_ack(500, 1, 43));
  EXPECT_EQ(broken.found(), "atomic-replay@4");
}

TEST(ReadResponses, Depth) {
  const std::vector<Spec> three = {read(500, 4), fetch_add(501), read(502, 4)};  // two are allowed
  const Spec one = response(kRcReadResponseOnly, 500, 4, 1), two = atomic_ack(501, 2);
  EXPECT_EQ(found(three, {one, two, nak(502, 2, wire::NakCode::kInvalidRequest)}), "");
  EXPECT_EQ(found(three, {one, two, response(kRcReadResponseOnly, 502, 4, 3)}), "responder-depth@6");
  EXPECT_EQ(found({read(500, 4), fetch_add(501), fetch_add(502)}, {one, two, atomic_ack(502, 3)}), "responder-depth@6");
  Trace in_turn;
  in_turn.in(three[0]);
  in_turn.in(three[1]);
  in_turn.out(one);
  in_turn.in(three[2]);
  in_turn.out(two);
  in_turn.out(response(kRcReadResponseOnly, 502, 4, 3));
  EXPECT_EQ(in_turn.found(), "") << in_turn.texts();
}

TEST(ReadResponses, DepthIsThatOfTheTimeOfHandling) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  t.in(read(500, 4));
  t.in(fetch_add(501));
  t.in(read(502, 4));  // may wait until the first is answered
  t.out(response(kRcReadResponseOnly, 500, 4, 1));
  t.out(atomic_ack(501, 2));
  t.out(response(kRcReadResponseOnly, 502, 4, 3));
  EXPECT_EQ(t.found(), "") << t.texts();
}

}  // namespace
}  // namespace uroce::oracle
