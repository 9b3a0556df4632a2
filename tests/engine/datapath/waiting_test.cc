// SPDX-License-Identifier: BSD-2-Clause
// Threads that wait for events: who watches the packet I/O, and what signals, cancellation and jumps do to them. Meant
// for ThreadSanitizer as well.
#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <pthread.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/engine/datapath/progress_rig.h"
#include "tests/thread_state.h"

namespace uroce::engine::test {
namespace {

// Rounds, by who runs them.
class Waiting : public testing::Test {
 protected:
  // Until the queue has something. What it was, and how the wait ended.
  Waited wait(CompletionQueue& cq, int fd = -1) {
    return engine->wait_for_event(
        [&cq](const std::function<void()>& rounds) {
          rounds();
          return !cq.empty();
        },
        fd);
  }
  // A message from a to b, by a thread that does not poll.
  void send(Connection& on, uint64_t id) {
    const queue::Sge sge = buffer.sge(id % 8);
    ASSERT_TRUE(Engine::receive_queue(*on.b).post(id, {&sge, 1}));
    ASSERT_TRUE(on.send(*on.a, id));
  }
  static uint32_t drain(CompletionQueue& cq) {
    return cq.poll(16, [](const Cqe& cqe) { EXPECT_EQ(cqe.status, WcStatus::kSuccess); });
  }

  std::atomic<int> rounds_of_waiter{0};
  std::atomic<std::thread::id> waiter{};
  std::shared_ptr<Engine> engine = make_engine(with_hook([this](auto) {
    if (std::this_thread::get_id() == waiter.load()) ++rounds_of_waiter;
  }));
  Connection c{*engine};
  Buffer buffer{*engine};
};

TEST_F(Waiting, TheThreadRunsTheRounds) {
  std::atomic<int> taken{0};
  std::thread thread([&] {
    waiter = std::this_thread::get_id();
    while (taken < 500) {
      ASSERT_EQ(wait(c.cq_b), Waited::kLook);
      taken += static_cast<int>(drain(c.cq_b));
    }
  });
  for (int i = 0; i < 500; ++i) {
    send(c, static_cast<uint64_t>(i));
    EXPECT_TRUE(eventually([&] { return taken > i; })) << "nobody came for message " << i;
    drain(c.cq_a);
  }
  thread.join();
  EXPECT_GT(rounds_of_waiter, 0);
}

// As a completion channel.
class Channel final : public queue::CompletionNotifier {
 public:
  ~Channel() { close(fd); }
  void on_completion(CompletionQueue&) override {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void clear() const {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof(count));
  }
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

// Each sends to the next one's queue when it has an event: one watches, the others are woken by it, and when that one
// leaves another one, or the background thread, comes.
TEST_F(Waiting, SeveralThreadsTakeTurns) {
  constexpr int kThreads = 4, kTurns = 200;
  std::array<Channel, kThreads> channels;
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::thread> threads;
  for (Channel& channel : channels) {
    connections.push_back(std::make_unique<Connection>(*engine, ConnectionSettings{.waiter = &channel}));
  }
  std::atomic<int> ended{0};
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Connection& own = *connections[i];
      Connection& next = *connections[(i + 1) % kThreads];
      for (int turn = 0; turn < kTurns; ++turn) {
        while ((i > 0 || turn > 0) && drain(own.cq_b) == 0) {
          channels[i].clear();
          own.cq_b.arm(CompletionQueue::Arm::kAny);
          if (!own.cq_b.empty()) continue;
          ASSERT_EQ(wait(own.cq_b, channels[i].fd), Waited::kLook);
        }
        send(next, static_cast<uint64_t>(turn));
        drain(next.cq_a);
      }
      ++ended;
    });
  }
  EXPECT_TRUE(eventually([&] { return ended == kThreads; })) << ended << " threads have ended";
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Waiting, ItsDescriptorWakesTheThread) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  for (int i = 0; i < 20; ++i) {
    std::thread thread([&] { EXPECT_EQ(wait(c.cq_b, fd), Waited::kLook); });
    const uint64_t one = 1;
    EXPECT_EQ(write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    thread.join();
    uint64_t count;
    EXPECT_EQ(read(fd, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }
  close(fd);
}

// It neither polls nor waits any more.
TEST_F(Waiting, TheBackgroundThreadIsThereForWhoDoesNotComeBack) {
  for (uint64_t i = 0; i < 20; ++i) {
    send(c, i);
    ASSERT_EQ(wait(c.cq_b), Waited::kLook);
    drain(c.cq_b);
    send(c, i);
    ASSERT_TRUE(eventually([&] { return !c.cq_b.empty(); })) << "nobody runs rounds";
    drain(c.cq_b);
    drain(c.cq_a);
  }
}

TEST_F(Waiting, AThreadThatIsCancelledLeavesTheWatchToOthers) {
  std::atomic<bool> begun{false};
  std::thread thread([&] {
    waiter = std::this_thread::get_id();
    begun = true;
    wait(c.cq_b);
  });
  EXPECT_TRUE(eventually([&] { return begun && rounds_of_waiter > 0; }));
  pthread_cancel(thread.native_handle());
  thread.join();
  send(c, 1);
  EXPECT_TRUE(eventually([&] { return !c.cq_b.empty(); }));
  EXPECT_EQ(wait(c.cq_b), Waited::kLook);
}

sigjmp_buf out_of_the_wait;

// It leaves the watch behind, without anything having been unwound, and comes again.
TEST_F(Waiting, AThreadMayLeaveByAJumpOutOfASignalHandler) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { siglongjmp(out_of_the_wait, 1); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> jumped{false};
  std::optional<Waited> how;
  std::atomic<pid_t> tid{0};
  std::thread thread([&] {
    tid = gettid();
    waiter = std::this_thread::get_id();
    if (sigsetjmp(out_of_the_wait, 1) == 0) {
      wait(c.cq_b);
    } else {
      jumped = true;
      how = wait(c.cq_b);
    }
  });
  EXPECT_TRUE(eventually([&] { return rounds_of_waiter > 0; }));
  EXPECT_TRUE(eventually([&] { return uroce::test::sleeps(tid); })) << "no program may jump out of a round";
  pthread_kill(thread.native_handle(), SIGUSR1);
  EXPECT_TRUE(eventually([&] { return jumped.load(); }));
  send(c, 1);
  thread.join();
  EXPECT_EQ(how, Waited::kLook);
  EXPECT_FALSE(c.cq_b.empty());
  sigaction(SIGUSR1, &before, nullptr);
}

void on_signal(int) {}

// As a read() of the descriptor would: POSIX poll() goes on after no handler.
TEST_F(Waiting, SignalsInterruptAsTheirHandlersSay) {
  for (const int flags : {SA_RESTART, 0}) {
    struct sigaction action {
    }, before{};
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    rounds_of_waiter = 0;
    std::atomic<bool> ended{false};
    std::optional<Waited> how;
    std::thread thread([&] {
      waiter = std::this_thread::get_id();
      // Whoever waits looks again where nothing has come.
      while ((how = wait(c.cq_b)) == Waited::kLook && c.cq_b.empty()) continue;
      ended = true;
    });
    EXPECT_TRUE(eventually([&] { return rounds_of_waiter > 0; }));
    if (flags == 0) {
      EXPECT_TRUE(eventually([&] {
        if (!ended) pthread_kill(thread.native_handle(), SIGUSR1);
        std::this_thread::yield();
        return ended.load();
      }));
      thread.join();
      EXPECT_EQ(how, Waited::kInterrupted);
    } else {
      for (int i = 0; i < 100; ++i) pthread_kill(thread.native_handle(), SIGUSR1);
      send(c, 1);
      thread.join();
      EXPECT_EQ(how, Waited::kLook);
      EXPECT_FALSE(c.cq_b.empty());
      drain(c.cq_b);
    }
    sigaction(SIGUSR1, &before, nullptr);
  }
}

}  // namespace
}  // namespace uroce::engine::test
