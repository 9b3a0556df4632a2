// SPDX-License-Identifier: BSD-2-Clause
// Sequences that once went wrong, each as the smallest run that shows it.
#include <gtest/gtest.h>

#include "tests/simulator/network.h"

namespace uroce::simulator {
namespace {

using queue::WcStatus;
using queue::WrOpcode;

queue::SendWqe signaled(WrOpcode opcode, uint64_t wr_id) {
  queue::SendWqe wqe{};
  wqe.wr_id = wr_id;
  wqe.opcode = opcode;
  wqe.flags = queue::kSignaled;
  return wqe;
}

// A READ of 2^31-1 bytes at path MTU 256 takes half the PSN space, so it has to wait for everything before it. It must
// say that it waits: the engine asks again at once otherwise, and never looks for the ACK.
TEST(Regression, ReadOfHalfThePsnSpaceWaitsQuietly) {
  Pair pair(1);
  auto attr = Network::default_attributes();
  attr.path_mtu = 256;
  pair.connect(attr);
  bool deaf = true;
  pair.backward.filter = [&](const Frame&) { return !deaf; };
  ASSERT_TRUE(pair.b.post_receive(1));
  ASSERT_TRUE(pair.a.post(signaled(WrOpcode::kSend, 1), {}));
  // Never written to: the peer refuses the READ.
  const uint32_t key = pair.host_a.mrs.add(
      {.base = nullptr, .iova = 0, .length = 1u << 31, .access = memory::kLocalWrite, .pd = Host::kPd});
  ASSERT_TRUE(pair.a.post(signaled(WrOpcode::kRdmaRead, 2), {{0, 0x7fffffff, key}}));
  pair.events.run_for(std::chrono::microseconds(100));
  EXPECT_FALSE(pair.a.rc.wants_to_send(pair.events.now()));
  deaf = false;
  std::vector<queue::Cqe> seen;
  ASSERT_TRUE(pair.events.run_until(
      [&] {
        while (auto cqe = pair.a.poll(pair.a.send_cq)) seen.push_back(*cqe);
        return seen.size() == 2;
      },
      std::chrono::seconds(10)));
  EXPECT_EQ(seen[0].status, WcStatus::kSuccess);
  EXPECT_EQ(seen[1].status, WcStatus::kRemoteAccessError);
}

// An RNR NAK asks for a wait, but a copy of the packet, made by the network, arrives after a receive was posted and is
// acknowledged. What is posted next must not sit out the wait.
TEST(Regression, ProgressEndsAnRnrWait) {
  Pair pair(1);
  auto attr = Network::default_attributes();
  attr.min_rnr_timer = 20;  // 10.24 ms
  pair.connect(attr);
  Frame copy;
  pair.forward.filter = [&](const Frame& ib) {
    if (copy.empty()) copy = ib;
    return true;
  };
  ASSERT_TRUE(pair.a.post(signaled(WrOpcode::kSend, 1), {}));
  pair.events.run_for(std::chrono::microseconds(300));
  ASSERT_EQ(pair.host_a.counters.get(Counter::kRxRnrNaks), 1u);
  ASSERT_TRUE(pair.b.post_receive(1));
  ASSERT_TRUE(pair.b.post_receive(2));
  pair.host_b.receive(copy);
  pair.events.run_for(std::chrono::microseconds(300));
  ASSERT_TRUE(pair.a.poll(pair.a.send_cq));
  ASSERT_TRUE(pair.a.post(signaled(WrOpcode::kSend, 2), {}));
  EXPECT_TRUE(
      pair.events.run_until([&] { return pair.a.poll(pair.a.send_cq).has_value(); }, std::chrono::milliseconds(1)));
}

// The slot of a completed WQE is free when its completion can be seen: depth 1, post, poll, post.
TEST(Regression, SlotIsFreeBeforeItsCompletionIsSeen) {
  class PostingNotifier final : public queue::CompletionNotifier {
   public:
    void on_completion(queue::CompletionQueue&) override {
      queue::SendQueue::Slot slot;
      has_room = sq->reserve(0, slot);
    }
    queue::SendQueue* sq = nullptr;
    bool has_room = false;
  } notifier;
  QpConfig config;
  config.depth = 1;
  config.send_notifier = &notifier;
  Pair pair(1, {}, config);
  notifier.sq = &pair.a.sq;
  pair.connect();
  ASSERT_TRUE(pair.b.post_receive(1));
  pair.a.send_cq.arm(queue::CompletionQueue::Arm::kAny);
  ASSERT_TRUE(pair.a.post(signaled(WrOpcode::kSend, 1), {}));
  pair.events.run_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(pair.a.poll(pair.a.send_cq));
  EXPECT_TRUE(notifier.has_room);
}

}  // namespace
}  // namespace uroce::simulator
