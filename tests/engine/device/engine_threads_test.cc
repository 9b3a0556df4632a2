// SPDX-License-Identifier: BSD-2-Clause
// What threads can do to each other (faults.md, 41 and 50): QPs that are destroyed, reset and moved through ERR under
// traffic, with timers running and peers that never answer; memory that is deregistered in use; completion queues that
// overrun; an engine that ends with packets under way. Every completion at most once, and all of them where none was
// thrown away by RESET or destruction. Meant for ThreadSanitizer, and worth running under AddressSanitizer.
#include <algorithm>
#include <atomic>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/engine/device/engine_rig.h"

namespace uroce::engine::test {
namespace {

using transport::AsyncEvent;
using transport::QpState;

// What one work queue was given and has completed. RESET throws away the rest and begins a new epoch. Posts and epochs
// are under the poster's lock; completions come from any thread.
class Ledger {
 public:
  static constexpr size_t kEpochs = 512, kPosts = 1 << 18;

  bool room() const { return next_ < kPosts; }
  bool nearly_full() const { return next_ + 4096 > kPosts; }
  uint64_t next_id() const { return uint64_t{epoch_} << 32 | next_; }
  void posted() {
    ++next_;
    ++in_epoch_;
  }
  uint32_t outstanding() const { return in_epoch_ - completed_[epoch_]; }
  uint64_t all_posted() const { return next_; }
  void begin_epoch() {
    ++epoch_;
    in_epoch_ = 0;
  }
  void complete(uint64_t wr_id) {
    EXPECT_FALSE(seen_[static_cast<uint32_t>(wr_id)].exchange(true)) << "completed twice: " << std::hex << wr_id;
    ++completed_[wr_id >> 32];
  }

 private:
  uint32_t epoch_ = 0, next_ = 0, in_epoch_ = 0;
  std::vector<std::atomic<bool>> seen_ = std::vector<std::atomic<bool>>(kPosts);
  std::vector<std::atomic<uint32_t>> completed_ = std::vector<std::atomic<uint32_t>>(kEpochs);
};

// A connection as the verbs shim has one: a post looks at the state under a lock, which RESET takes as well.
class Churned {
 public:
  explicit Churned(Engine& engine) : engine_(engine), c_(engine, {.timeout = 8}), buffer_(engine) {}

  void post() {
    std::lock_guard guard(lock_);
    if (Engine::state(*c_.b) != QpState::kReset && receives_.room() && receives_.outstanding() < 48) {
      const queue::Sge sge = buffer_.sge(receives_.next_id() % 48);
      const uint64_t wr_id = receives_.next_id();
      receives_.posted();
      EXPECT_TRUE(Engine::receive_queue(*c_.b).post(wr_id, {&sge, 1}));
      engine_.receive_doorbell(*c_.b);
    }
    const QpState state = Engine::state(*c_.a);
    if ((state == QpState::kRts || state == QpState::kErr) && sends_.room() && sends_.outstanding() < 48) {
      const uint64_t wr_id = sends_.next_id();
      sends_.posted();
      EXPECT_TRUE(c_.send(*c_.a, wr_id));
    }
  }
  void poll() {
    c_.cq_a.poll(8, [this](const Cqe& cqe) { sends_.complete(cqe.wr_id); });
    c_.cq_b.poll(8, [this](const Cqe& cqe) { receives_.complete(cqe.wr_id); });
    engine_.progress();
  }

  void fail() {
    c_.move(*c_.a, QpState::kErr);
    c_.move(*c_.b, QpState::kErr);
  }
  // Of QPs in ERR, with nobody posting: everything has to complete.
  bool drained() {
    std::lock_guard guard(lock_);
    return sends_.outstanding() == 0 && receives_.outstanding() == 0;
  }
  void reset_and_reconnect() {
    {
      std::lock_guard guard(lock_);
      c_.move(*c_.a, QpState::kReset);
      c_.move(*c_.b, QpState::kReset);
      sends_.begin_epoch();
      receives_.begin_epoch();
    }
    c_.connect(*c_.a, Engine::qpn(*c_.b));
    c_.connect(*c_.b, Engine::qpn(*c_.a));
  }
  uint64_t posted() {
    std::lock_guard guard(lock_);
    return sends_.all_posted();
  }
  // The ledgers have no room for another cycle: a fast machine posts more.
  bool nearly_full() {
    std::lock_guard guard(lock_);
    return sends_.nearly_full() || receives_.nearly_full();
  }
  std::string describe() {
    std::lock_guard guard(lock_);
    return std::to_string(sends_.outstanding()) + " sends and " + std::to_string(receives_.outstanding()) +
           " receives outstanding, states " + std::to_string(static_cast<int>(Engine::state(*c_.a))) + " and " +
           std::to_string(static_cast<int>(Engine::state(*c_.b))) + "\n" + engine_.counters_text();
  }

 private:
  Engine& engine_;
  Connection c_;
  Buffer buffer_;
  std::mutex lock_;
  Ledger sends_, receives_;
};

// A poster and two pollers, while this thread resets the QPs in the middle of traffic, or fails them, waits for every
// flushed completion, and brings them back.
TEST(EngineThreads, QpsAreFailedAndResetWhileOthersPostAndPoll) {
  auto engine = make_engine();
  Churned churned(*engine);
  std::atomic<bool> stop{false}, pause{false}, paused{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop) {
      paused = pause.load();
      if (!paused) churned.post();
    }
  });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) churned.poll();
    });
  }
  for (int cycle = 0; cycle < 200 && !churned.nearly_full(); ++cycle) {
    const uint64_t before = churned.posted();
    ASSERT_TRUE(eventually([&] { return churned.posted() > before + 20; }))
        << "cycle " << cycle << ": " << churned.describe();
    if (cycle % 4 != 0) churned.fail();
    if (cycle % 2 == 1) {
      pause = true;
      ASSERT_TRUE(eventually([&] { return paused.load(); }));
      EXPECT_TRUE(eventually([&] { return churned.drained(); })) << "lost completions in cycle " << cycle;
      pause = false;
    }
    churned.reset_and_reconnect();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// One QP whose requests get no answer: nobody has that QPN, or the peer has no receive request. Its WRs, all signaled,
// must end with `error` and flush errors, each once, in order.
void expect_giving_up(Engine& engine, bool silent, WcStatus error, bool sleeps) {
  constexpr uint64_t kSends = 8;
  Waiter waiter;
  // 1 ms: longer than posting takes, or the timers would expire in there. The peer that says RNR gets time to say it.
  const uint8_t timeout = silent ? 8 : 18;
  Connection c(engine, {.waiter = sleeps ? &waiter : nullptr, .timeout = timeout, .retry_count = 1, .rnr_retry = 1});
  if (silent) {
    c.move(*c.b, QpState::kReset);
    c.connect(*c.b, 2);  // below every range of QPNs
  }
  for (uint64_t i = 0; i < kSends; ++i) ASSERT_TRUE(c.send(*c.b, i));
  uint64_t completed = 0;
  const auto take = [&](const Cqe& cqe) {
    EXPECT_EQ(cqe.wr_id, completed);
    EXPECT_EQ(cqe.status, completed == 0 ? error : WcStatus::kFlushError);
    ++completed;
  };
  while (completed < kSends) {
    if (sleeps) {
      c.cq_b.arm(CompletionQueue::Arm::kAny);
      engine.expect_sleep();
      if (c.cq_b.poll(16, take) > 0) continue;
      ASSERT_TRUE(waiter.wait(std::chrono::seconds(30))) << "never gave up";
    } else if (c.cq_b.poll(16, take) == 0) {
      engine.progress();
    }
  }
  EXPECT_EQ(completed, kSends);
}

TEST(EngineThreads, PeersThatNeverAnswerAreGivenUp) {
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&engine, t] {
      for (int i = 0; i < 25; ++i) {
        const bool silent = (i + t) % 2 == 0;
        expect_giving_up(*engine, silent, silent ? WcStatus::kRetryExceeded : WcStatus::kRnrRetryExceeded, t < 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// FixedNetView, until its netdev is gone.
class VanishingNetView final : public FixedNetView {
 public:
  std::optional<net::Netdev> netdev(int index) override { return gone_ ? std::nullopt : FixedNetView::netdev(index); }
  void vanish() {
    gone_ = true;
    net::News news;
    news.netdevs = true;
    tell_listeners(news);
  }

 private:
  std::atomic<bool> gone_{false};
};

// Counts rounds, as the thread that runs one does: without a thought of others.
class CountingIo final : public io::PacketIo {
 public:
  size_t receive(std::span<io::RxPacket>) override {
    ++counters_.rx_packets;
    return 0;
  }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool prepare_to_wait() override { return true; }
  uint32_t max_udp_length() const override { return 1480; }
  std::string description() const override { return "counting"; }
  io::IoCounters counters() const override { return counters_; }

 private:
  io::IoCounters counters_;
};

// As at a program's end, and as whoever reads /sys does.
TEST(EngineThreads, CountersAreReadWhileOthersRunAndThePacketIoEnds) {
  for (int i = 0; i < 20; ++i) {
    auto view = std::make_shared<VanishingNetView>();
    const auto open = [](const net::Netdev&) {
      OpenedIo opened;
      opened.io.push_back(std::make_unique<CountingIo>());
      return std::variant<OpenedIo, io::IoError>(std::move(opened));
    };
    auto engine = std::make_shared<Engine>(std::make_unique<Device>(*view->netdev(1), view, DeviceOptions{}, open));
    Connection c(*engine);
    std::atomic<bool> stop{false};
    std::atomic<int> reads{0};
    std::thread polling([&] {
      while (!stop) engine->progress();
    });
    std::thread reading([&] {
      while (!stop) {
        (void)engine->port_counters();
        (void)engine->counters_text();
        ++reads;
      }
    });
    const auto counted = [&] { return engine->counters_text().find("packets received") != std::string::npos; };
    EXPECT_TRUE(eventually([&] { return reads > 10 && counted(); }));
    view->vanish();
    EXPECT_TRUE(eventually([&] { return !engine->present(); }));
    const int until = reads + 10;
    EXPECT_TRUE(eventually([&] { return reads > until; }));
    stop = true;
    polling.join();
    reading.join();
    EXPECT_TRUE(counted()) << "what was counted stays";
  }
}

// Nobody but the background thread looks at the timers.
TEST(EngineThreads, TimersRunForALonelySleeper) {
  auto engine = make_engine();
  for (int i = 0; i < 50; ++i) expect_giving_up(*engine, true, WcStatus::kRetryExceeded, true);
}

// QPs are destroyed with timers running: of retries, of RNR waits, of answers that are late.
TEST(EngineThreads, QpsAreDestroyedWithTimersRunning) {
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&engine, t] {
      for (int i = 0; i < 150; ++i) {
        Connection c(*engine, {.timeout = static_cast<uint8_t>(1 + i % 4)});
        if (i % 2 == 0) c.move(*c.b, QpState::kReset);  // else: RNR
        for (uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(c.send(*c.a, n));
        for (int rounds = (i + t) % 5; rounds > 0; --rounds) engine->progress();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Sleepers rely on the background thread, which has QPs and memory regions come and go under it.
TEST(EngineThreads, SleepersAreWokenWhileQpsAndMemoryComeAndGo) {
  auto engine = make_engine();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      Connection c(*engine, {.timeout = 1});
      Buffer buffer(*engine);
      const queue::Sge sge = buffer.sge(0);
      EXPECT_TRUE(Engine::receive_queue(*c.b).post(0, {&sge, 1}));
      EXPECT_TRUE(c.send(*c.a, 1));
      EXPECT_TRUE(c.send(*c.a, 2));
    }
  });
  std::vector<std::thread> sleepers;
  for (int t = 0; t < 2; ++t) {
    sleepers.emplace_back([&] {
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
        ASSERT_EQ(c.cq_b.poll(4, [&](const Cqe& cqe) { EXPECT_EQ(cqe.wr_id, i); }), 1u);
        ASSERT_EQ(buffer.words[0], i);
        while (c.cq_a.poll(4, [](const Cqe&) {}) == 0) engine->progress();
      }
    });
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  stop = true;
  churn.join();
}

// Memory is deregistered under a stream of WRITEs to it, and used for something else at once: ThreadSanitizer sees any
// access that comes after deregister_memory() has returned.
void write_until_deregistered(Engine& engine) {
  Connection c(engine);
  Buffer source(engine);
  auto target = std::make_unique<Buffer>(engine, memory::kLocalWrite | memory::kRemoteWrite);
  std::fill(source.words.begin(), source.words.end(), 7);
  auto* const words = target->words.data();
  std::atomic<uint64_t> written{0};
  std::atomic<bool> failed{false};
  std::thread writer([&, address = reinterpret_cast<uint64_t>(words), key = target->key] {
    uint64_t posted = 0, completed = 0;
    WcStatus error = WcStatus::kSuccess;
    while (error == WcStatus::kSuccess || completed < posted) {
      queue::SendQueue& sq = Engine::send_queue(*c.a);
      queue::SendQueue::Slot slot;
      if (error == WcStatus::kSuccess && posted - completed < 32 && sq.reserve(0, slot)) {
        *slot.wqe = {};
        slot.wqe->wr_id = posted++;
        slot.wqe->opcode = queue::WrOpcode::kRdmaWrite;
        slot.wqe->flags = queue::kSignaled;
        slot.wqe->remote_address = address;
        slot.wqe->rkey = key;
        slot.wqe->sge_count = 1;
        *slot.sges = {reinterpret_cast<uint64_t>(source.words.data()), sizeof(source.words), source.key};
        sq.publish(1);
        engine.doorbell(*c.a);
      }
      c.cq_a.poll(8, [&](const Cqe& cqe) {
        EXPECT_EQ(cqe.wr_id, completed++);
        if (error == WcStatus::kSuccess) {
          error = cqe.status;
        } else {
          EXPECT_EQ(cqe.status, WcStatus::kFlushError);
        }
      });
      written = completed;
      engine.progress();
    }
    EXPECT_EQ(error, WcStatus::kRemoteAccessError);
    failed = true;
  });
  EXPECT_TRUE(eventually([&] { return written > 10; }));
  EXPECT_EQ(engine.deregister_memory(target->key), 0);
  for (size_t i = 0; i < target->words.size(); ++i) words[i] = i;
  EXPECT_TRUE(eventually([&] { return failed.load(); }));
  for (size_t i = 0; i < target->words.size(); ++i) EXPECT_EQ(words[i], i) << "written after deregistration";
  writer.join();
  target->key = 0;
  EXPECT_EQ(
      engine.register_memory({.base = reinterpret_cast<uint8_t*>(words), .iova = 0, .length = 8, .pd = 1}, target->key),
      0);  // for ~Buffer
}

TEST(EngineThreads, MemoryIsDeregisteredInUse) {
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i) write_until_deregistered(*engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// QPs of several threads share one completion queue that is too small and that one of them polls now and then.
TEST(EngineThreads, SharedCompletionQueueOverruns) {
  constexpr int kThreads = 3, kRounds = 20;
  auto engine = make_engine();
  std::atomic<int> cq_errors{0}, qp_errors{0};
  EventHandler handler = [&](const EventSubject& subject) {
    (subject.event == AsyncEvent::kCqError ? cq_errors : qp_errors)++;
  };
  for (int round = 0; round < kRounds; ++round) {
    CompletionQueue small(4, nullptr);
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Connection c(*engine, {.events = &handler});
        Qp* const qp = c.create(small);
        c.connect(*qp, Engine::qpn(*c.b));  // which does not answer it, being connected to another
        c.move(*qp, QpState::kErr);
        for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(c.send(*qp, i));  // flushed: 8 CQEs of each thread
        ++failed;
        while (failed < kThreads) {
          engine->progress();
          if (t == 0) small.poll(1, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kFlushError); });
        }
        engine->destroy_qp(qp);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(small.empty()) << "completions of QPs that are gone";
  }
  EXPECT_GE(cq_errors, 1);
  EXPECT_GE(qp_errors, 1);
}

// IBTA 11.6.3.1: each is told once, however many completions are lost.
TEST(EngineThreads, OverrunIsToldOnce) {
  auto engine = make_engine();
  std::atomic<int> cq_errors{0}, qp_errors{0};
  EventHandler handler = [&](const EventSubject& subject) {
    (subject.event == AsyncEvent::kCqError ? cq_errors : qp_errors)++;
  };
  {
    Connection c(*engine, {.cqes = 4, .events = &handler});
    Buffer buffer(*engine);
    for (uint64_t i = 0; i < 16; ++i) {
      const queue::Sge sge = buffer.sge(i);
      ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    }
    for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(c.send(*c.a, i));
    EXPECT_TRUE(eventually([&] {
      c.cq_a.poll(8, [](const Cqe&) {});
      engine->progress();
      return Engine::state(*c.b) == QpState::kErr;
    }));
  }
  EXPECT_EQ(cq_errors, 1);
  EXPECT_EQ(qp_errors, 1);
}

// 100 QPs in each of three threads, all on the threads' own completion queues, all with messages under way at once.
TEST(EngineThreads, ManyQps) {
  constexpr int kThreads = 3, kConnections = 50;
  constexpr uint64_t kMessages = 20;
  auto engine = make_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      // Each with memory of its own: their QPs are in different shards, which may write at the same time.
      std::deque<Buffer> buffers;
      std::vector<std::unique_ptr<Connection>> connections;
      std::vector<uint64_t> sent(kConnections), received(kConnections);
      for (int i = 0; i < kConnections; ++i) connections.push_back(std::make_unique<Connection>(*engine));
      for (auto& c : connections) {
        Buffer& buffer = buffers.emplace_back(*engine);
        for (uint64_t n = 0; n < kMessages; ++n) {
          const queue::Sge sge = buffer.sge(n);
          ASSERT_TRUE(Engine::receive_queue(*c->b).post(n, {&sge, 1}));
          ASSERT_TRUE(c->send(*c->a, n));
        }
      }
      uint64_t missing = 2 * kMessages * kConnections;
      EXPECT_TRUE(eventually([&] {
        for (size_t i = 0; i < connections.size(); ++i) {
          const auto take = [&](std::vector<uint64_t>& next) {
            return [&next, &missing, i](const Cqe& cqe) {
              EXPECT_EQ(cqe.status, WcStatus::kSuccess);
              EXPECT_EQ(cqe.wr_id, next[i]++);
              --missing;
            };
          };
          connections[i]->cq_a.poll(8, take(sent));
          connections[i]->cq_b.poll(8, take(received));
        }
        engine->progress();
        return missing == 0;
      })) << missing
          << " completions are missing";
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The engine goes with packets in its queues and its background thread awake, asleep or about to sleep.
TEST(EngineThreads, EngineEndsWithPacketsUnderWay) {
  for (int i = 0; i < 100; ++i) {
    auto engine = make_engine();
    {
      Connection c(*engine, {.timeout = 1});
      Connection silent(*engine, {.timeout = 1});
      silent.move(*silent.b, QpState::kReset);
      for (uint64_t n = 0; n < 32; ++n) {
        ASSERT_TRUE(c.send(*c.a, n));
        ASSERT_TRUE(silent.send(*silent.a, n));
      }
      for (int rounds = i % 4; rounds > 0; --rounds) engine->progress();
    }
    for (int rounds = i % 3; rounds > 0; --rounds) engine->progress();
  }
}

}  // namespace
}  // namespace uroce::engine::test
