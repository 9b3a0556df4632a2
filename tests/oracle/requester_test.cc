// SPDX-License-Identifier: BSD-2-Clause
// Requests: numbering, messages, what is sent again.
#include <gtest/gtest.h>

#include "tests/oracle/trace_builder.h"

namespace uroce::oracle {
namespace {

using enum Opcode;

TEST(Requester, NewPsnsAreConsecutive) {
  Trace t;
  t.out(read(100, 700));  // three PSNs
  t.out(send(103));
  t.out(write(104, 0));
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace broken;
  broken.out(read(100, 700));
  broken.out(send(104));
  broken.out(send(105));
  EXPECT_EQ(broken.found(), "psn-consecutive@2");
  Trace first;
  first.out(send(101));
  EXPECT_EQ(first.found(), "psn-consecutive@1");
}

TEST(Requester, PsnsWrap) {
  Attributes a = Trace::usual();
  a.sq_psn = wire::Psn(0xfffffe);
  Trace t(a);
  for (const uint32_t psn : {0xfffffeu, 0xffffffu, 0u, 1u}) t.out(send(psn));
  t.in(ack(0, 3));
  t.out(send(1));
  t.in(ack(1, 4));
  EXPECT_EQ(t.found(), "") << t.texts();
  EXPECT_EQ(t.counts().messages_out, 4u);
}

TEST(Requester, Window) {
  Attributes a = Trace::usual();
  a.max_rd_atomic.reset();
  Trace t(a);
  t.out(read(100, 1u << 31));  // 2^23 PSNs of 256 bytes
  EXPECT_EQ(t.found(), "");
  Trace broken(a);
  broken.out(send(100));
  broken.out(read(101, 1u << 31));
  EXPECT_EQ(broken.found(), "psn-window@2");
}

TEST(Requester, OpcodeSequence) {
  Trace t;
  t.out(part(kRcSendFirst, 100, 256));
  t.out(part(kRcSendMiddle, 101, 256));
  t.out(part(kRcSendLast, 102, 1));
  t.out(part(kRcWriteFirst, 103, 256, 300));
  t.out(part(kRcWriteLastImmediate, 104, 44));
  EXPECT_EQ(t.found(), "") << t.texts();
  const std::vector<Spec> breakers = {send(101), part(kRcSendFirst, 101, 256), part(kRcWriteMiddle, 101, 256),
                                      read(101, 8), fetch_add(101)};
  for (const Spec& breaker : breakers) {
    Trace broken;
    broken.out(part(kRcSendFirst, 100, 256));
    broken.out(breaker);
    EXPECT_EQ(broken.found(), "opcode-sequence@2") << wire::opcode_info(breaker.opcode).name;
  }
  Trace middle;
  middle.out(part(kRcSendMiddle, 100, 256));
  EXPECT_EQ(middle.found(), "opcode-sequence@1");
}

TEST(Requester, PayloadSizes) {
  const auto found = [](const std::vector<Spec>& specs) {
    Trace t;
    for (const Spec& spec : specs) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(found({send(100, 256), send(101, 0), write(102, 256)}), "");
  EXPECT_EQ(found({send(100, 257)}), "payload-size@1");
  EXPECT_EQ(found({part(kRcSendFirst, 100, 252)}), "payload-size@1");
  EXPECT_EQ(found({part(kRcSendFirst, 100, 256), part(kRcSendMiddle, 101, 128)}), "payload-size@2");
  EXPECT_EQ(found({part(kRcSendFirst, 100, 256), part(kRcSendLast, 101, 0)}), "payload-size@2");
}

TEST(Requester, MessageLength) {
  const auto found = [](const std::vector<Spec>& specs) {
    Trace t;
    for (const Spec& spec : specs) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(found({part(kRcWriteFirst, 100, 256, 266), part(kRcWriteLast, 101, 10)}), "");
  EXPECT_EQ(found({part(kRcWriteFirst, 100, 256, 266), part(kRcWriteLast, 101, 11)}), "message-length@2");
  EXPECT_EQ(found({part(kRcWriteFirst, 100, 256, 266), part(kRcWriteLast, 101, 9)}), "message-length@2");
  EXPECT_EQ(found({part(kRcWriteOnly, 100, 8, 9)}), "message-length@1");
  EXPECT_EQ(found({part(kRcWriteFirst, 100, 256, 0x80000001)}), "message-too-long@1");
}

TEST(Requester, Solicited) {
  const auto found = [](Spec spec) {
    Trace t;
    spec.solicited = true;
    t.out(spec);
    return t.found();
  };
  EXPECT_EQ(found(send(100)), "");
  EXPECT_EQ(found(part(kRcWriteOnlyImmediate, 100, 4, 4)), "");
  EXPECT_EQ(found(write(100)), "solicited@1");
  EXPECT_EQ(found(part(kRcSendFirst, 100, 256)), "solicited@1");
  EXPECT_EQ(found(read(100, 4)), "solicited@1");
}

TEST(Requester, ResentPacketIsTheSame) {
  Spec other_payload = send(100), other_size = send(100, 60), other_opcode = write(100), solicited = send(100);
  other_payload.fill = 0x11;
  solicited.solicited = true;
  Spec no_ack = send(100);
  no_ack.ack = false;  // AckReq may differ
  for (const Spec& again : {send(100), no_ack}) {
    Trace t;
    t.out(send(100));
    t.out(again);
    EXPECT_EQ(t.found(), "") << t.texts();
  }
  for (const Spec& again : {other_payload, other_size, other_opcode, solicited}) {
    Trace t;
    t.out(send(100));
    t.out(again);
    EXPECT_EQ(t.found(), "resend-differs@2");
  }
}

TEST(Requester, ReadMayBeResentInPart) {
  for (const Spec& again : {read(100, 1000), read(102, 1000 - 512, 0x1000 + 512), read(101, 256, 0x1100)}) {
    Trace t;
    t.out(read(100, 1000));
    t.out(again);
    EXPECT_EQ(t.found(), "") << t.texts();
  }
  Spec rkey = read(101, 744, 0x1100);
  rkey.reth.rkey = 8;
  for (const Spec& again :
       {read(100, 1001), read(101, 745, 0x1100), read(101, 744, 0x1104), read(102, 700, 0x1100), send(101), rkey}) {
    Trace t;
    t.out(read(100, 1000));
    t.out(again);
    EXPECT_EQ(t.found(), "resend-differs@2");
  }
}

TEST(Requester, AcknowledgedPacketsAreNotResent) {
  Trace t;
  t.out(send(100));
  t.out(send(101));
  t.in(ack(100, 1));
  t.wait(milliseconds(1));
  t.out(send(101));
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.out(send(100));
  broken.in(ack(100, 1));
  broken.out(send(100));
  EXPECT_EQ(broken.found(), "resends-acknowledged@3");
}

TEST(Requester, AcknowledgementCountsAfterTheSlack) {
  Options options;
  options.slack = milliseconds(1);
  Trace t(Trace::usual(), options);
  t.out(send(100));
  t.in(ack(100, 1));
  t.wait(microseconds(500));
  t.out(send(100));  // crossed
  t.wait(milliseconds(1));
  t.out(send(100));
  EXPECT_EQ(t.found(), "resends-acknowledged@4");
}

// A READ ends only by its responses, and what is behind it is not acknowledged before.
TEST(Requester, AckDoesNotCoverReads) {
  Trace t;
  t.out(read(100, 300));
  t.out(send(102));
  t.in(ack(102, 2));
  t.out(read(100, 300));
  t.out(send(102));
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace broken;
  broken.out(read(100, 300));
  broken.out(send(102));
  broken.in(response(kRcReadResponseFirst, 100, 256, 1));
  broken.in(response(kRcReadResponseLast, 101, 44, 1));
  broken.out(read(100, 300));
  EXPECT_EQ(broken.found(), "resends-acknowledged@5");
}

TEST(Requester, GoesBackInOrder) {
  const auto with = [](const std::vector<Spec>& again) {
    Trace t;
    for (uint32_t psn = 100; psn < 106; ++psn) t.out(send(psn));
    t.in(ack(100, 1));  // packet 7
    for (const Spec& spec : again) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(with({send(101), send(102), send(103), send(104), send(105), send(106)}), "");
  EXPECT_EQ(with({send(101), send(102), send(101), send(102)}), "");  // back once more
  EXPECT_EQ(with({send(101), send(106)}), "");                        // a probe
  EXPECT_EQ(with({send(101), send(105), send(106), send(107)}), "");  // with the newest as well
  EXPECT_EQ(with({send(101), send(105), send(102)}), "");             // and then back
  EXPECT_EQ(with({send(101), send(101), send(106)}), "");             // two probes
  EXPECT_EQ(with({send(101), send(101), send(102), send(106)}), "go-back-order@11");
  EXPECT_EQ(with({send(101), send(105), send(107)}), "psn-consecutive@10");
  EXPECT_EQ(with({send(101), send(104)}), "go-back-order@9");
  EXPECT_EQ(with({send(101), send(102), send(105)}), "go-back-order@10");
  EXPECT_EQ(with({send(101), send(102), send(106)}), "go-back-order@10");
  EXPECT_EQ(with({send(101), send(103)}), "go-back-order@9");
}

// The newest packet that is worth sending again may be one in front of long READs.
TEST(Requester, ProbesInFrontOfReads) {
  const auto with = [](const std::vector<Spec>& again) {
    Trace t;
    for (uint32_t psn = 100; psn < 104; ++psn) t.out(send(psn));
    t.out(read(104, 300));
    t.out(read(106, 300));  // packet 6
    for (const Spec& spec : again) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(with({send(100), send(103), send(108)}), "");
  EXPECT_EQ(with({send(102), send(103), send(108)}), "");
  EXPECT_EQ(with({send(100), send(102), send(103)}), "go-back-order@8");
  EXPECT_EQ(with({read(106, 300), send(108)}), "");  // the oldest, as far as is known
  EXPECT_EQ(with({send(100), read(106, 300)}), "go-back-order@8");
}

// What was the oldest is answered in part, and the rest of it is probed for; what is new follows.
TEST(Requester, ProbesForTheRestOfARead) {
  const auto with = [](const std::vector<Spec>& again) {
    Trace t;
    for (uint32_t psn = 100; psn < 104; ++psn) t.out(send(psn));
    t.out(read(104, 600));
    t.out(read(107, 300));
    t.out(send(100));
    t.out(send(103));
    t.in(ack(103, 4));
    t.in(response(kRcReadResponseFirst, 104, 256, 4));  // packet 10
    for (const Spec& spec : again) t.out(spec);
    return t.found();
  };
  const Spec rest = read(105, 344, 0x1000 + 256);
  EXPECT_EQ(with({rest, send(109)}), "");
  EXPECT_EQ(with({rest, rest, send(109)}), "");
  EXPECT_EQ(with({rest, read(107, 300), send(109)}), "");  // back, and all of it
  EXPECT_EQ(with({rest, rest, read(107, 300), rest, send(109)}), "");
  EXPECT_EQ(with({rest, send(110)}), "psn-consecutive@12");
}

// A READ's responses cannot be counted before the path MTU is known, so where a probe interrupts is not known either.
TEST(Requester, ProbesBehindReadsBeforeThePathMtuIsKnown) {
  const auto with = [](const std::vector<Spec>& later) {
    Attributes unknown = Trace::usual();
    unknown.path_mtu.reset();
    unknown.max_rd_atomic = 16;
    Trace t(unknown);
    t.out(send(100));
    t.out(read(101, 300));
    t.out(send(103));
    t.out(read(104, 300));
    for (int probe = 0; probe < 2; ++probe) {
      t.out(send(100));
      t.out(send(103));
    }
    t.in(ack(100, 1));
    t.in(response(kRcReadResponseFirst, 101, 256, 2));  // tells the path MTU
    t.in(response(kRcReadResponseLast, 102, 44, 2));
    t.in(ack(103, 3));  // packet 12
    for (const Spec& spec : later) t.out(spec);
    return t.found();
  };
  EXPECT_EQ(with({send(106)}), "");
  EXPECT_EQ(with({send(106), send(107), send(108), send(109), send(106), send(108)}), "go-back-order@18");
}

TEST(Requester, GoesBackInOrderThroughReads) {
  const auto with = [](const std::vector<uint32_t>& again) {
    Trace t;
    for (uint32_t psn = 100; psn < 106; ++psn) t.out(read(psn, 4));
    for (const uint32_t psn : again) t.out(read(psn, 4));
    return t.found();
  };
  EXPECT_THAT(with({100, 103}), testing::HasSubstr("go-back-order"));
  EXPECT_THAT(with({100, 101, 104}), testing::HasSubstr("go-back-order"));
  EXPECT_THAT(with({100, 102, 105}), testing::HasSubstr("go-back-order"));
}

TEST(Requester, JumpsToWhatIsNotAcknowledged) {
  Trace t;
  for (uint32_t psn = 100; psn < 106; ++psn) t.out(send(psn));
  t.out(send(100));
  t.out(send(101));
  t.in(ack(103, 4));
  t.out(send(104));
  EXPECT_EQ(t.found(), "") << t.texts();
}

TEST(Requester, ReadAndAtomicDepth) {
  Trace t;  // two at a time
  t.out(read(100, 4));
  t.out(fetch_add(101));
  t.in(response(kRcReadResponseOnly, 100, 4, 1));
  t.out(fetch_add(102));
  EXPECT_EQ(t.found(), "");
  Trace broken;
  broken.out(read(100, 4));
  broken.out(fetch_add(101));
  broken.out(read(102, 4));
  EXPECT_EQ(broken.found(), "rd-atomic-depth@3");
}

TEST(Requester, Credits) {
  Trace t;
  t.out(send(100));
  t.in(ack(100, 1, 1));  // one more: message 2
  t.out(send(101));
  t.out(part(kRcWriteOnly, 102, 4, 4));  // takes no receive request, but has a number
  t.out(part(kRcSendFirst, 103, 256));   // one packet without a credit
  t.in(ack(103, 3, 0));
  t.out(part(kRcSendLast, 104, 1));
  EXPECT_EQ(t.found(), "") << t.texts();
  Trace broken;
  broken.out(send(100));
  broken.in(ack(100, 1, 0));
  broken.out(part(kRcSendFirst, 101, 256));
  broken.out(part(kRcSendLast, 102, 1));
  EXPECT_EQ(broken.found(), "credit-limit@4");
  Trace two_messages;
  two_messages.out(send(100));
  two_messages.in(ack(100, 1, 0));
  two_messages.out(send(101));
  two_messages.out(send(102));
  EXPECT_EQ(two_messages.found(), "credit-limit@4");
  Trace not_counted;
  not_counted.out(send(100));
  not_counted.in(ack(100, 1, 31));
  not_counted.out(send(101));
  not_counted.out(send(102));
  EXPECT_EQ(not_counted.found(), "");
}

}  // namespace
}  // namespace uroce::oracle
