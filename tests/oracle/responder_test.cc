// SPDX-License-Identifier: BSD-2-Clause
// Acknowledgements and NAKs of the responder.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

using enum Opcode;
using wire::NakCode;

TEST(Responder, AcknowledgesWhatArrivedInOrder) {
  Trace t;
  t.in(send(500));
  t.in(send(501));
  t.out(ack(501, 2));  // one for both
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.in(send(500));
  broken.out(ack(501, 1));
  EXPECT_EQ(broken.found(), "acks-unreceived@2");
  Trace behind_a_gap;
  behind_a_gap.in(send(501));
  behind_a_gap.out(ack(501, 1));
  EXPECT_EQ(behind_a_gap.found(), "acks-unreceived@2");
  Trace nothing;
  nothing.out(ack(500, 1));
  EXPECT_EQ(nothing.found(), "acks-unreceived@1");
}

TEST(Responder, RefusesWrongMessages) {
  for (const Spec& wrong :
       {part(kRcSendMiddle, 500, 256), part(kRcSendFirst, 500, 100), send(500, 300), part(kRcWriteOnly, 500, 8, 9)}) {
    Trace t;
    t.in(wrong);
    t.out(nak(500, 0, NakCode::kInvalidRequest));
    EXPECT_EQ(t.found(), "") << t.texts();
    Trace broken;
    broken.in(wrong);
    broken.out(ack(500, 1));
    EXPECT_EQ(broken.found(), "acks-invalid@2");
  }
}

TEST(Responder, RefusesOnlyWhatArrived) {
  Trace t;
  t.in(send(500));
  t.out(nak(501, 1, NakCode::kRemoteOperationalError));
  EXPECT_EQ(t.found(), "acks-unreceived@2");
  Trace malformed;  // cannot be parsed: dropped or refused, both will do
  Spec spec = read(500, 4);
  spec.spoil = [](auto& ib) { ib.resize(ib.size() + 4); };
  malformed.in(spec);
  malformed.out(nak(500, 0, NakCode::kInvalidRequest));
  EXPECT_EQ(malformed.found(), "");
}

TEST(Responder, OneNakPerGap) {
  Trace t;
  t.in(send(501));
  t.in(send(502));
  t.out(nak(500, 0));
  t.in(send(500));
  t.in(send(501));
  t.in(send(503));
  t.out(ack(501, 2));
  t.out(nak(502, 2));
  EXPECT_EQ(t.found(), "") << t.texts();
  EXPECT_EQ(t.counts().naks_out, 2u);
  Trace broken;
  broken.in(send(501));
  broken.out(nak(500, 0));
  broken.in(send(502));
  broken.out(nak(500, 0));
  EXPECT_EQ(broken.found(), "one-nak-per-gap@4");
}

TEST(Responder, NakMayComeLateButOnlyOnce) {
  Trace t;
  t.in(send(501));
  t.in(send(500));
  t.out(nak(500, 0));  // decided before 500 came
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.in(send(501));
  broken.out(nak(500, 0));
  broken.in(send(500));
  broken.out(nak(500, 0));
  EXPECT_EQ(broken.found(), "one-nak-per-gap@4");
}

TEST(Responder, NakCarriesTheExpectedPsn) {
  Trace wrong;
  wrong.in(send(500));
  wrong.in(send(503));
  wrong.out(nak(502, 1));
  EXPECT_EQ(wrong.found(), "nak-psn@3");
  Trace no_gap;
  no_gap.in(send(500));
  no_gap.out(nak(501, 1));
  EXPECT_EQ(no_gap.found(), "nak-psn@2");
}

// How many PSNs a READ takes is not known before the path MTU is; its own PSN is.
TEST(Responder, RefusesAReadBeforeThePathMtuIsKnown) {
  Attributes unknown = Trace::usual();
  unknown.path_mtu.reset();
  Trace t(unknown);
  t.in(read(500, 1000));
  t.out(nak(500, 0, wire::NakCode::kRemoteAccessError));
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace broken(unknown);
  broken.in(read(500, 1000));
  broken.out(nak(501, 0, wire::NakCode::kRemoteAccessError));
  EXPECT_EQ(broken.found(), "response-order@2 acks-unreceived@2");
}

TEST(Responder, NoNakBetweenRnrNakAndReturn) {
  Trace t;
  t.in(send(500));
  t.out(rnr_nak(500, 0));
  t.in(send(501));
  t.in(send(500));
  t.in(send(502));
  t.out(ack(500, 1));
  t.out(nak(501, 1));
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace broken;
  broken.in(send(500));
  broken.out(rnr_nak(500, 0));
  broken.in(send(501));
  broken.out(nak(500, 0));
  EXPECT_EQ(broken.found(), "nak-after-rnr@4");
}

TEST(Responder, RnrNakForWhatArrived) {
  Trace t;
  t.in(send(500));
  t.out(rnr_nak(500, 0));
  t.out(rnr_nak(500, 0));
  EXPECT_EQ(t.found(), "rnr-place@3");
  Trace early;
  early.in(send(500));
  early.out(rnr_nak(501, 1));
  EXPECT_EQ(early.found(), "rnr-place@2");
  Trace late;
  late.in(send(500));
  late.out(ack(500, 1));
  late.out(rnr_nak(500, 0));
  EXPECT_EQ(late.found(), "duplicate-answer@3");
}

// Whether a request that arrived twice was refused once or twice shows only later.
TEST(Responder, RnrNakAndASecondArrival) {
  Trace accepted;
  accepted.in(send(500));
  accepted.in(send(500));
  accepted.out(rnr_nak(500, 0));
  accepted.out(ack(500, 1));
  EXPECT_EQ(accepted.found(), "") << accepted.texts();
  Trace twice;
  twice.in(send(500));
  twice.in(send(500));
  twice.out(rnr_nak(500, 0));
  twice.out(rnr_nak(500, 0));
  EXPECT_EQ(twice.found(), "") << twice.texts();
  Trace forgotten;  // one RNR NAK for both arrivals
  forgotten.in(send(500));
  forgotten.in(send(500));
  forgotten.in(send(501));
  forgotten.out(rnr_nak(500, 0));
  forgotten.in(send(500));
  forgotten.in(send(502));
  forgotten.out(nak(501, 1));
  EXPECT_EQ(forgotten.found(), "") << forgotten.texts();
  Trace broken;
  broken.in(send(500));
  broken.in(send(500));
  broken.out(rnr_nak(500, 0));
  broken.out(rnr_nak(500, 0));
  broken.out(ack(500, 1));
  EXPECT_EQ(broken.found(), "acks-unreceived@5");
}

TEST(Responder, MsnCountsCompletedMessages) {
  const auto with = [](uint32_t psn, uint32_t msn) {
    Trace t;
    t.in(send(500));
    t.in(part(kRcSendFirst, 501, 256));
    t.in(part(kRcSendLast, 502, 1));
    t.in(write(503));
    t.out(ack(psn, msn));  // packet 5
    return t.found();
  };
  EXPECT_EQ(with(503, 3), "");
  EXPECT_EQ(with(503, 2), "msn@5");
  EXPECT_EQ(with(503, 4), "msn@5");
  EXPECT_EQ(with(501, 1), "");
  EXPECT_EQ(with(501, 3), "");  // may know more by now
  EXPECT_EQ(with(502, 1), "msn@5");
}

TEST(Responder, MsnOfNaks) {
  Trace t;
  t.in(send(500));
  t.in(send(502));
  t.out(nak(501, 0));
  EXPECT_EQ(t.found(), "msn@3");
  Trace rnr;
  rnr.in(send(500));
  rnr.out(rnr_nak(500, 1));
  EXPECT_EQ(rnr.found(), "msn@2");
}

TEST(Responder, DuplicatesAreAcknowledged) {
  Trace t;
  t.in(send(500));
  t.out(ack(500, 1));
  t.in(send(500));
  t.out(ack(500, 1));
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.counts().retransmissions_in, 1u);
  EXPECT_EQ(t.counts().messages_in, 1u);
  Trace refused;
  refused.in(send(500));
  refused.out(ack(500, 1));
  refused.in(send(500));
  refused.out(nak(500, 1, NakCode::kRemoteAccessError));
  EXPECT_EQ(refused.found(), "duplicate-answer@4");
  Trace silent;
  silent.in(send(500));
  silent.out(ack(500, 1));
  silent.in(send(500));
  silent.wait(seconds(2));
  EXPECT_EQ(silent.found(), "unanswered@3");
}

TEST(Responder, RequestsAreAnsweredInTheEnd) {
  Trace t;
  t.in(send(500));
  t.wait(milliseconds(900));
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.in(send(500));
  broken.wait(milliseconds(1100));
  EXPECT_EQ(broken.found(), "unanswered@1");
  Trace ended;
  ended.in(send(500));
  ended.oracle.ended(wire::Qpn(Trace::kLocalQpn));
  ended.wait(milliseconds(1100));
  EXPECT_EQ(ended.found(), "");
  Trace not_asked;
  Spec spec = send(500);
  spec.ack = false;
  not_asked.in(spec);
  not_asked.wait(milliseconds(1100));
  EXPECT_EQ(not_asked.found(), "");
}

TEST(Responder, Syndromes) {
  Trace t;
  t.in(send(500));
  Spec reserved = ack(500, 1);
  reserved.aeth.syndrome = 0x40;
  t.out(reserved);
  EXPECT_EQ(t.found(), "syndrome@2");
  Trace code;
  code.in(send(500));
  Spec unknown = nak(500, 0, NakCode::kInvalidRdRequest);
  code.out(unknown);
  EXPECT_EQ(code.found(), "syndrome@2");
  Trace in_response;
  in_response.in(read(500, 4));
  Spec bad = response(kRcReadResponseOnly, 500, 4, 1);
  bad.aeth = wire::Aeth::make_rnr_nak(1, wire::Msn(1));
  in_response.out(bad);
  EXPECT_EQ(in_response.found(), "syndrome@2");
}

TEST(Responder, Credits) {
  for (const bool counts : {false, true}) {
    for (const uint8_t code : {uint8_t{31}, uint8_t{3}}) {
      Attributes a = Trace::usual();
      a.counts_credits = counts;
      Trace t(a);
      t.in(send(500));
      t.out(ack(500, 1, code));
      EXPECT_EQ(t.found(), counts == (code != 31) ? "" : "credits@2");
    }
  }
}

}  // namespace
}  // namespace uroce::oracle
