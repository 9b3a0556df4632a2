// What a QP sees: no limit until a CNP, then one that begins where the QP was, and ends.
#include "engine/congestion/congestion_control.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <type_traits>

namespace uroce::congestion {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint32_t kPacket = 1250;  // 1 us at 10 Gb/s

class CongestionControlTest : public testing::Test {
 protected:
  // Sends as much as is allowed, but a packet per `interval` at most, for `time`. Sleeps until resume_at() when
  // refused.
  uint64_t send_for(Duration time, Duration interval = microseconds(1)) {
    const Time end = now_ + time;
    uint64_t bytes = 0;
    while (now_ < end) {
      if (qp_.may_send(now_)) {
        qp_.on_sent(kPacket, now_);
        bytes += kPacket;
        now_ += interval;
      } else {
        EXPECT_GT(qp_.resume_at(), now_);
        now_ = std::min(qp_.resume_at(), end);
      }
    }
    return bytes;
  }
  void flood(int cnps) {
    for (int i = 0; i < cnps; ++i) qp_.on_cnp(now_ += microseconds(1));
  }

  CongestionControl qp_{Rate::gbit(100)};
  Time now_{milliseconds(5)};
};

// An episode's state is copied, not pointed to: RcQp starts anew by assignment.
static_assert(std::is_copy_assignable_v<CongestionControl>);

TEST_F(CongestionControlTest, FreeWithoutCnps) {
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(qp_.may_send(now_));
    qp_.on_sent(UINT32_MAX, now_);
  }
  EXPECT_LT(qp_.resume_at(), Time{});
  EXPECT_EQ(qp_.rate(now_), Rate::unlimited());
}

// 10 Gb/s * (1 - 1023/2048)
TEST_F(CongestionControlTest, BeginsFromTheMeasuredRate) {
  send_for(milliseconds(2) + nanoseconds(1));
  qp_.on_cnp(now_);
  EXPECT_EQ(qp_.rate(now_), Rate::bits(5'004'882'813));
}

TEST_F(CongestionControlTest, BeginsFromTheLineWhereNothingIsMeasured) {
  qp_.on_cnp(now_);
  EXPECT_EQ(qp_.rate(now_), Rate::bits(50'048'828'125));
}

// 300 us at 5,004,882,813 b/s are 187,683 bytes or 150.1 packets; 50 us more may be booked ahead, 25 packets, and the
// packet that exceeds it: 175 or 176.
TEST_F(CongestionControlTest, KeepsToTheRate) {
  send_for(milliseconds(2) + nanoseconds(1));
  qp_.on_cnp(now_);
  const uint64_t packets = send_for(microseconds(300), nanoseconds(1)) / kPacket;
  EXPECT_GE(packets, 175u);
  EXPECT_LE(packets, 176u);
}

// A byte stage raises the rate from 50,048,828,125 b/s halfway to 100 Gb/s, and the packet that completes it is booked
// at the new rate: 2,097,088 * 8 / 75,024,414,062 s = 223,616.6 ns.
TEST_F(CongestionControlTest, BytesSentRaiseTheRate) {
  qp_.on_cnp(now_);
  ASSERT_TRUE(qp_.may_send(now_));
  qp_.on_sent(2'097'088, now_);
  EXPECT_EQ(qp_.rate(now_), Rate::bits(75'024'414'062));
  EXPECT_EQ(qp_.resume_at(), now_ + nanoseconds(223'617) - Pacer::kBurst);
}

// A refused QP is told when the rate rises, not only when its packet's turn is at the old rate: at the floor that is 10
// ms after the packet, at the rate 300 us after the last cut it is at once.
TEST_F(CongestionControlTest, RecoveryDoesNotWaitForAPacketAtTheFloor) {
  send_for(milliseconds(2) + nanoseconds(1));
  flood(1000);
  const Time last_cut = now_ + microseconds(4);
  ASSERT_TRUE(qp_.may_send(now_));
  qp_.on_sent(kPacket, now_);
  ASSERT_FALSE(qp_.may_send(now_));
  EXPECT_LE(qp_.resume_at(), last_cut + microseconds(300));
  send_for(milliseconds(2));
  EXPECT_GT(qp_.rate(now_), Rate::gbit(8));
}

// faults.md 30, with traffic: at the floor, 1 Mb/s is 100 packets per second.
TEST_F(CongestionControlTest, FloodWhileSending) {
  send_for(milliseconds(2) + nanoseconds(1));
  flood(1000);
  int packets = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    qp_.on_cnp(now_ += microseconds(1));
    if (!qp_.may_send(now_)) continue;
    qp_.on_sent(kPacket, now_);
    ++packets;
  }
  EXPECT_EQ(qp_.rate(now_), Rate::mbit(1));
  EXPECT_GE(packets, 100);
  EXPECT_LE(packets, 101);
  // 11 stages and the last cut (RecoversFromAFlood); bytes can only make it faster.
  send_for(microseconds(3304), microseconds(1));
  EXPECT_EQ(qp_.rate(now_), Rate::unlimited());
  EXPECT_LT(qp_.resume_at(), Time{});
}

// One episode after the other: what is measured while the rate comes back is not mistaken for a lower wish.
TEST_F(CongestionControlTest, EpisodesDoNotWearTheRateDown) {
  send_for(milliseconds(2) + nanoseconds(1));
  for (int episode = 0; episode < 50; ++episode) {
    qp_.on_cnp(now_);
    send_for(milliseconds(5));
    ASSERT_EQ(qp_.rate(now_), Rate::unlimited()) << episode;
  }
  qp_.on_cnp(now_);
  EXPECT_GT(qp_.rate(now_), Rate::bits(4'900'000'000));
}

TEST_F(CongestionControlTest, IdleForAnHourUnderControl) {
  flood(1000);
  now_ += std::chrono::hours(1);
  EXPECT_TRUE(qp_.may_send(now_));
  EXPECT_EQ(qp_.rate(now_), Rate::unlimited());
}

// In any stretch: no more than its highest rate allows, with the burst and one packet. The stretches are too short for
// a time stage; byte stages come.
TEST_F(CongestionControlTest, NeverFasterThanAllowed) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (int i = 0; i < 200; ++i) {
      qp_.on_cnp(now_);
      const Rate first = qp_.rate(now_);
      const Time begin = now_;
      const uint64_t packets = send_for(microseconds(random() % 299), nanoseconds(1 + random() % 2000)) / kPacket;
      if (packets == 0) continue;
      const Rate highest = std::max(first, qp_.rate(now_));
      ASSERT_LE(highest.time_for((packets - 1) * kPacket), now_ - begin + Pacer::kBurst) << i;
    }
    now_ += std::chrono::seconds(10);
    ASSERT_TRUE(qp_.may_send(now_));
  }
}

}  // namespace
}  // namespace uroce::congestion
