// SPDX-License-Identifier: BSD-2-Clause
// Whole exchanges of the connection manager: who may say what when, and how it is summed up.
#include <gtest/gtest.h>

#include "tests/oracle/cm_builder.h"

namespace uroce::oracle {
namespace {

using wire::CmAnswered;
using wire::Drep;
using wire::RejReason;
using wire::Rtu;

TEST(CmExchanges, FromReqToDrep) {
  CmTrace active;
  active.connect();
  active.out(active.dreq());
  active.in(active.with_ids<Drep>(false));
  EXPECT_EQ(active.found(), "");
  const CmSummary summary = active.oracle.cm_summary().at(0);
  EXPECT_EQ(summary.service, "TCP port 7471");
  EXPECT_EQ(summary.transport, "RC");
  EXPECT_EQ(summary.outcome, "established, disconnected");
  EXPECT_TRUE(summary.active);
  EXPECT_EQ(summary.local_qpn->value(), CmTrace::kOurQp);
  EXPECT_EQ(summary.remote_qpn->value(), CmTrace::kTheirQp);
  EXPECT_EQ(summary.packets_out, 3u);
  EXPECT_EQ(summary.packets_in, 2u);

  CmTrace passive;
  passive.accept();
  passive.in(passive.dreq(false));
  passive.out(passive.with_ids<Drep>());
  EXPECT_EQ(passive.found(), "");
  EXPECT_EQ(passive.outcome(), "established, disconnected");
}

TEST(CmExchanges, CrossingDreqs) {
  CmTrace t;
  t.connect();
  t.out(t.dreq(), 10);
  t.in(t.dreq(false), 11);
  t.out(t.with_ids<Drep>(), 11);
  t.in(t.with_ids<Drep>(false), 10);
  EXPECT_EQ(t.found(), "");
}

TEST(CmExchanges, RejectionsInWords) {
  CmTrace t;
  t.out(t.req());
  wire::Rej rej = t.rej(CmAnswered::kReq, RejReason::kServiceId, false);
  rej.local_id = {};
  t.in(rej);
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.outcome(), "rejected by 10.0.0.2: nobody listens at this service (8)");

  CmTrace ours;
  ours.in(ours.req(false));
  ours.out(ours.rej(CmAnswered::kReq));
  EXPECT_EQ(ours.found(), "");
  EXPECT_EQ(ours.outcome(), "rejected by 10.0.0.1: by the application (28)");
}

TEST(CmExchanges, OrderOfTheActiveSide) {
  CmTrace rtu;
  rtu.out(rtu.req());
  rtu.out(rtu.with_ids<Rtu>());
  EXPECT_EQ(rtu.found(), "cm-order@2") << "RTU to no REP";

  CmTrace dreq;
  dreq.out(dreq.req());
  dreq.in(dreq.rep(false));
  dreq.out(dreq.dreq());
  EXPECT_EQ(dreq.found(), "cm-order@3") << "DREQ before the RTU";

  CmTrace again;
  again.out(again.req());
  again.in(again.rep(false));
  again.wait(seconds(7));
  again.out(again.req());
  EXPECT_EQ(again.found(), "cm-order@3") << "REQ again after the REP";

  CmTrace twice;
  twice.connect();
  twice.out(twice.with_ids<Rtu>());
  EXPECT_EQ(twice.found(), "cm-order@4") << "RTU again without a REP";

  CmTrace late;
  late.out(late.req());
  late.in(late.rej(CmAnswered::kReq, RejReason::kConsumer, false));
  late.wait(seconds(7));
  late.out(late.req());
  EXPECT_EQ(late.found(), "cm-order@3") << "REQ again after the REJ";
}

TEST(CmExchanges, OrderOfThePassiveSide) {
  CmTrace rep;
  rep.out(rep.rep());
  EXPECT_EQ(rep.found(), "cm-order@1") << "REP to no REQ";

  CmTrace rejected;
  rejected.in(rejected.req(false));
  rejected.out(rejected.rej(CmAnswered::kReq));
  rejected.out(rejected.rep());
  EXPECT_EQ(rejected.found(), "cm-order@3") << "REP after a REJ";

  CmTrace again;
  again.accept();
  again.wait(seconds(5));
  again.out(again.rep());
  EXPECT_EQ(again.found(), "cm-order@4") << "REP again after the RTU";

  CmTrace mra;
  mra.accept();
  mra.out(mra.mra(CmAnswered::kReq));
  EXPECT_EQ(mra.found(), "cm-order@4") << "MRA of an answered REQ";

  CmTrace drep;
  drep.accept();
  drep.out(drep.with_ids<Drep>());
  EXPECT_EQ(drep.found(), "cm-order@4") << "DREP to no DREQ";

  CmTrace dreq;
  dreq.accept();
  dreq.in(dreq.dreq(false));
  dreq.out(dreq.dreq(), 9);
  EXPECT_EQ(dreq.found(), "cm-order@5") << "DREQ instead of the DREP";
}

TEST(CmExchanges, RejOfAnEstablishedConnection) {
  CmTrace t;
  t.connect();
  t.out(t.rej(CmAnswered::kRep));
  EXPECT_EQ(t.found(), "cm-order@4");

  CmTrace passive;
  passive.accept();
  passive.out(passive.rej(CmAnswered::kOther, RejReason::kCommId));
  EXPECT_EQ(passive.found(), "cm-order@4");
}

TEST(CmExchanges, RejSaysWhatItRejects) {
  CmTrace req;
  req.in(req.req(false));
  req.out(req.rej(CmAnswered::kOther));
  EXPECT_EQ(req.found(), "cm-reject@2");

  CmTrace rep;
  rep.in(rep.req(false));
  rep.out(rep.rej(CmAnswered::kRep));
  EXPECT_EQ(rep.found(), "cm-reject@2");

  CmTrace late;
  late.in(late.req(false));
  late.out(late.rep());
  late.out(late.rej(CmAnswered::kReq));
  EXPECT_EQ(late.found(), "cm-reject@3");
}

TEST(CmExchanges, AfterTheEndOnlyAnswersAreRepeated) {
  CmTrace t;
  t.in(t.req(false));
  t.out(t.rej(CmAnswered::kReq));
  t.in(t.req(false));
  t.out(t.rej(CmAnswered::kReq));  // asked again
  EXPECT_EQ(t.found(), "");

  CmTrace unasked;
  unasked.in(unasked.req(false));
  unasked.out(unasked.rej(CmAnswered::kReq));
  unasked.out(unasked.rej(CmAnswered::kReq));
  EXPECT_EQ(unasked.found(), "cm-order@3");
}

// Of connections of which nothing is known: DREP and REJ, but nothing else.
TEST(CmExchanges, AnswersToStrays) {
  CmTrace t;
  t.in(t.dreq(false));
  t.out(t.with_ids<Drep>());
  t.in(t.rep(false));
  t.out(t.rej(CmAnswered::kRep, RejReason::kCommId));
  t.in(t.with_ids<Rtu>(false));
  t.out(t.rej(CmAnswered::kOther, RejReason::kCommId));
  EXPECT_EQ(t.found(), "");

  CmTrace rtu;
  rtu.in(rtu.rep(false));
  rtu.out(rtu.with_ids<Rtu>());
  EXPECT_EQ(rtu.found(), "cm-order@2");
}

// A capture that begins in the middle: what may have been said before is not missed.
TEST(CmExchanges, CapturesThatBeginInTheMiddle) {
  CmTrace t(false);
  t.out(t.rep());
  t.in(t.with_ids<Rtu>(false));
  t.out(t.dreq());
  t.in(t.with_ids<Drep>(false));
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.outcome(), "begun before the capture, disconnected");
}

TEST(CmExchanges, IdsAreTheOnesThatWereSaid) {
  CmTrace theirs;
  theirs.connect();
  wire::Dreq dreq = theirs.dreq();
  dreq.remote_id = CommId{0x77};
  theirs.out(dreq);
  EXPECT_EQ(theirs.found(), "cm-id@4");

  CmTrace ours;
  ours.in(ours.req(false));
  ours.out(ours.mra(CmAnswered::kReq));
  wire::Rep rep = ours.rep();
  rep.local_id = CommId{0x77};
  ours.out(rep);
  EXPECT_EQ(ours.found(), "cm-id@3");

  CmTrace twice;
  twice.connect();
  twice.out(twice.req(), 9);
  EXPECT_EQ(twice.found(), "cm-id@4") << "the id has a connection";
}

TEST(CmExchanges, TransactionsAreRepeated) {
  CmTrace rep;
  rep.in(rep.req(false));
  rep.out(rep.rep(), 99);
  EXPECT_EQ(rep.found(), "cm-transaction@2");

  CmTrace drep;
  drep.accept();
  drep.in(drep.dreq(false));
  drep.out(drep.with_ids<Drep>(), 99);
  EXPECT_EQ(drep.found(), "cm-transaction@5");

  CmTrace rtu;
  rtu.out(rtu.req());
  rtu.in(rtu.rep(false));
  rtu.out(rtu.with_ids<Rtu>(), 99);
  EXPECT_EQ(rtu.found(), "cm-transaction@3");
}

TEST(CmExchanges, DreqNamesTheOtherQp) {
  CmTrace t;
  t.connect();
  wire::Dreq dreq = t.dreq();
  dreq.remote_qpn = wire::Qpn(0x999);
  t.out(dreq);
  EXPECT_EQ(t.found(), "cm-field@4");
}

TEST(CmExchanges, RepGrantsNoMoreThanTheReqAsksFor) {
  CmTrace t;
  t.in(t.req(false));
  wire::Rep rep = t.rep();
  rep.responder_resources = 4;
  t.out(rep);
  EXPECT_EQ(t.found(), "cm-depth@2");
}

TEST(CmRepetitions, AreTheSameAndNotBeforeTheirTime) {
  CmTrace t;
  t.out(t.req());
  t.wait(seconds(5));
  t.out(t.req());
  EXPECT_EQ(t.found(), "");

  CmTrace early;
  early.out(early.req());
  early.wait(seconds(3));
  early.out(early.req());
  EXPECT_EQ(early.found(), "cm-resend-early@2");

  CmTrace other;
  other.out(other.req());
  other.wait(seconds(5));
  wire::Req changed = other.req();
  changed.private_data[60] = 1;
  other.out(changed);
  EXPECT_EQ(other.found(), "cm-resend-differs@2");
}

TEST(CmRepetitions, NoMoreThanMaxCmRetries) {
  CmTrace t;
  for (int i = 0; i < 4; ++i) {
    t.out(t.req());
    t.wait(seconds(5));
  }
  EXPECT_EQ(t.out(t.req()), 5u);
  EXPECT_EQ(t.found(), "cm-retries@5");
  EXPECT_EQ(t.outcome(), "unanswered, asked 5 times");
  CmTrace once;
  once.out(once.req());
  EXPECT_EQ(once.outcome(), "unanswered, asked once");
}

TEST(CmRepetitions, WaitForTheMra) {
  CmTrace t;
  t.out(t.req());
  wire::Mra mra = t.mra(CmAnswered::kReq, false);
  t.in(mra);
  t.wait(seconds(5));
  t.out(t.req());  // the MRA asks for 65 s
  t.wait(seconds(66));
  t.out(t.req());
  EXPECT_EQ(t.found(), "cm-resend-early@3");

  CmTrace rep;
  rep.in(rep.req(false));
  rep.out(rep.rep());
  rep.in(rep.mra(CmAnswered::kReq, false));  // not of the REP
  rep.wait(seconds(5));
  rep.out(rep.rep());
  rep.in(rep.mra(CmAnswered::kRep, false));
  rep.wait(seconds(5));
  rep.out(rep.rep());
  EXPECT_EQ(rep.found(), "cm-resend-early@6");
}

// A REP that answers a REQ that came again needs no timer.
TEST(CmRepetitions, RepForAReqThatCameAgain) {
  CmTrace t;
  for (int i = 0; i < 5; ++i) {
    t.in(t.req(false));
    t.out(t.rep());
  }
  EXPECT_EQ(t.found(), "");
}

TEST(CmAnswers, DreqOfWhatHasEndedIsAnsweredAtOnce) {
  CmTrace t;
  t.accept();
  t.in(t.dreq(false));
  t.out(t.with_ids<Drep>());
  t.wait(seconds(5));
  t.in(t.dreq(false));
  t.wait(seconds(5));
  EXPECT_EQ(t.found(), "cm-unanswered@6");

  CmTrace of_nothing;
  of_nothing.in(of_nothing.dreq(false));
  of_nothing.wait(seconds(5));
  EXPECT_EQ(of_nothing.found(), "cm-unanswered@1");

  CmTrace application;
  application.accept();
  application.in(application.dreq(false));
  application.wait(seconds(60));
  EXPECT_EQ(application.found(), "") << "its disconnect() is waited for";
}

TEST(CmAnswers, RepAgainWantsTheRtuAgain) {
  CmTrace t;
  t.connect();
  t.wait(seconds(4));
  t.in(t.rep(false));
  t.out(t.with_ids<Rtu>());
  EXPECT_EQ(t.found(), "");

  CmTrace silent;
  silent.connect();
  silent.wait(seconds(4));
  silent.in(silent.rep(false));
  silent.wait(seconds(4));
  EXPECT_EQ(silent.found(), "cm-unanswered@4");
}

TEST(CmAnswers, ReqThatNobodyAnswersIsANote) {
  CmTrace t;
  for (int i = 0; i < 3; ++i) t.in(t.req(false));
  EXPECT_EQ(t.found(), "cm-ignored@3");
  EXPECT_EQ(t.oracle.error_count(), 0u) << "the backlog may be full";
}

TEST(CmSidr, RequestAndAnswer) {
  CmTrace t;
  t.out(t.sidr_req());
  t.in(t.sidr_rep(false));
  EXPECT_EQ(t.found(), "");
  EXPECT_EQ(t.outcome(), "QP 0x202 told");
  EXPECT_EQ(t.oracle.cm_summary().at(0).service, "UDP port 7471");

  CmTrace asked;
  asked.in(asked.sidr_req(false));
  wire::SidrRep refusal = asked.sidr_rep();
  refusal.status = wire::SidrStatus::kUnsupported;
  refusal.qpn = {};
  asked.out(refusal);
  EXPECT_EQ(asked.found(), "");
  EXPECT_EQ(asked.outcome(), "refused: nobody listens at this service (1)");
}

TEST(CmSidr, AnswersThatAreNone) {
  CmTrace nothing;
  nothing.out(nothing.sidr_rep());
  EXPECT_EQ(nothing.found(), "cm-sidr@1");

  CmTrace service;
  service.in(service.sidr_req(false));
  wire::SidrRep rep = service.sidr_rep();
  rep.service_id = wire::ServiceId{5};
  service.out(rep);
  EXPECT_EQ(service.found(), "cm-sidr@2");

  CmTrace qp;
  qp.in(qp.sidr_req(false));
  rep = qp.sidr_rep();
  rep.qpn = wire::Qpn(1);
  qp.out(rep);
  EXPECT_EQ(qp.found(), "cm-sidr@2");

  CmTrace status;
  status.in(status.sidr_req(false));
  rep = status.sidr_rep();
  rep.status = wire::SidrStatus{9};
  status.out(rep);
  EXPECT_EQ(status.found(), "cm-sidr@2");

  CmTrace again;
  again.out(again.sidr_req());
  again.in(again.sidr_rep(false));
  again.wait(seconds(5));
  again.out(again.sidr_req());
  EXPECT_EQ(again.found(), "cm-order@3");
}

// --- what the RC judges make of it -----------------------------------------------------------------------------------

Spec rc_to(uint32_t qp, Spec spec) {
  spec.dest_qp = qp;
  return spec;
}

// The REP says with which PSN the host begins (100), the REQ with which its peer does (500).
TEST(CmConnections, AreKnownFromTheirFirstPacket) {
  CmTrace t;
  t.connect();
  t.rc(rc_to(CmTrace::kTheirQp, send(101)), true);
  EXPECT_EQ(t.found(), "psn-consecutive@4");
  const auto summary = t.oracle.summary();
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary[0].name.text(), "10.0.0.1 qp 0x101 -> 10.0.0.2 qp 0x202");

  CmTrace passive;
  passive.accept();
  passive.rc(rc_to(CmTrace::kTheirQp, send(500)), true);
  passive.rc(rc_to(CmTrace::kOurQp, ack(500, 1)), false);
  passive.rc(rc_to(CmTrace::kOurQp, send(100)), false);
  passive.rc(rc_to(CmTrace::kTheirQp, ack(100, 1)), true);
  EXPECT_EQ(passive.found(), "");
  EXPECT_EQ(passive.oracle.summary().size(), 1u);
}

TEST(CmConnections, DepthOfReads) {
  CmTrace t;
  t.connect();  // the peer takes 3 READs
  for (uint32_t i = 0; i < 4; ++i) t.rc(rc_to(CmTrace::kTheirQp, read(100 + i, 64)), true);
  EXPECT_EQ(t.found(), "rd-atomic-depth@7");
}

TEST(CmConnections, SameQpsInALaterConnection) {
  CmTrace t;
  t.connect();
  t.rc(rc_to(CmTrace::kTheirQp, send(100)), true);
  t.rc(rc_to(CmTrace::kOurQp, ack(100, 1)), false);
  t.out(t.dreq());
  t.in(t.with_ids<Drep>(false));
  wire::Req req = t.req();
  req.local_id = CommId{0x1003};
  t.out(req, 20);
  wire::Rep rep = t.rep(false);
  rep.remote_id = req.local_id;
  rep.local_id = CommId{0x2004};
  rep.starting_psn = wire::Psn(7000);
  t.in(rep, 20);
  Rtu rtu = t.with_ids<Rtu>();
  rtu.local_id = req.local_id;
  rtu.remote_id = rep.local_id;
  t.out(rtu, 20);
  t.rc(rc_to(CmTrace::kTheirQp, send(7000)), true);
  t.rc(rc_to(CmTrace::kOurQp, ack(7000, 1)), false);
  EXPECT_EQ(t.found(), "");
}

// Behind its end nothing is known of the QPs.
TEST(CmConnections, AnythingMayFollowTheEnd) {
  CmTrace t;
  t.connect();
  t.out(t.dreq());
  t.in(t.with_ids<Drep>(false));
  t.rc(rc_to(CmTrace::kTheirQp, send(900000)), true);
  t.rc(rc_to(CmTrace::kOurQp, ack(900000, 1)), false);
  EXPECT_EQ(t.found(), "");
}

TEST(CmConnections, DeclaredOnesStayAsTheyWereDeclared) {
  CmTrace t;
  Attributes attributes;
  attributes.sq_psn = wire::Psn(42);
  t.oracle.declare(address(1), wire::Qpn(CmTrace::kOurQp), address(2), wire::Qpn(CmTrace::kTheirQp), attributes);
  t.connect();
  t.rc(rc_to(CmTrace::kTheirQp, send(42)), true);
  EXPECT_EQ(t.found(), "");
}

TEST(CmConnections, XrcIsNotJudged) {
  CmTrace t;
  wire::Req req = t.req();
  req.transport = wire::CmTransport::kExtended;
  req.extended_transport = wire::kExtendedTransportXrc;
  t.out(req);
  wire::Rep rep = t.rep(false);
  rep.eecn = rep.qpn.value();
  rep.qpn = {};
  t.in(rep);
  t.out(t.with_ids<Rtu>());
  EXPECT_EQ(t.found(), "");
  EXPECT_TRUE(t.oracle.summary().empty());
  EXPECT_EQ(t.oracle.cm_summary().at(0).transport, "XRC");
  EXPECT_EQ(t.oracle.cm_summary().at(0).remote_qpn->value(), CmTrace::kTheirQp);
}

// --- bounds ----------------------------------------------------------------------------------------------------------

TEST(CmBounds, TheOldestExchangesAreForgotten) {
  CmTrace t;
  wire::Req req = t.req(false);
  constexpr uint32_t kMost = 65536;
  for (uint32_t i = 0; i < kMost + 10; ++i) {
    req.local_id = CommId{1 + i};
    t.in(req, 1 + i);
    if (i % 1000 == 0) t.records.clear();
  }
  EXPECT_EQ(t.oracle.cm_summary().size(), kMost);
}

}  // namespace
}  // namespace uroce::oracle
