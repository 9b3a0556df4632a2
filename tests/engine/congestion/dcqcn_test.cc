// SPDX-License-Identifier: BSD-2-Clause
// The reaction point on virtual time, with numbers worked out by hand from the rules in wire.md. The cap is 10 Gb/s
// unless said otherwise; a time stage is 300 us, a byte stage 32767 * 64 = 2,097,088 bytes.
#include "engine/congestion/dcqcn.h"

#include <gtest/gtest.h>
#include <vector>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Rate kCap = Rate::gbit(10);
constexpr uint32_t kByteStage = 2'097'088;
constexpr nanoseconds kTick(1);

constexpr Time us(int64_t time) {
  return Time(microseconds(time));
}

// What a first CNP leaves of 10 Gb/s: 10^10 * 1023 / 2048 = 4,995,117,187.5 are cut off, rounded down.
constexpr Rate kAfterFirst = Rate::bits(5'004'882'813);

class DcqcnTest : public testing::Test {
 protected:
  void cnp(Time now, Rate start = kCap) { qp_.on_cnp(start, now); }
  uint64_t bits(Time now) { return qp_.rate(now).bits_per_second(); }

  Dcqcn qp_;
};

TEST_F(DcqcnTest, FreeWithoutCnps) {
  for (int i = 0; i < 1000; ++i) qp_.on_sent(UINT32_MAX, us(i));
  EXPECT_FALSE(qp_.controlled());
  EXPECT_EQ(qp_.rate(us(1000)), Rate::unlimited());
  EXPECT_EQ(qp_.next_rise(), kNever);
}

// --- one CNP ---------------------------------------------------------------------------------------------------------

TEST_F(DcqcnTest, OneCnpHalvesAtOnce) {
  cnp(us(100));
  EXPECT_TRUE(qp_.controlled());
  EXPECT_EQ(qp_.rate(us(100)), kAfterFirst);
  EXPECT_EQ(qp_.next_rise(), us(400));
  EXPECT_EQ(qp_.rate(us(400) - kTick), kAfterFirst);
}

// Half the way to 10 Gb/s in every stage. After the tenth 4,878,045 bits are missing, less than the 5 Mb/s of a step.
TEST_F(DcqcnTest, RecoversByHalvesAndIsFreeAgain) {
  cnp(us(0));
  const std::vector<uint64_t> stages{7'502'441'406, 8'751'220'703, 9'375'610'351, 9'687'805'175, 9'843'902'587,
                                     9'921'951'293, 9'960'975'646, 9'980'487'823, 9'990'243'911};
  Time now = us(0);
  for (const uint64_t expected : stages) {
    now += microseconds(300);
    EXPECT_EQ(bits(now), expected);
    EXPECT_EQ(qp_.next_rise(), now + microseconds(300));
  }
  EXPECT_EQ(bits(us(3000) - kTick), stages.back());
  EXPECT_EQ(qp_.rate(us(3000)), Rate::unlimited());
  EXPECT_FALSE(qp_.controlled());
}

TEST_F(DcqcnTest, BytesRaiseItAsTimeDoes) {
  cnp(us(0));
  qp_.on_sent(kByteStage - 1, us(1));
  EXPECT_EQ(qp_.rate(), kAfterFirst);
  qp_.on_sent(1, us(1));
  EXPECT_EQ(bits(us(1)), 7'502'441'406u);
  EXPECT_EQ(qp_.next_rise(), us(300));  // the timer runs on
  EXPECT_EQ(bits(us(300)), 8'751'220'703u);
  qp_.on_sent(3 * kByteStage, us(301));  // the bytes count on, too
  EXPECT_EQ(bits(us(301)), 9'843'902'587u);
}

TEST_F(DcqcnTest, ACutStartsBytesAndTimerAnew) {
  cnp(us(0));
  qp_.on_sent(kByteStage - 1, us(1));
  cnp(us(200));
  const uint64_t after = bits(us(200));
  qp_.on_sent(1, us(200));
  EXPECT_EQ(bits(us(500) - kTick), after);
  EXPECT_GT(bits(us(500)), after);
}

// The next CNP after control has ended is a first one: it halves, from the rate that it names.
TEST_F(DcqcnTest, FirstCnpAgainAfterRecovery) {
  cnp(us(0));
  cnp(us(3000), Rate::gbit(20));  // finds the QP free
  // 2 * 10^10 * 1023 / 2048 = 9,990,234,375
  EXPECT_EQ(bits(us(3000)), 10'009'765'625u);
  EXPECT_EQ(bits(us(3300)), 15'004'882'812u);
}

TEST_F(DcqcnTest, StartIsNamedByTheFirstCnpOnly) {
  cnp(us(0));
  cnp(us(1), Rate::gbit(100));
  EXPECT_EQ(qp_.rate(us(1)), kAfterFirst);
  EXPECT_EQ(bits(us(3010) + microseconds(300)), UINT64_MAX);
}

TEST_F(DcqcnTest, StartOutsideOfTheRange) {
  cnp(us(0), Rate::bits(1));
  EXPECT_EQ(qp_.rate(us(0)), Rate::mbit(1));
  EXPECT_EQ(qp_.rate(us(300)), Rate::unlimited());
  cnp(us(300), Rate::unlimited());
  // 10^15 * 1023 / 2048 = 499,511,718,750,000
  EXPECT_EQ(bits(us(300)), 500'488'281'250'000u);
}

// --- alpha and the period of cuts ------------------------------------------------------------------------------------

// alpha falls by 5 in a microsecond down to 818 (41 us), by 4 to 614 (51 us), by 3 to 407 (69 us), by 2 to 203 (102
// us): 263 us. After 137 more, by 1 each, it is 66; the second CNP makes it 71. It cuts 7,502,441,406 * 71 / 2048 =
// 260,094,404 off, and because the timer had raised the rate, the target is what it was.
TEST_F(DcqcnTest, AlphaDecays) {
  cnp(us(0));
  cnp(us(400));
  EXPECT_EQ(bits(us(400)), 7'242'347'002u);
  EXPECT_EQ(bits(us(700)), 7'372'394'204u);  // halfway to 7,502,441,406
}

// 466 us after a CNP nothing is left of alpha. A CNP still counts: 7,502,441,406 * 5 / 2048 = 18,316,507.
TEST_F(DcqcnTest, NoCnpIsWithoutEffect) {
  cnp(us(0));
  cnp(us(599));
  EXPECT_EQ(bits(us(599)), 7'502'441'406u - 18'316'507u);
}

// Between cuts a second CNP waits, and several are good for one cut only. At 4 us alpha is 1003: 1023, 1018, 1023 with
// the CNP at 1 us, then 1018, 1013, 1008 at 4 us. 5,004,882,813 * 1008 / 2048 = 2,463,340,759.
TEST_F(DcqcnTest, CnpsWithinThePeriodWaitForItsEnd) {
  cnp(us(0));
  cnp(us(1));
  cnp(us(1) + nanoseconds(500));
  EXPECT_EQ(qp_.rate(us(4) - kTick), kAfterFirst);
  EXPECT_EQ(bits(us(4)), 5'004'882'813u - 2'463'340'759u);
  EXPECT_EQ(qp_.next_rise(), us(304));
  EXPECT_EQ(bits(us(304) - kTick), 5'004'882'813u - 2'463'340'759u);
  // Nothing had raised the rate between the cuts, so the target is still the cap.
  EXPECT_EQ(bits(us(304)), (10'000'000'000u + 2'541'542'054u) / 2);
}

TEST_F(DcqcnTest, CnpAfterThePeriodCutsAtOnce) {
  cnp(us(1000));
  cnp(us(1004));  // alpha: 1003 after 4 us, 1008 with the CNP
  EXPECT_EQ(qp_.rate().bits_per_second(), 5'004'882'813u - 2'463'340'759u);
}

// As AlphaDecays: 71 with the CNP at 400 us, which cuts at once. The others of that microsecond only bring a cut 4 us
// later, with 67: 7,242,347,002 * 67 / 2048 = 236,932,250.
TEST_F(DcqcnTest, CnpsOfOneMicrosecondRaiseAlphaOnce) {
  cnp(us(0));
  for (int i = 0; i < 10; ++i) cnp(us(400) + i * nanoseconds(99));
  EXPECT_EQ(bits(us(404)), 7'242'347'002u - 236'932'250u);
}

// The first CNP's own microsecond, too: 1023 falls to 1003 in 4 us. 5,004,882,813 * 1003 / 2048 = 2,451,121,807.
TEST_F(DcqcnTest, AlphaBeginsAtItsHighest) {
  cnp(us(0));
  cnp(us(0) + nanoseconds(500));
  EXPECT_EQ(bits(us(4)), 5'004'882'813u - 2'451'121'807u);
}

// The periods of alpha are counted from the first CNP, wherever the later ones fall: 1018 at 1 us, 1023 with the CNP at
// 1.5 us, 1018 at 2 us, 1023 with the one at 2.9 us, 1013 at 4 us. 5,004,882,813 * 1013 / 2048 = 2,475,559,711.
TEST_F(DcqcnTest, AlphaKeepsItsPhase) {
  cnp(us(0));
  cnp(us(0) + nanoseconds(1500));
  cnp(us(0) + nanoseconds(2900));
  EXPECT_EQ(bits(us(4)), 5'004'882'813u - 2'475'559'711u);
}

TEST_F(DcqcnTest, NoCutIsMoreThanHalf) {
  DcqcnParameters steep;
  steep.decrease_shift = 9;
  Dcqcn qp(steep);
  qp.on_cnp(kCap, us(0));
  EXPECT_EQ(qp.rate(us(0)), Rate::gbit(5));
}

// --- the target ------------------------------------------------------------------------------------------------------

// From 7,242,347,002 with the target at 7,502,441,406 (AlphaDecays): the first stage halves the distance only, the next
// ones raise the target by 5 Mb/s first.
TEST_F(DcqcnTest, AdditiveIncrease) {
  cnp(us(0));
  cnp(us(400));
  EXPECT_EQ(bits(us(700)), 7'372'394'204u);
  EXPECT_EQ(bits(us(1000)), 7'439'917'805u);  // target 7,507,441,406
  EXPECT_EQ(bits(us(1300)), 7'476'179'605u);  // target 7,512,441,406
  EXPECT_EQ(bits(us(1600)), 7'496'810'505u);  // target 7,517,441,406
}

// As above, the first two stages by bytes. From the third time stage on there are two of each: 50 Mb/s instead of 5.
TEST_F(DcqcnTest, HyperIncreaseAfterTwoStagesOfEachKind) {
  cnp(us(0));
  cnp(us(400));
  qp_.on_sent(2 * kByteStage, us(401));
  EXPECT_EQ(bits(us(401)), 7'439'917'805u);
  EXPECT_EQ(bits(us(700)), 7'476'179'605u);
  EXPECT_EQ(bits(us(1000)), 7'496'810'505u);
  EXPECT_EQ(bits(us(1300)), 7'532'125'955u);  // target 7,567,441,406
}

TEST_F(DcqcnTest, TargetFollowsACutAfterAByteStage) {
  cnp(us(0));
  qp_.on_sent(kByteStage, us(1));
  cnp(us(4));  // alpha 1008 as above: 7,502,441,406 * 1008 / 2048 = 3,692,607,879
  EXPECT_EQ(bits(us(4)), 3'809'833'527u);
  EXPECT_EQ(bits(us(304)), (7'502'441'406u + 3'809'833'527u) / 2);
}

TEST_F(DcqcnTest, ClampTargetRate) {
  DcqcnParameters clamping;
  clamping.clamp_target = true;
  Dcqcn qp(clamping);
  qp.on_cnp(kCap, us(0));
  qp.on_cnp(kCap, us(4));  // target 5,004,882,813, rate 2,541,542,054
  EXPECT_EQ(qp.rate(us(304)).bits_per_second(), (5'004'882'813u + 2'541'542'054u) / 2);
}

// --- floods, idle time, strange clocks
// ---------------------------------------------------------------------------------

// faults.md 30: one CNP per microsecond for a second. Alpha is 1018 at the end of each period, which leaves 0.503 of a
// rate, so 13 cuts take 5 Gb/s below 1 Mb/s: the last one at 52 us.
TEST_F(DcqcnTest, FloodEndsAtTheFloor) {
  for (int i = 0; i < 1'000'000; ++i) {
    cnp(us(i));
    ASSERT_GE(qp_.rate(), Rate::mbit(1)) << i;
    ASSERT_EQ(qp_.rate() == Rate::mbit(1), i >= 52) << i;
  }
  EXPECT_EQ(qp_.rate(us(1'000'299)), Rate::mbit(1));
}

// The last CNPs wait for 1,000,000 us; the timer runs from there. The target stayed at the cap all the time, so 9,999
// Mb/s are missing, half as much after every stage: after 11 stages less than 5 Mb/s. 11 * 300 us = 3.3 ms.
TEST_F(DcqcnTest, RecoversFromAFlood) {
  for (int i = 0; i < 1'000'000; ++i) cnp(us(i));
  EXPECT_EQ(qp_.rate(us(1'000'300) - kTick), Rate::mbit(1));
  EXPECT_EQ(bits(us(1'000'300)), 5'000'500'000u);
  EXPECT_EQ(bits(us(1'003'300) - kTick), 9'990'235'351u);
  EXPECT_EQ(qp_.rate(us(1'003'300)), Rate::unlimited());
}

// A CNP shortly after every stage: the target comes down with the rate, so what is left is 5 Mb/s per stage. From 1
// Mb/s to 10 Gb/s these are 2000 stages, a few more for the beginning and none for the end: 0.6 s.
TEST_F(DcqcnTest, RecoversFromALowTargetWithinTheBound) {
  int64_t now = 0;
  for (; now < 30'000'000; now += 301) cnp(us(now));
  const uint64_t low = bits(us(now));
  ASSERT_LT(low, 50'000'000u);
  EXPECT_NE(qp_.rate(us(now + 590'000)), Rate::unlimited());
  EXPECT_EQ(qp_.rate(us(now + 605'000)), Rate::unlimited());
}

TEST_F(DcqcnTest, IdleForAnHour) {
  cnp(us(0));
  EXPECT_EQ(qp_.rate(Time(std::chrono::hours(1))), Rate::unlimited());
  EXPECT_FALSE(qp_.controlled());
}

// A CNP that waits for the end of its period when the idle time begins is accounted for before the recovery.
TEST_F(DcqcnTest, IdleWithACnpWaiting) {
  cnp(us(0));
  cnp(us(1));
  cnp(us(1000));
  // (10^10 + 2,541,542,054) / 2 at 304 us, 8,135,385,513 at 604 us, 9,067,692,756 at 904 us. alpha has decayed away but
  // for this CNP's 5: 9,067,692,756 * 5 / 2048 = 22,137,921.
  EXPECT_EQ(bits(us(1000)), 9'067'692'756u - 22'137'921u);
}

// A year of stages 4 us apart, 7.884 * 10^12 of them, of 1 b/s each: not gone through one by one, which would take
// hours.
TEST_F(DcqcnTest, CatchingUpDoesNotTakeAsLongAsTheIdleTime) {
  DcqcnParameters slow;
  slow.clamp_target = true;
  slow.time_reset = slow.reduce_period;
  slow.additive_increase = slow.hyper_increase = Rate::bits(1);
  Dcqcn qp(slow);
  for (int i = 0; i < 1000; ++i) qp.on_cnp(Rate::unlimited(), us(i));
  const Time year_later = us(1000) + std::chrono::hours(365 * 24);
  // From 1 Mb/s. The first stage adds nothing, and equilibrium is 1 b/s below the target.
  EXPECT_EQ(qp.rate(year_later).bits_per_second(), 1'000'000u + 7'884'000'000'000u - 2);
  qp.on_cnp(Rate::unlimited(), year_later);  // nor are the periods of alpha, 3 * 10^13
  EXPECT_LT(qp.rate().bits_per_second(), 1'000'000u + 7'884'000'000'000u - 2);
}

// What one late call finds after any number of stages, against a call at each. Control ends with the last one.
void expect_lazy_is_eager(const Dcqcn& begin, Time now, int stages) {
  Dcqcn eager = begin;
  for (int i = 1; i <= stages; ++i) {
    now += microseconds(300);
    Dcqcn lazy = begin;
    ASSERT_EQ(lazy.rate(now), eager.rate(now)) << i;
    ASSERT_EQ(lazy.next_rise(), eager.next_rise()) << i;
    ASSERT_EQ(eager.controlled(), i < stages) << i;
  }
}

// Rate and target both at 1 Mb/s, the cap a whole number of steps above: control ends when the
// target is there and the rate exactly one step behind. The first stage adds none of the 1000 steps.
TEST_F(DcqcnTest, LateCallFindsTheEndMetExactly) {
  DcqcnParameters clamping;
  clamping.clamp_target = true;
  Dcqcn qp(clamping);
  for (int i = 0; i < 100; ++i) qp.on_cnp(Rate::mbit(1 + 5 * 1000), us(i));
  ASSERT_EQ(qp.rate(us(100)), Rate::mbit(1));
  expect_lazy_is_eager(qp, us(100), 1001);
}

// 64 byte stages first, so that additive increase is in equilibrium when the second time stage makes it a hyper one.
// Target: 1 + 63 * 5 by bytes + 2 * 5 = 326 Mb/s, and 193 times 50: 9,976. The last 24 with the next stage, and then
// the distance of 37 is halved: 18.5, 9.3, 4.6. 2 + 193 + 1 + 3 stages.
TEST_F(DcqcnTest, LateCallFindsTheHyperIncrease) {
  DcqcnParameters clamping;
  clamping.clamp_target = true;
  Dcqcn qp(clamping);
  for (int i = 0; i < 100; ++i) qp.on_cnp(kCap, us(i));
  qp.on_sent(64 * kByteStage, us(100));
  expect_lazy_is_eager(qp, us(100), 199);
}

TEST_F(DcqcnTest, TimeThatStandsStill) {
  for (int i = 0; i < 100'000; ++i) {
    cnp(us(7));
    ASSERT_EQ(qp_.rate(us(7)), kAfterFirst);
  }
  EXPECT_EQ(qp_.next_rise(), us(307));
}

TEST_F(DcqcnTest, TimeThatGoesBack) {
  cnp(us(1000));
  cnp(us(10));
  qp_.on_sent(1, us(5));
  EXPECT_EQ(qp_.rate(us(0)), kAfterFirst);
  EXPECT_EQ(qp_.next_rise(), us(1300));
}

}  // namespace
}  // namespace uroce::congestion
