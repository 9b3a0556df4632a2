// SPDX-License-Identifier: BSD-2-Clause
// The engine with threads, without a network: QPs of one process connected to each other over the own GID. Several
// application threads post and poll at once, others sleep on notifications, and QPs come and go under traffic. Runs
// under ThreadSanitizer as well.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/engine/datapath/hooked_io.h"
#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

TEST(Engine, ThreadsPostAndPollAtOnce) {
  constexpr int kThreads = 3;
  constexpr uint64_t kMessages = 2000;
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Connection c(*engine);
      Buffer buffer(*engine);
      uint64_t posted = 0, received = 0, sent = 0, receives = 0;
      while (received < kMessages || sent < kMessages) {
        for (; receives < kMessages && receives - received < 32; ++receives) {
          const queue::Sge sge = buffer.sge(receives % 32);
          ASSERT_TRUE(Engine::receive_queue(*c.b).post(receives, {&sge, 1}));
        }
        if (posted < receives && c.send(*c.a, posted)) ++posted;
        c.cq_a.poll(16, [&](const Cqe& cqe) {
          ASSERT_EQ(cqe.status, WcStatus::kSuccess);
          ASSERT_EQ(cqe.wr_id, sent++);
        });
        c.cq_b.poll(16, [&](const Cqe& cqe) {
          ASSERT_EQ(cqe.status, WcStatus::kSuccess);
          ASSERT_EQ(cqe.wr_id, received);
          ASSERT_EQ(buffer.words[received % 32], received);
          ++received;
        });
        engine->progress();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Nobody polls: the background thread does everything, and the armed queue wakes the sleeper.
TEST(Engine, BackgroundThreadServesSleepers) {
  auto engine = make_engine();
  Waiter waiter;
  Connection c(*engine, {.waiter = &waiter});
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 200; ++i) {
    const queue::Sge sge = buffer.sge(0);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    c.cq_b.arm(CompletionQueue::Arm::kAny);
    engine->expect_sleep();
    ASSERT_TRUE(c.send(*c.a, i));
    ASSERT_TRUE(waiter.wait(std::chrono::seconds(30))) << "lost wake-up at message " << i;
    int count = 0;
    c.cq_b.poll(4, [&](const Cqe& cqe) {
      EXPECT_EQ(cqe.wr_id, i);
      ++count;
    });
    ASSERT_EQ(count, 1);
    ASSERT_EQ(buffer.words[0], i);
    while (c.cq_a.poll(4, [](const Cqe&) {}) == 0) engine->progress();
  }
}

// Nobody polls, no transport timer runs, and too few completions come: the moderation period alone brings the event.
TEST(Engine, ModerationPeriodWakesSleepers) {
  auto engine = make_engine();
  Waiter waiter;
  Connection c(*engine, {.waiter = &waiter, .timeout = 0});
  Buffer buffer(*engine);
  ASSERT_EQ(engine->moderate_cq(c.cq_b, 1000, std::chrono::milliseconds(5)), 0);
  for (uint64_t i = 0; i < 20; ++i) {
    const queue::Sge sge = buffer.sge(0);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    c.cq_b.arm(CompletionQueue::Arm::kAny);
    engine->expect_sleep();
    ASSERT_TRUE(c.send(*c.a, i));
    ASSERT_TRUE(waiter.wait(std::chrono::seconds(30))) << "message " << i;
    EXPECT_EQ(c.cq_b.poll(4, [](const Cqe&) {}), 1u);
    while (c.cq_a.poll(4, [](const Cqe&) {}) == 0) engine->progress();
  }
  EXPECT_EQ(engine->moderate_cq(c.cq_b, 0, {}), 0);
}

// The thread that watches the network for handlers becomes the one that moves packets.
TEST(Engine, HandlersComeBeforeTheFirstQp) {
  for (int round = 0; round < 20; ++round) {
    auto engine = make_engine();
    EventHandler handler = [](const EventSubject&) {};
    engine->add_event_handler(&handler);
    EXPECT_EQ(engine->deregister_memory(1), EINVAL);  // takes the lock, with nothing to send on yet
    Waiter waiter;
    {
      Connection c(*engine, {.waiter = &waiter});
      Buffer buffer(*engine);
      const queue::Sge sge = buffer.sge(0);
      ASSERT_TRUE(Engine::receive_queue(*c.b).post(1, {&sge, 1}));
      c.cq_b.arm(CompletionQueue::Arm::kAny);
      engine->expect_sleep();
      ASSERT_TRUE(c.send(*c.a, 1));
      ASSERT_TRUE(waiter.wait(std::chrono::seconds(30)));
    }
    engine->remove_event_handler(&handler);
  }
}

// The packet I/O is gone and the background thread with it, and what the application does later does no harm.
TEST(Engine, LeavesTheNetdevWhileItIsUsed) {
  std::weak_ptr<int> opened;
  const auto open = [&opened](const net::Netdev&) -> std::variant<OpenedIo, io::IoError> {
    const auto token = std::make_shared<int>();
    opened = token;
    OpenedIo result;
    result.io.push_back(std::make_unique<HookedIo>([token](std::span<io::RxPacket>) {}));
    return result;
  };
  auto view = std::make_shared<FixedNetView>();
  Engine engine(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open));
  engine.leave_netdev();  // nothing is open yet
  Connection c(engine);
  ASSERT_FALSE(opened.expired());
  std::atomic<bool> stop{false};
  std::thread poller([&] {
    while (!stop) {
      c.cq_a.poll(64, [](const Cqe&) {});
      engine.progress();
    }
  });
  for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(c.send(*c.a, i));
  while (!opened.expired()) engine.leave_netdev();  // not when the poller lost its core in the middle of a round
  EXPECT_TRUE(c.send(*c.a, 32));
  const Connection another(engine);
  EXPECT_NE(engine.counters_text(), "");
  stop = true;
  poller.join();
}

// The queue grows and shrinks under traffic, and refuses what would lose completions.
TEST(Engine, QueuesAreResizedUnderTraffic) {
  auto engine = make_engine();
  Connection c(*engine);
  std::atomic<bool> stop{false};
  std::thread resizer([&] {
    for (uint32_t size = 64; !stop; size = size == 64 ? 2048 : 64) EXPECT_EQ(engine->resize_cq(c.cq_b, size), 0);
  });
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 2000; ++i) {
    const queue::Sge sge = buffer.sge(0);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    ASSERT_TRUE(c.send(*c.a, i));
    bool received = false, sent = false;
    while (!received || !sent) {
      c.cq_b.poll(1, [&](const Cqe& cqe) { received = cqe.wr_id == i; });
      c.cq_a.poll(1, [&](const Cqe& cqe) { sent = cqe.wr_id == i; });
      engine->progress();
    }
  }
  stop = true;
  resizer.join();
}

// One thread's traffic is not disturbed by others that create, connect, modify and destroy QPs of their own.
TEST(Engine, QpsComeAndGoUnderTraffic) {
  auto engine = make_engine();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      Connection c(*engine);
      c.send(*c.a, 1);  // no receive posted: RNR NAKs and timers are under way when the QPs go
      transport::QpAttributes attr;
      attr.state = transport::QpState::kErr;
      EXPECT_EQ(engine->modify_qp(*c.b, attr, transport::kQpState), 0);
    }
  });
  Connection c(*engine);
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 1000; ++i) {
    const queue::Sge sge = buffer.sge(i % 32);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    ASSERT_TRUE(c.send(*c.a, i));
    bool received = false, sent = false;
    while (!received || !sent) {
      c.cq_b.poll(1, [&](const Cqe& cqe) { received = cqe.status == WcStatus::kSuccess && cqe.wr_id == i; });
      c.cq_a.poll(1, [&](const Cqe& cqe) { sent = cqe.status == WcStatus::kSuccess && cqe.wr_id == i; });
      engine->progress();
    }
    ASSERT_EQ(buffer.words[i % 32], i);
  }
  stop = true;
  churn.join();
}

// No round comes after the call: what it completes is there when it returns.
TEST(Engine, SetUpCallsShowWhatTheyComplete) {
  const auto engine = make_engine();
  Connection c(*engine);
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(Engine::receive_queue(*c.a).post(id, {}));
  c.move(*c.a, transport::QpState::kErr);
  EXPECT_EQ(c.cq_a.poll(16, [](const Cqe&) {}), 3u);
}

TEST(Engine, ErrorStateFlushesWhatIsPostedLater) {
  auto engine = make_engine();
  Connection c(*engine);
  transport::QpAttributes attr;
  attr.state = transport::QpState::kErr;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, transport::kQpState), 0);
  EXPECT_EQ(Engine::state(*c.a), transport::QpState::kErr);
  ASSERT_TRUE(c.send(*c.a, 5));
  Cqe seen;
  while (c.cq_a.poll(1, [&](const Cqe& cqe) { seen = cqe; }) == 0) engine->progress();
  EXPECT_EQ(seen.wr_id, 5u);
  EXPECT_EQ(seen.status, WcStatus::kFlushError);
}

TEST(Engine, RefusesWhatThePortDoesNotHave) {
  using namespace transport;
  auto engine = make_engine();
  Connection c(*engine);
  QpAttributes attr;
  attr.state = QpState::kReset;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, kQpState), 0);
  attr.state = QpState::kInit;
  attr.port = 2;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), EINVAL);
  attr.port = 1;
  ASSERT_EQ(engine->modify_qp(*c.a, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
  attr.state = QpState::kRtr;
  attr.address.destination = kOwnAddress;
  attr.path_mtu = 4096;  // the netdev has 1500
  constexpr uint32_t kRtr =
      kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), EINVAL);
  attr.path_mtu = 1024;
  attr.address.source_gid_index = 9;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), EINVAL);
  attr.address.source_gid_index = 0;
  attr.address.destination.bytes[15] = 77;
  EXPECT_EQ(engine->modify_qp(*c.a, attr, kRtr), ENETUNREACH);
}

}  // namespace
}  // namespace uroce::engine::test
