// SPDX-License-Identifier: BSD-2-Clause
// Who runs the rounds, and what a round may not do to the thread that it borrows: keep it, change its errno, let it be
// cancelled in the middle, throw. Also that nobody starves: neither a QP that waits for the time, nor set-up calls
// behind polling threads, nor traffic behind set-up calls. Meant for ThreadSanitizer as well.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <new>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/engine/datapath/progress_rig.h"

namespace uroce::engine::test {
namespace {

using transport::QpState;

// A call that needs the lock.
void set_up(Engine& engine) {
  uint32_t key = 0;
  EXPECT_EQ(engine.register_memory({.pd = 1}, key), 0);
  EXPECT_EQ(engine.deregister_memory(key), 0);
}

// A doorbell rings in every round, as if other threads posted all the time.
class Ringing {
 public:
  Ringing() {
    engine = make_engine(with_hook([this](auto) { on_round(); }));
    c.emplace(*engine, ConnectionSettings{.cqes = 4096});
    c->move(*c->a, QpState::kErr);  // what is posted is flushed by the next round
  }
  ~Ringing() {
    left = 0;
    c.reset();
  }
  void poll() {
    here = 0;
    engine->progress();
    c->cq_a.poll(4096, [&](const Cqe& cqe) {
      EXPECT_GE(cqe.timestamp, cqe.wr_id) << "a round that began after the post was told an older time";
      ++completed;
    });
  }

  std::shared_ptr<Engine> engine;
  std::optional<Connection> c;
  std::atomic<int> left{0};  // how often it still rings
  int here = 0;              // rounds that this thread has run since it began to poll
  int completed = 0;

 private:
  void on_round() {
    if (std::this_thread::get_id() == main_) ++here;
    if (left.load() == 0) return;
    if (c->send(*c->a, static_cast<uint64_t>(monotonic_now().time_since_epoch().count()))) --left;
  }
  const std::thread::id main_ = std::this_thread::get_id();
};

TEST(Progress, ThreadIsNotKeptByTheDoorbellsOfOthers) {
  Ringing ringing;
  ringing.left = 2000;
  int most = 0;
  ASSERT_TRUE(eventually([&] {
    ringing.poll();
    most = std::max(most, ringing.here);
    return ringing.left == 0;
  }));
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 4);
}

TEST(Progress, WhatOneThreadLeavesTheBackgroundThreadTakes) {
  Ringing ringing;
  for (int i = 0; i < 50; ++i) {
    ringing.left = 20;  // more than one call's share, less than the queues hold
    ringing.poll();
    ASSERT_TRUE(eventually([&] { return ringing.left == 0; })) << "nobody came for the doorbells";
    ringing.poll();
  }
}

TEST(Progress, EveryRoundHasItsOwnTime) {
  Ringing ringing;
  ringing.left = 500;
  ASSERT_TRUE(eventually([&] {
    ringing.poll();
    return ringing.left == 0;
  }));
  ASSERT_TRUE(eventually([&] {
    ringing.poll();
    return ringing.completed >= 500;
  }));
  EXPECT_EQ(ringing.completed, 500);
}

TEST(Progress, CallerKeepsItsErrno) {
  const auto main = std::this_thread::get_id();
  std::atomic<int> here{0};
  auto engine = make_engine(with_hook([&](auto) {
    errno = EAGAIN;
    if (std::this_thread::get_id() == main) ++here;
  }));
  Connection c(*engine);
  for (errno = 0; here < 10; engine->progress()) ASSERT_EQ(errno, 0);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(c.send(*c.a, 1));
  EXPECT_EQ(errno, 0);
}

// --- a thread that posts and then watches memory ---------------------------------------------------------------------

// A host with neighbours.
class RoutedNetView final : public FixedNetView {
 public:
  std::optional<net::Route> route(int, const wire::IpAddress&, const wire::IpAddress& to) override {
    return net::Route{.next_hop = to, .mtu = 1500};
  }
  net::Neighbour neighbour(int, const wire::IpAddress&) override {
    return {.state = net::NeighbourState::kUsable, .mac = {2, 0, 0, 0, 0, 9}};
  }
};

// Packets of an unreliable QP to another host. They are complete when they have left.
class Posting : public testing::TestWithParam<bool> {
 protected:
  void wait_for_company() {
    for (uint64_t i = 0; i < 10; ++i) {
      queue::SendQueue::Slot slot;
      ASSERT_TRUE(Engine::send_queue(*qp_).reserve(0, slot));
      *slot.wqe = {};
      slot.wqe->wr_id = i;
      slot.wqe->opcode = queue::WrOpcode::kSend;
      slot.wqe->flags = queue::kSignaled | queue::kInline;
      Engine::send_queue(*qp_).publish(1);
      engine->doorbell(*qp_);
    }
  }
  bool have_left() {
    left_ += cq_.poll(16, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kSuccess); });
    return left_ == 10;
  }
  void SetUp() override {
    ASSERT_EQ(engine->create_qp({.type = transport::QpType::kUc,
                                 .pd = 1,
                                 .max_send_wr = 16,
                                 .max_inline = 64,
                                 .send_cq = &cq_,
                                 .recv_cq = &cq_},
                                qp_),
              0);
    using namespace transport;
    QpAttributes attr;
    attr.state = QpState::kInit;
    attr.port = 1;
    ASSERT_EQ(engine->modify_qp(*qp_, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags), 0);
    attr.state = QpState::kRtr;
    attr.address.destination = wire::IpAddress::v4(std::array<uint8_t, 4>{192, 0, 2, 9}.data());
    attr.address.global = true;
    attr.path_mtu = 1024;
    ASSERT_EQ(engine->modify_qp(*qp_, attr, kQpState | kQpAddressVector | kQpPathMtu | kQpDestQpn | kQpRqPsn), 0);
    attr.state = QpState::kRts;
    ASSERT_EQ(engine->modify_qp(*qp_, attr, kQpState | kQpSqPsn), 0);
  }
  void TearDown() override { engine->destroy_qp(qp_); }

  std::shared_ptr<Engine> engine = make_engine(open_nothing, std::make_shared<RoutedNetView>());

 private:
  CompletionQueue cq_{16, nullptr};
  Qp* qp_ = nullptr;
  uint32_t left_ = 0;
};

// The background thread sleeps, or relies on a thread that has polled so far.
TEST_P(Posting, WhatWaitsForCompanyIsNotForgotten) {
  if (GetParam()) {
    for (const Time end = monotonic_now() + std::chrono::milliseconds(5); monotonic_now() < end;) engine->progress();
  }
  wait_for_company();
  EXPECT_TRUE(eventually([&] { return have_left(); }));
}

INSTANTIATE_TEST_SUITE_P(, Posting, testing::Bool());

// As UDP sockets that give many packets in one call: what the descriptors told of has been taken, and receive() returns
// it bit by bit.
class HoardingIo final : public io::PacketIo {
 public:
  explicit HoardingIo(std::atomic<int>& hoard) : hoard_(hoard) {}

  size_t receive(std::span<io::RxPacket> out) override {
    if (hoard_ == 0) return 0;
    --hoard_;
    out[0] = {};
    return 1;
  }
  size_t send(std::span<io::TxPacket> burst) override { return burst.size(); }
  bool flush() override { return true; }
  std::span<const pollfd> wait_descriptors() const override { return {}; }
  bool left_over() const override { return hoard_ > 0; }
  bool prepare_to_wait() override { return hoard_ == 0; }
  uint32_t max_udp_length() const override { return 4352; }
  std::string description() const override { return "hoard"; }
  io::IoCounters counters() const override { return {}; }

 private:
  std::atomic<int>& hoard_;
};

TEST(Progress, PacketsThatThePollingThreadLeavesOverAreTaken) {
  std::atomic<int> hoard{0};
  auto engine = make_engine([&](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(std::make_unique<HoardingIo>(hoard));
    return opened;
  });
  Connection c(*engine);
  for (int i = 0; i < 20; ++i) {
    // By now the background thread sleeps. (If it does not, it takes them itself.)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    hoard = 10;
    engine->progress();
    ASSERT_TRUE(eventually([&] { return hoard == 0; })) << hoard << " packets are waiting";
  }
}

// As rping does to the thread that polls: the round is finished, and the lock is free.
TEST(Progress, ThreadIsCancelledOutsideOfRoundsOnly) {
  std::atomic<bool> inside{false}, cancelled{false}, finished{false}, ended{false};
  std::atomic<pthread_t> poller{};
  auto engine = make_engine(with_hook([&](auto) {
    if (!pthread_equal(pthread_self(), poller) || inside.exchange(true)) return;
    while (!cancelled) std::this_thread::yield();
    pthread_testcancel();
    finished = true;
  }));
  Connection c(*engine);
  std::thread thread([&] {
    poller = pthread_self();
    struct End {
      ~End() { ended = true; }
      std::atomic<bool>& ended;
    } end{ended};
    while (true) {
      engine->progress();
      pthread_testcancel();
    }
  });
  ASSERT_TRUE(eventually([&] { return inside.load(); }));
  pthread_cancel(poller);
  cancelled = true;
  thread.join();
  EXPECT_TRUE(finished);
  EXPECT_TRUE(ended);
  set_up(*engine);
}

// The round copies application memory, and a fault that is blocked would kill the process (memory/memory_access.h).
TEST(Progress, FaultsThatTheApplicationBlocksAreUnblocked) {
  auto engine = engine::test::make_engine();
  Connection c(*engine);
  engine->progress();
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &faults, nullptr);
  EXPECT_TRUE(eventually([&] {
    engine->progress();
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return sigismember(&mask, SIGSEGV) == 0;
  }));
}

TEST(Progress, OutOfMemoryIsSurvivedInEveryThread) {
  std::atomic<int> failures{100};
  auto engine = make_engine(with_hook([&](auto) {
    if (failures.load() > 0 && failures.fetch_sub(1) > 0) throw std::bad_alloc();
  }));
  Connection c(*engine);
  Buffer buffer(*engine);
  for (uint64_t i = 0; i < 8; ++i) {
    const queue::Sge sge = buffer.sge(i);
    ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
    ASSERT_TRUE(c.send(*c.a, i));
  }
  uint32_t received = 0;
  EXPECT_TRUE(eventually([&] {
    engine->progress();
    received += c.cq_b.poll(8, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kSuccess); });
    return received == 8;
  }));
  // From now on nobody answers, and nobody but the background thread looks at the timers.
  c.move(*c.b, QpState::kReset);
  failures = 5;
  ASSERT_TRUE(c.send(*c.a, 8));
  EXPECT_TRUE(eventually([&] { return failures.load() <= 0; })) << "by the background thread alone";
}

// What the network has to say is not forgotten because there was no memory for it.
class ForgetfulNetView final : public FixedNetView {
 public:
  std::optional<net::Netdev> netdev(int index) override {
    if (std::this_thread::get_id() != main_ && attempts++ < 3) throw std::bad_alloc();
    return FixedNetView::netdev(index);
  }
  std::atomic<int> attempts{0};

 private:
  const std::thread::id main_ = std::this_thread::get_id();
};

TEST(Progress, NetworkIsLookedAtAgainAfterMemoryRanOut) {
  auto view = std::make_shared<ForgetfulNetView>();
  auto engine = make_engine(open_nothing, view);
  Connection c(*engine);
  EXPECT_TRUE(eventually([&] { return view->attempts > 3; }));
}

// What the kernel could not tell does not announce itself.
class DueNetView final : public FixedNetView {
 public:
  Time due() const override { return Time(Duration(due_)); }
  bool process_changes() override {
    if (std::this_thread::get_id() != main_ && due() <= monotonic_now()) due_ = kNever.time_since_epoch().count();
    return false;
  }

 private:
  const std::thread::id main_ = std::this_thread::get_id();
  std::atomic<Time::rep> due_{(monotonic_now() + std::chrono::milliseconds(200)).time_since_epoch().count()};
};

TEST(Progress, NetworkIsLookedAtWhenThatIsDue) {
  auto view = std::make_shared<DueNetView>();
  auto engine = make_engine(open_nothing, view);
  Connection c(*engine);
  EXPECT_TRUE(eventually([&] { return view->due() == kNever; }));
}

// No descriptor for the background thread: nothing has been attached to the netdev, and the next attempt can succeed.
TEST(Progress, DeviceThatCannotBeOpenedIsNotHalfOpen) {
  int opened = 0;
  auto engine = make_engine([&](const net::Netdev& netdev) {
    ++opened;
    return open_nothing(netdev);
  });
  CompletionQueue cq(16, nullptr);
  const QpInit init{.pd = 1, .send_cq = &cq, .recv_cq = &cq};
  Qp* qp = nullptr;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int error = engine->create_qp(init, qp);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
  EXPECT_EQ(opened, 0);
  ASSERT_EQ(engine->create_qp(init, qp), 0);
  EXPECT_EQ(opened, 1);
  engine->destroy_qp(qp);
}

// Who polls makes way for set-up calls that wait, and they do the round instead: no bell rings here.
TEST(Progress, SetUpCallRunsTheRoundThatWasLeftToIt) {
  const auto main = std::this_thread::get_id();
  std::atomic<bool> left_to_it{false};
  auto engine = make_engine(with_hook([&](auto) {
    if (std::this_thread::get_id() == main) left_to_it = true;
    std::this_thread::yield();  // there is time for others to come
  }));
  Connection c(*engine);
  left_to_it = false;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) engine->progress();
    });
  }
  EXPECT_TRUE(eventually([&] {
    set_up(*engine);
    return left_to_it.load();
  }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// Set-up calls of several threads without a pause, and threads that poll for messages: both get on.
TEST(Progress, NeitherSetUpCallsNorTrafficStarve) {
  constexpr int kSettingUp = 4, kPolling = 2, kCalls = 20;
  constexpr uint64_t kMessages = 40;
  auto engine = engine::test::make_engine();
  std::atomic<int> busy{kSettingUp + kPolling};
  std::vector<std::thread> threads;
  for (int t = 0; t < kSettingUp; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) set_up(*engine);
      --busy;
      while (busy > 0) set_up(*engine);
    });
  }
  for (int t = 0; t < kPolling; ++t) {
    threads.emplace_back([&] {
      Connection c(*engine);
      Buffer buffer(*engine);
      for (uint64_t i = 0; i < kMessages && busy > 0; ++i) {
        const queue::Sge sge = buffer.sge(0);
        ASSERT_TRUE(Engine::receive_queue(*c.b).post(i, {&sge, 1}));
        ASSERT_TRUE(c.send(*c.a, i));
        while (c.cq_b.poll(8, [](const Cqe&) {}) == 0 && busy > 0) engine->progress();
        while (c.cq_a.poll(8, [](const Cqe&) {}) == 0 && busy > 0) engine->progress();
      }
      --busy;
      while (busy > 0) engine->progress();
    });
  }
  EXPECT_TRUE(eventually([&] { return busy <= 0; })) << busy << " threads have not got on";
  busy = 0;
  for (std::thread& thread : threads) thread.join();
}

// 16 threads with a QP each that post and poll without a pause. The first one sends what its peer is not ready for: its
// QP waits for the time again and again. Besides, a congested switch marks its packets.
TEST(Progress, QpThatWaitsForTheTimeGetsOnWhileOthersPostAndPoll) {
  constexpr int kThreads = 16;
  constexpr uint64_t kMessages = 40;
  std::atomic<uint32_t> marked{0};
  auto engine = make_engine([&](const net::Netdev&) {
    OpenedIo opened;
    opened.io.push_back(io::make_memory_loop());
    opened.loops.push_back(std::make_unique<HookedIo>([&](std::span<io::RxPacket> arrived) {
      for (io::RxPacket& packet : arrived) {
        if (packet.source_qpn.value() == marked) packet.envelope.traffic_class |= wire::kEcnCe;
      }
    }));
    return opened;
  });
  std::atomic<int> busy{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Connection c(*engine);
      Buffer buffer(*engine);
      if (t == 0) marked = Engine::qpn(*c.a);
      const auto naks = [&] { return engine->counters().get(Counter::kTxRnrNaks); };  // of the first QP alone
      uint64_t posted = 0, completed = 0, naks_before = 0;
      bool told = false, ready = true;
      while (busy > 0) {
        const queue::Sge sge = buffer.sge(posted % 64);
        if (!ready && naks() > naks_before) {
          ready = Engine::receive_queue(*c.b).post(posted, {&sge, 1});
        } else if (t == 0 && posted == completed) {
          naks_before = naks();
          ready = false;
          ASSERT_TRUE(c.send(*c.a, posted++));
        } else if (t != 0 && posted - completed < 4) {
          ASSERT_TRUE(Engine::receive_queue(*c.b).post(posted, {&sge, 1}));
          ASSERT_TRUE(c.send(*c.a, posted++));
        }
        engine->progress();
        c.cq_b.poll(8, [](const Cqe&) {});
        completed += c.cq_a.poll(8, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kSuccess); });
        if (completed >= kMessages && !std::exchange(told, true)) --busy;
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return busy <= 0; })) << busy << " threads have made no progress";
  busy = 0;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(engine->counters().get(Counter::kTxRnrNaks), kMessages);
  EXPECT_GT(engine->counters().get(Counter::kRxCnps), 0u) << "nothing was paced";
}

}  // namespace
}  // namespace uroce::engine::test
